"""What holds for every cluster, not only for those we thought of."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.pod import Pod
from dovetail.scheduling.model.requirements import Values, parse_values
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.model.snapshot_codec import decode_snapshot, encode_snapshot
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.verify import verify_plan
from support.builders import nodepool, pod, taint
from support.scheduling_runs import snapshot as recorded
from support.vectors import cases
from support.worlds import Z1, Z2, World, apart, near, node_affinity, running, series, spread

LABELS = st.sampled_from(["", "a", "b", "1", "2", "7", "-3", "+2", "08", "x1"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"])


@st.composite
def values(draw: st.DrawFn) -> Values:
    operator = draw(OPERATORS)
    least = draw(st.none() | st.integers(1, 3))
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        return parse_values(operator, [str(draw(st.integers(-5, 9)))], least)
    return parse_values(operator, draw(st.lists(LABELS, max_size=4)), least)


@given(values(), values(), LABELS)
def test_intersection_keeps_exactly_what_both_allow(a: Values, b: Values, name: str) -> None:
    assert (name in a & b) == (name in a and name in b)


@given(values(), values(), values())
def test_the_order_of_intersecting_does_not_matter(a: Values, b: Values, c: Values) -> None:
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)
    assert a & a == a


@given(values(), values())
def test_what_has_a_common_value_is_said_to_meet(a: Values, b: Values) -> None:
    assert a.has_intersection(b) == b.has_intersection(a)
    if not (a.open and b.open):
        assert a.has_intersection(b) == bool(a & b)


KINDS: list[dict[str, Any]] = [
    {},
    {"node_selector": {names.ZONE: Z1}},
    {"affinity": node_affinity(preferred=[(1, [(names.ZONE, "In", Z2)])])},
    {"affinity": apart(names.HOSTNAME, app="web")},
    {"affinity": near(names.ZONE, app="web")},
    {"topology_spread_constraints": (spread(names.ZONE),)},
    {"topology_spread_constraints": (spread(names.HOSTNAME, 2), spread(names.CAPACITY_TYPE, soft=True))},
    {"host_ports": [80]},
]


@st.composite
def waiting(draw: st.DrawFn, number: int) -> Pod:
    return pod(
        f"pod-{number}",
        cpu=draw(st.sampled_from(["100m", "1", "1500m", "4"])),
        memory=draw(st.sampled_from(["64Mi", "1Gi", "6Gi"])),
        labels=draw(st.sampled_from([{"app": "web"}, {"app": "db"}, {}])),
        **draw(st.sampled_from(KINDS)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    count = draw(st.integers(1, 12))
    pods = [draw(waiting(i)) for i in range(count)]
    held = [
        running(f"node-{i}", replace(draw(waiting(100 + i)), node_name=f"node-{i}"), zone=Z1)
        for i in range(draw(st.integers(0, 3)))
    ]
    limits = draw(st.sampled_from([None, {"cpu": "12"}, {"nodes": "2"}]))
    soft = [taint("soft", "PreferNoSchedule")] if draw(st.booleans()) else []
    world = World(nodepool("a", limits=limits), nodepool("b", weight=2, taints=soft), types=series(6))
    world.nodes = held
    return world.snapshot(*pods)


def shuffled(world: Snapshot, rng: random.Random) -> Snapshot:
    def mixed(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(things, len(things)))

    return replace(world, pods=mixed(world.pods), nodes=mixed(world.nodes), pools=mixed(world.pools))


@settings(max_examples=60, deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_arrival_order(world: Snapshot, rng: random.Random) -> None:
    assert schedule_pods(shuffled(world, rng)) == schedule_pods(world)


@settings(max_examples=60, deadline=None)
@given(snapshots())
def test_every_pod_is_decided_once_and_no_rule_is_broken(world: Snapshot) -> None:
    plan = schedule_pods(world)
    assert verify_plan(world, plan) == []
    assert sorted(each.pod for each in plan.decisions) == sorted(each.full_name for each in world.pods)


@settings(max_examples=30, deadline=None)
@given(snapshots())
def test_a_replayed_snapshot_repeats_its_plan(world: Snapshot) -> None:
    stored = encode_snapshot(world)
    again = decode_snapshot(stored)
    assert encode_snapshot(again) == stored
    assert schedule_pods(again) == schedule_pods(world)


def test_recorded_clusters_keep_every_rule_in_any_order_of_arrival() -> None:
    rng = random.Random(1)
    for case in cases("scheduler"):
        if case["id"] % 5:
            continue
        world = recorded(case)
        plan = schedule_pods(world)
        assert verify_plan(world, plan) == [], f"case {case['id']}"
        assert schedule_pods(shuffled(world, rng)) == plan, f"case {case['id']}"
        assert schedule_pods(decode_snapshot(encode_snapshot(world))) == plan, f"case {case['id']}"
