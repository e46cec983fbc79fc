"""Drift in waves: how they are laid out, and the gate that stops them."""

from __future__ import annotations

from datetime import timedelta
from time import process_time
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.nodepool import Budget
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.methods.drift import choose_drift, choose_static_drift
from dovetail.disruption.methods.drift_waves import DriftFlow
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, nodeclaim, owner, pod
from support.disruption import LARGE, SIZES, pool, scene, state
from support.disruption_policies import asking, paused
from support.worlds import apart

RS = owner("ReplicaSet")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
GATED = asking(pool(nodes="50%"), drift_pause_after="10m")


def light(name: str, node: str, cpu: str = "15", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS, **about)


def stale(name: str, *pods: Pod, **about: Any) -> StateNode:
    born = {"created": NOW - 9 * HOUR}
    return state(name, *(pods or (light(f"p-{name}", name),)), drifted=NOW - HOUR, claim=born, **about)


def fleet(count: int, **about: Any) -> list[StateNode]:
    return [stale(f"n{i:04}", **about) for i in range(count)]


def coming(name: str, age: timedelta) -> StateNode:
    return StateNode(claim=nodeclaim(name, true=("Launched",), created=NOW - age))


def test_all_that_budgets_let_go_starts_in_one_turn() -> None:
    world = scene(*fleet(10), pools=[pool(nodes="30%")])
    assert len(choose_drift(world, at_once=None).commands) == 3
    assert len(choose_drift(world).commands) == 1


def test_half_empty_nodes_go_together_and_not_into_each_other() -> None:
    """Their pods would fit on one another; they go at once all the same, and nobody moves twice."""
    nodes = [stale(f"n{i}", light(f"p{i}", f"n{i}", "3")) for i in range(6)]
    found = choose_drift(scene(*nodes), at_once=None)
    assert len(found.commands) == 6
    assert not any(pods for c in found.commands if c.plan for pods in c.plan.existing.values())


def test_where_nothing_can_be_bought_they_go_into_each_other() -> None:
    nodes = [stale(f"n{i}", light(f"p{i}", f"n{i}", "3")) for i in range(4)]
    limited = pool(limits={"cpu": "40"})
    found = choose_drift(scene(*nodes, pools=[limited], types=[LARGE]), at_once=None)
    assert found.commands
    assert not any(command.replacements for command in found.commands)


def test_pods_that_count_each_other_go_side_by_side_as_well() -> None:
    """Each sees where those before it go: no two land on one node."""

    def lonely(name: str) -> Pod:
        return light(f"p-{name}", name, "1", labels={"app": "a"}, affinity=apart(labels.HOSTNAME, app="a"))

    nodes = [stale(name, lonely(name)) for name in "abcd"]
    found = choose_drift(scene(*nodes, state("free"), pools=[pool()]), at_once=None)
    assert len(found.commands) == 4
    homes = [
        (name, len(pods)) for c in found.commands if c.plan for name, pods in c.plan.existing.items() if pods
    ]
    assert homes == [("free", 1)]
    assert sum(len(command.replacements) for command in found.commands) == 3


def test_waves_take_the_longest_drifted_first_and_as_many_as_budgets_allow() -> None:
    nodes = [
        *(state(f"n{i}", light(f"p{i}", f"n{i}"), drifted=NOW - i * HOUR) for i in range(1, 6)),
        state("bare", drifted=NOW),
    ]
    found = drift_waves.plan_waves(scene(*nodes, pools=[pool(nodes="2")]))
    assert [wave.nodes for wave in found.waves] == [("bare", "n5"), ("n4", "n3"), ("n2", "n1")]
    assert [wave.pods for wave in found.waves] == [1, 2, 2]
    (bought,) = found.waves[1].replacements
    assert (bought.instance_type, bought.count, bought.price) == ("large", 2, LARGE.offerings[0].price)


def test_what_is_under_way_makes_the_first_wave_smaller() -> None:
    world = scene(*fleet(4), state("going", marked=True), pools=[pool(nodes="2")])
    assert [len(wave.nodes) for wave in drift_waves.plan_waves(world).waves] == [1, 2, 1]


def test_pools_go_side_by_side() -> None:
    nodes = [stale(f"{p}{i}", pool=p) for p in ("x", "y") for i in range(3)]
    found = drift_waves.plan_waves(scene(*nodes, pools=[pool("x", nodes="1"), pool("y", nodes="3")]))
    assert [wave.nodes for wave in found.waves] == [("x0", "y0", "y1", "y2"), ("x1",), ("x2",)]


def test_nodes_that_no_wave_takes_are_told_apart() -> None:
    held = light("h", "held", annotations={labels.DO_NOT_DISRUPT: "true"})
    world = scene(
        stale("held", held),
        stale("shut", pool="shut"),
        stale("goes"),
        pools=[pool(), pool("shut", nodes="0")],
    )
    found = drift_waves.plan_waves(world)
    assert [wave.nodes for wave in found.waves] == [("goes",)]
    assert {each.name: each.blocked_reason for each in found.held} == {
        "held": BlockedReason.POD_DO_NOT_DISRUPT,
        "shut": BlockedReason.BUDGET,
    }


def test_a_rate_spreads_waves_over_time() -> None:
    found = drift_waves.plan_waves(scene(*fleet(5), pools=[asking(pool(), rate="2/1h")]))
    assert [(len(wave.nodes), wave.after) for wave in found.waves] == [
        (2, 0 * HOUR),
        (2, HOUR),
        (1, 2 * HOUR),
    ]


