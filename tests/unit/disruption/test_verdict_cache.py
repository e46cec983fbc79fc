"""What happens to one node, and whose verdicts are asked for again because of it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import MonthSpend, SpendLimit, SpendLimitSpec, SpendLimitStatus
from dovetail.disruption.candidates import (
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.verdict_cache import VerdictCache
from dovetail.runtime.worker_transfer import ParcelSender, serve_parcel
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.spend_caps import build_caps
from support.builders import NOW, owner, pod
from support.disruption import machine, scene, seen_number, state

RS = owner("ReplicaSet")
# As dear as can be had, so that nothing is exchanged.
FOUR = machine("four", 4, 1.0)
Happening = Callable[[StateNode], StateNode]


def resident(name: str, node: str, cpu: str) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS)


def world() -> DisruptionInput:
    """Node `a` has the pod that could go to `b`, which has room for it and little more; `full` has none."""
    mine = state("a", resident("a-0", "a", "1"), of=FOUR)
    roomy = state("b", resident("b-0", "b", "2"), of=FOUR)
    full = state("full", resident("full-0", "full", "3500m"), of=FOUR)
    return scene(mine, roomy, full, types=[FOUR])


def asked_again(at: str, happening: Happening) -> set[str]:
    """The nodes other than the one where it happened whose verdict is worked out once more."""
    before, memory = world(), VerdictCache()
    for each in find_candidates(before, DisruptionClass.GRACEFUL)[0]:
        memory.find_verdict(before, each)
    nodes = tuple(happening(s) if s.node and s.node.name == at else s for s in before.snapshot.nodes)
    after, again = DisruptionInput(replace(before.snapshot, nodes=nodes)), set()
    for each in find_candidates(after, DisruptionClass.GRACEFUL)[0]:
        asked = memory.asked
        verdict = memory.find_verdict(after, each)
        assert verdict.command is None or verdict.command.candidates == (each,)
        if memory.asked > asked:
            again.add(each.name)
    return again - {at}


def heartbeat(of: StateNode) -> StateNode:
    assert of.node is not None
    return replace(of, node=replace(of.node, metadata=replace(of.node.metadata, resource_version="9")))


def ready(of: StateNode) -> StateNode:
    first, *others = of.pods
    return replace(of, pods=(replace(first, metadata=replace(first.metadata, resource_version="9")), *others))


def told_anew(of: StateNode) -> StateNode:
    copied: StateNode = pickle.loads(pickle.dumps(of))
    return copied


def joined(cpu: str) -> Happening:
    return lambda of: replace(of, pods=(*of.pods, resident("more", "x", cpu)))


def emptied(of: StateNode) -> StateNode:
    return replace(of, pods=())


@pytest.mark.parametrize("happening", [heartbeat, ready, told_anew])
@pytest.mark.parametrize("at", ["a", "b", "full"])
def test_what_changes_nothing_for_others_is_no_news(at: str, happening: Happening) -> None:
    assert asked_again(at, happening) == set()


def test_a_node_that_was_to_take_pods_may_fill_up_as_far_as_it_still_can() -> None:
    assert "a" not in asked_again("b", joined("500m"))
    assert "a" in asked_again("b", joined("1500m"))


def test_more_room_is_news_to_those_who_looked_for_it() -> None:
    assert "full" in asked_again("a", emptied)


def test_less_room_where_nobody_found_any_is_no_news() -> None:
    assert asked_again("full", joined("100m")) == set()


def terminating(of: StateNode) -> StateNode:
    return replace(of, marked=True)


def test_a_node_that_begins_to_terminate_is_news_to_those_whose_pods_it_was_to_take() -> None:
    """Nothing else about it has changed: neither its room nor its pods."""
    assert "a" in asked_again("b", terminating)


def test_what_room_alone_settled_is_reckoned_again_when_there_is_less() -> None:
    assert asked_again("b", joined("500m")) == {"full"}


def test_the_same_node_by_another_record_is_the_same_candidate() -> None:
    before, memory = world(), VerdictCache()
    for each in find_candidates(before, DisruptionClass.GRACEFUL)[0]:
        memory.find_verdict(before, each)
    asked, nodes = memory.asked, tuple(map(told_anew, before.snapshot.nodes))
    after = DisruptionInput(replace(before.snapshot, nodes=nodes))
    verdicts = [
        (each, memory.find_verdict(after, each))
        for each in find_candidates(after, DisruptionClass.GRACEFUL)[0]
    ]
    assert memory.asked == asked
    assert all(v.command is None or v.command.candidates[0].state is each.state for each, v in verdicts)


def test_a_scene_that_is_told_again_is_the_one_that_is_known() -> None:
    """Workers hear of the same nodes by name, so that a second question is about the very same records."""
    sender, before = ParcelSender(), world()

    def heard(scene: DisruptionInput) -> int:
        for parcel in sender.pack((seen_number, (scene,), {})):
            answer = serve_parcel(parcel)
        return int(sender.unpack(answer))

    known = heard(before)
    assert heard(DisruptionInput(before.snapshot)) == known
    assert heard(DisruptionInput(before.snapshot, queued=frozenset(("x",)))) != known
    changed = replace(before.snapshot, nodes=tuple(map(told_anew, before.snapshot.nodes)))
    assert heard(DisruptionInput(changed)) != known


def test_what_was_said_of_a_node_goes_with_it() -> None:
    """Nothing that a verdict depends on changes when its own node goes, so it would be kept for ever."""
    before, memory = world(), VerdictCache()
    for each in find_candidates(before, DisruptionClass.GRACEFUL)[0]:
        memory.find_verdict(before, each)
    nodes = tuple(s for s in before.snapshot.nodes if s.node and s.node.name != "a")
    after = DisruptionInput(replace(before.snapshot, nodes=nodes))
    for each in find_candidates(after, DisruptionClass.GRACEFUL)[0]:
        memory.find_verdict(after, each)
    held = {kept.state.node.name for kept in memory._kept.values() if kept.state.node}
    assert held == {"b", "full"}


@pytest.mark.spec("SL-13")
def test_what_spend_limits_say_asks_no_node_again() -> None:
    """Limits only hold back: neither a new status of one nor other numbers make anybody forget a verdict."""
    limit = SpendLimit(metadata=ObjectMeta(name="development"), spec=SpendLimitSpec(hourly="40", monthly="9"))
    spent = replace(limit, status=SpendLimitStatus(held_pods=7, month=MonthSpend(of="2026-06", spent="3.1")))
    full = replace(limit, status=SpendLimitStatus(month=MonthSpend(of="2026-06", spent="9.5")))
    lower = replace(limit, spec=replace(limit.spec, hourly="1"))
    before, memory = world(), VerdictCache()
    for each in find_candidates(before, DisruptionClass.GRACEFUL)[0]:
        memory.find_verdict(before, each)
    asked = memory.asked
    assert asked > 0
    for one in (limit, spent, full, lower):
        caps = build_caps((one,), (pool.nodepool for pool in before.snapshot.pools), NOW)
        after = dataclasses.replace(before, spend_caps=caps)
        for each in find_candidates(after, DisruptionClass.GRACEFUL)[0]:
            memory.find_verdict(after, each)
    assert memory.asked == asked
