"""The kept copy: what it tells, in which order, and when it may be trusted."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.runtime.informer import Informer

Told = list[tuple[str | None, str | None]]


def node(name: str, version: int = 1, uid: str = "", **labels: str) -> Node:
    meta = ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version=str(version), labels=labels)
    return Node(metadata=meta)


def shown(node: Node | None) -> str | None:
    return f"{node.name}@{node.metadata.resource_version}" if node is not None else None


def kept() -> tuple[Informer[Node], Told]:
    informer = Informer(Node, {"zone": lambda n: n.labels.get("zone", "").split()})
    told: Told = []
    informer.on_change(lambda before, after: told.append((shown(before), shown(after))))
    return informer, told


def test_it_is_synced_only_after_a_whole_list() -> None:
    informer, told = kept()
    assert not informer.synced
    informer.begin_list()
    informer.add_listed([node("a"), node("b")])
    assert not informer.synced
    informer.end_list()
    assert informer.synced
    assert told == [(None, "a@1"), (None, "b@1")]
    informer.begin_list()
    assert informer.synced, "a later list does not take back what is known"


def test_a_list_that_breaks_off_does_not_sync_and_removes_nothing() -> None:
    informer, told = kept()
    informer.begin_list()
    informer.add_listed([node("a")])
    informer.begin_list()
    informer.add_listed([node("b")])
    informer.end_list()
    assert [n.name for n in informer] == ["b"]
    assert told == [(None, "a@1"), (None, "b@1"), ("a@1", None)]


def test_a_new_list_tells_only_what_differs() -> None:
    informer, told = kept()
    informer.begin_list()
    informer.add_listed([node("a"), node("b"), node("c")])
    informer.end_list()
    told.clear()
    informer.begin_list()
    informer.add_listed([node("a"), node("b", 2), node("d", 3)])
    informer.end_list()
    assert told == [("b@1", "b@2"), (None, "d@3"), ("c@1", None)]


def test_a_namesake_is_told_as_a_departure_and_an_arrival() -> None:
    informer, told = kept()
    informer.apply_change(node("a", 1, uid="old"))
    informer.apply_change(node("a", 5, uid="new"))
    assert told == [(None, "a@1"), ("a@1", None), (None, "a@5")]


def test_indexes_follow_every_change() -> None:
    informer, _ = kept()
    informer.apply_change(node("a", 1, zone="x y"))
    informer.apply_change(node("b", 2, zone="x"))
    assert [n.name for n in informer.by("zone", "x")] == ["a", "b"]
    informer.apply_change(node("a", 3, zone="y"))
    assert [n.name for n in informer.by("zone", "x")] == ["b"]
    assert [n.name for n in informer.by("zone", "y")] == ["a"]
    informer.apply_removal("", "a")
    assert informer.by("zone", "y") == ()
    assert informer._indexed["zone"].keys() == {"x"}, "an empty file is thrown away"


def test_what_is_gone_twice_or_unknown_is_told_once_or_not_at_all() -> None:
    informer, told = kept()
    informer.apply_change(node("a"))
    informer.apply_removal("", "a")
    informer.apply_removal("", "a")
    informer.apply_removal("", "never")
    assert told == [(None, "a@1"), ("a@1", None)]
    assert informer.get("a") is None
    assert len(informer) == 0


def test_a_late_handler_hears_what_is_already_there() -> None:
    informer, _ = kept()
    informer.apply_change(node("a"))
    heard: list[Node | None] = []
    informer.on_change(lambda before, after: heard.append(after))
    assert heard == [informer.get("a")]


def test_an_object_that_one_handler_fails_on_is_named_and_kept_from_no_other() -> None:
    informer, _ = kept()
    failed: list[tuple[str, str]] = []
    heard: list[str | None] = []

    def fail(before: Node | None, after: Node | None) -> None:
        if after is not None and after.name == "bad":
            raise ValueError("absurd")

    informer.on_change(fail)
    informer.on_change(lambda before, after: heard.append(shown(after)))
    informer.on_failure = lambda obj, error: failed.append((obj.name, str(error)))
    informer.apply_change(node("bad"))
    informer.apply_change(node("good"))
    assert failed == [("bad", "absurd")]
    assert heard == ["bad@1", "good@1"]
    informer.on_failure = None
    with pytest.raises(ValueError, match="absurd"):
        informer.apply_change(node("bad", 2))


async def test_whoever_waits_is_woken_by_the_first_list() -> None:
    informer, _ = kept()
    waiting = asyncio.create_task(informer.wait_synced())
    await asyncio.sleep(0)
    assert not waiting.done()
    informer.begin_list()
    informer.end_list()
    await asyncio.wait_for(waiting, 1)
    assert informer.synced