def test_a_static_pool_is_as_fast_as_its_limit_leaves_room() -> None:
    found = drift_waves.plan_waves(scene(*fleet(3), pools=[pool(replicas=3, limits={"nodes": "5"})]))
    assert [len(wave.nodes) for wave in found.waves] == [2, 1]
    full = drift_waves.plan_waves(scene(*fleet(3), pools=[pool(replicas=3, limits={"nodes": "3"})]))
    assert full.waves == ()
    assert len(full.held) == 3


def test_a_budget_closed_by_its_schedule_has_no_waves_now() -> None:
    night = Budget(nodes="0", schedule="0 0 * * *", duration="24h")
    assert drift_waves.plan_waves(scene(*fleet(2), pools=[pool(budgets=(night,))])).waves == ()


def test_waves_of_four_thousand_nodes_take_seconds() -> None:
    shapes = [pod(f"s{i}", cpu=f"{1 + i % 7}", memory="10Mi", owned_by=RS) for i in range(40)]
    nodes = [
        state(f"n{i:04}", shapes[i % 40], shapes[(i * 7) % 40], drifted=NOW - HOUR, of=LARGE)
        for i in range(4000)
    ]
    begun = process_time()
    found = drift_waves.plan_waves(scene(*nodes, pools=[pool(nodes="10%")], types=SIZES))
    assert process_time() - begun < 20
    assert [len(wave.nodes) for wave in found.waves] == [400] * 10
    assert sum(wave.pods for wave in found.waves) == 8000
    assert sum(each.count for wave in found.waves for each in wave.replacements) >= 4000


# The gate


def test_a_new_node_that_is_late_pauses_the_pool() -> None:
    late = coming("late", 11 * MINUTE)
    world = scene(*fleet(4), late, pools=[GATED])
    found = drift_waves.list_drift_statuses(world)["default"]
    assert (found.flow, found.reason) == (DriftFlow.PAUSED, "NodesNotReady")
    assert found.why == "not ready after 10m0s: late"
    choice = choose_drift(world, at_once=None)
    assert choice.commands == []
    assert {each.blocked_reason for each in choice.blocked if each.name.startswith("n")} == {
        BlockedReason.PAUSED
    }
    assert drift_waves.plan_waves(world).waves == ()


def test_a_new_node_that_is_not_late_yet_pauses_nothing() -> None:
    world = scene(*fleet(4), coming("soon", 9 * MINUTE), pools=[GATED])
    assert drift_waves.list_drift_statuses(world) == {}
    assert choose_drift(world, at_once=None).commands


def test_other_pools_go_on() -> None:
    world = scene(stale("n"), stale("m", pool="other"), coming("late", HOUR), pools=[GATED, pool("other")])
    assert [c.candidates[0].name for c in choose_drift(world, at_once=None).commands] == ["m"]


def test_static_pools_have_the_same_gate() -> None:
    static = asking(pool(replicas=2), drift_pause_after="10m")
    assert choose_static_drift(scene(*fleet(2), pools=[static])).commands
    assert choose_static_drift(scene(*fleet(2), coming("late", HOUR), pools=[static])).commands == []


def test_a_lost_replacement_pauses_then_lets_one_try() -> None:
    just = scene(*fleet(4), pools=[paused(GATED, NOW - MINUTE / 2)])
    assert drift_waves.list_drift_statuses(just)["default"].flow is DriftFlow.PAUSED
    assert "the next node is tried in 30s" in drift_waves.list_drift_statuses(just)["default"].why
    assert choose_drift(just, at_once=None).commands == []
    later = scene(*fleet(4), pools=[paused(GATED, NOW - 2 * MINUTE)])
    assert drift_waves.list_drift_statuses(later)["default"].flow is DriftFlow.PROBING
    assert len(choose_drift(later, at_once=None).commands) == 1
    trying = scene(*fleet(4), stale("gone", marked=True), pools=[paused(GATED, NOW - 2 * MINUTE)])
    assert choose_drift(trying, at_once=None).commands == []


def test_a_node_that_comes_up_opens_the_gate() -> None:
    fresh = state("fresh", claim={"created": NOW - MINUTE})
    world = scene(*fleet(4), fresh, pools=[paused(GATED, NOW - 5 * MINUTE)])
    assert drift_waves.list_drift_statuses(world) == {}
    assert len(choose_drift(world, at_once=None).commands) > 1


@pytest.mark.parametrize(("word", "count"), [("paused", 0), ("go", 2), ("what", 0)])
def test_a_pool_may_be_paused_and_resumed_by_hand(word: str, count: int) -> None:
    pools = [asking(paused(GATED, NOW), drift=word)]
    assert len(choose_drift(scene(*fleet(4), pools=pools), at_once=None).commands) == count


def test_a_pause_by_hand_ends_with_the_annotation() -> None:
    world = scene(*fleet(4), pools=[paused(GATED, NOW, "PausedByAnnotation")])
    assert drift_waves.list_drift_statuses(world) == {}


def test_without_the_knob_nothing_is_paused() -> None:
    world = scene(*fleet(4), coming("late", HOUR), pools=[paused(pool(nodes="50%"), NOW)])
    assert drift_waves.list_drift_statuses(world) == {}
    assert not drift_waves.can_pause(pool())
    assert drift_waves.can_pause(GATED)
