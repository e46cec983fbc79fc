"""The page of what happened, its filters, and the tables on the pages of nodes, pods and NodePools."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from msgspec import structs

from dovetail.app.dashboard_history import HistoryFollower
from dovetail.app.history_source import HistoryAnswer
from dovetail.errors import Misconfigured
from dovetail.history.record import RecordKind
from dovetail.history.ring import HistoryQuery, HistoryRing
from dovetail.picture import Picture, RememberedHistory
from dovetail.runtime.clock import SystemClock
from dovetail.web import build_document, find_page
from dovetail.web.render import PageFrame, render_page
from support.builders import pod
from support.dashboard_snapshots import busy, pictured
from support.decision_records import Stamping, at

EVIL = '<script>alert("x")</script>'


def remembered(*notes: dict[str, Any]) -> RememberedHistory:
    ring, stamp = HistoryRing(timedelta(days=36_500)), Stamping()
    for number, note in enumerate(notes):
        ring.note_record(stamp(seconds=number, **note))
    return RememberedHistory(ring, at(0))


@pytest.fixture(scope="module")
def seen() -> Picture:
    return pictured(busy(pod("small", cpu="1"), pod("huge", cpu="9000")), live=True)


@pytest.fixture
def picture(seen: Picture) -> Picture:
    history = remembered(
        {"kind": RecordKind.NODE_READY, "subject": "node/roomy", "pool": "default"},
        {"kind": RecordKind.POD_UNSCHEDULABLE, "subject": "pod/default/huge", "message": "fits nowhere"},
        {"kind": RecordKind.NODE_GONE, "subject": "node/past", "pool": "gpu", "reason": "Underutilized"},
        {"kind": RecordKind.COMMAND_STARTED, "subject": "command/41c2aa", "pool": "gpu", "names": ("past",)},
    )
    return replace(seen, history=history)


def shown(picture: Picture, path: str, **asked: str) -> str:
    page = find_page(picture, path, asked)
    assert page is not None, path
    return unescape(render_page(page, PageFrame(path, "c", "now", True, "1")))


def rows(picture: Picture, path: str, key: str, **asked: str) -> list[str]:
    page = find_page(picture, path, asked)
    assert page is not None, path
    return [each["about"] for each in build_document(page)[key]]


def test_everything_is_shown_the_latest_first(picture: Picture) -> None:
    assert rows(picture, "history", "records") == [
        "command/41c2aa",
        "node/past",
        "pod/default/huge",
        "node/roomy",
    ]
    assert "4 records. Remembered since " in shown(picture, "history")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"kind": "NodeGone"}, ["node/past"]),
        ({"pool": "gpu"}, ["command/41c2aa", "node/past"]),
        ({"reason": "Underutilized"}, ["node/past"]),
        ({"acts": "true", "pool": "default"}, ["node/roomy"]),
        ({"name": "pod/default/huge"}, ["pod/default/huge"]),
    ],
)
def test_a_filter_is_a_link_and_another_click_takes_it_away(
    picture: Picture, asked: dict[str, str], found: list[str]
) -> None:
    assert rows(picture, "history", "records", **asked) == found
    page = find_page(picture, "history", asked)
    assert page is not None
    chosen = [link for row in page.filters for link in row.links if link.chosen]
    assert len(chosen) == len(asked)
    for key, value in asked.items():
        assert any(f"{key}=" not in link.link for link in chosen), value
    everything = find_page(picture, "history")
    assert everything is not None
    offered = {link.link for row in everything.filters for link in row.links}
    assert {"history?kind=NodeGone", "history?pool=gpu", "history?since=1h", "history?acts=true"} <= offered


def test_each_thing_has_what_happened_to_it_on_its_page(picture: Picture) -> None:
    assert rows(picture, "nodes/roomy", "history") == ["node/roomy"]
    assert rows(picture, "pods/default/huge", "history") == ["pod/default/huge"]
    pool = next(iter(picture.snapshot.pools)).name
    assert rows(picture, f"pools/{pool}", "history") == (["node/roomy"] if pool == "default" else [])
    assert "What happened" in shown(picture, "nodes/roomy")


def test_what_is_gone_has_a_page_as_long_as_it_is_remembered(picture: Picture, seen: Picture) -> None:
    assert rows(picture, "nodes/past", "history") == ["command/41c2aa", "node/past"]
    assert "It is no longer in the cluster." in shown(picture, "nodes/past")
    assert rows(picture, "pools/gpu", "history") == ["command/41c2aa", "node/past"]
    assert find_page(seen, "nodes/past") is None
    assert find_page(picture, "nodes/never") is None
    assert find_page(picture, "pools/never") is None


def test_a_question_that_cannot_be_read_is_told_in_a_sentence(picture: Picture) -> None:
    assert "This cannot be asked: since yesterday: write a duration" in shown(
        picture, "history", since="yesterday"
    )
    assert "Did you mean past?" in shown(picture, "history", name="node/pasd")


def test_without_a_history_the_page_says_why(seen: Picture) -> None:
    assert "has not been asked for its history yet" in shown(seen, "history")
    assert "A snapshot has no history" in shown(replace(seen, live=False), "history")
    away = replace(seen, history=RememberedHistory(why="The history cannot be read: no verb get."))
    for path in ("history", "nodes/roomy", "pods/default/huge"):
        assert "The history cannot be read: no verb get." in shown(away, path)


def test_hostile_names_stay_words(seen: Picture) -> None:
    history = remembered(
        {
            "kind": RecordKind.NODE_GONE,
            "subject": f"node/{EVIL}",
            "pool": EVIL,
            "reason": EVIL,
            "message": EVIL,
        }
    )
    picture = replace(seen, history=history)
    for path, asked in (
        ("history", {}),
        ("history", {"name": EVIL}),
        ("history", {"pool": EVIL, "reason": EVIL}),
        ("history", {"kind": EVIL}),
        (f"nodes/{EVIL}", {}),
        (f"pools/{EVIL}", {}),
    ):
        page = find_page(picture, path, asked)
        assert page is not None
        frame = PageFrame(path, "c", "now", True, "1", query=f"name={EVIL}")
        assert "<script>alert" not in render_page(page, frame)


class Leader:
    """Answers what it is given, one answer after the other."""

    def __init__(self, *answers: HistoryAnswer | Misconfigured) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[HistoryQuery, str]] = []

    async def ask(self, query: HistoryQuery, known: str = "") -> HistoryAnswer:
        self.asked.append((query, known))
        answer = self._answers.pop(0)
        if isinstance(answer, Misconfigured):
            raise answer
        return answer


async def test_the_leader_is_asked_for_what_is_new_only() -> None:
    stamp = Stamping()
    first, second = stamp(subject="node/a"), stamp(subject="node/b", seconds=5)
    leader = Leader(
        HistoryAnswer((first,), tag='"1"'),
        HistoryAnswer(unchanged=True, tag='"1"'),
        Misconfigured("it takes the verb get on services/proxy"),
        HistoryAnswer((second, first), tag='"2"'),
    )
    follower = HistoryFollower(leader, SystemClock(), lambda: None)
    assert follower.remembered == RememberedHistory()
    assert [await follower.ask_once() for _ in range(2)] == [True, False]
    assert leader.asked[1] == (HistoryQuery(since=first.time), '"1"')
    assert await follower.ask_once()
    assert follower.remembered.why == ("The history cannot be read: it takes the verb get on services/proxy.")
    assert follower.remembered.ring is not None
    assert await follower.ask_once()
    assert follower.remembered.why == ""
    assert [each.subject for each in follower.remembered.ring.find_records(HistoryQuery())] == [
        "node/b",
        "node/a",
    ]


async def test_sinks_that_heard_of_a_record_later_are_heard_of_later() -> None:
    stamp = Stamping()
    first, second = stamp(subject="node/a"), stamp(subject="node/b", seconds=5)
    leader = Leader(
        HistoryAnswer((first,), tells=True),
        HistoryAnswer((second, structs.replace(first, told=("oncall",))), tells=True),
        HistoryAnswer((second, structs.replace(first, told=("oncall",))), tells=True),
    )
    follower = HistoryFollower(leader, SystemClock(), lambda: None)
    assert [await follower.ask_once() for _ in range(3)] == [True, True, False]
    assert leader.asked[1][0].since == first.time - timedelta(minutes=6)
    assert follower.remembered.told == {first.id: ("oncall",)}


def test_the_page_shows_which_sinks_heard_of_a_record(picture: Picture) -> None:
    assert "Told" not in shown(picture, "/history")
    assert picture.history.ring is not None
    gone = picture.history.ring.find_records(HistoryQuery(kinds=frozenset((RecordKind.NODE_GONE,))))[0]
    told = replace(picture, history=replace(picture.history, told={gone.id: ("oncall", EVIL, "oncall")}))
    page = find_page(told, "/history", {})
    assert page is not None
    assert [each["told"] for each in build_document(page)["records"]] == ["", f"oncall, {EVIL}", "", ""]
    assert "<script>alert" not in render_page(page, PageFrame("/history", "c", "now", True, "1"))
    assert "Told" in shown(told, "/nodes/past")
