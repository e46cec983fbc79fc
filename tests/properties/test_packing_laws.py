"""What holds for every packing, and for every plan that comes of one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.pod import Pod
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.packing import bound
from dovetail.scheduling.packing.bound import compute_certified_bound
from dovetail.scheduling.packing.improve import QUICK, Effort, pack_problem
from dovetail.scheduling.packing.problem import PackingProblem
from dovetail.scheduling.packing.zone_assignment import level_zones
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import build_first_plan, solve
from dovetail.scheduling.verify import verify_plan
from support.builders import nodepool, pod, taint
from support.slow_packing import cheapest, problem, row_objections
from support.worlds import Z1, Z2, World, apart, near, node_affinity, running, series, spread

SHORT = Effort(rounds=4, dives=2, repacks=2)
AMOUNT = st.integers(1, 5)


@st.composite
def problems(draw: st.DrawFn) -> PackingProblem:
    """Up to four classes, three options and eight pods; one option takes everything."""
    classes = draw(st.integers(1, 4))
    requests = draw(st.lists(st.tuples(AMOUNT, AMOUNT), min_size=classes, max_size=classes))
    counts = draw(st.lists(st.integers(1, 2), min_size=classes, max_size=classes))
    options = draw(st.lists(st.tuples(AMOUNT, AMOUNT, st.integers(1, 9)), min_size=0, max_size=2))
    rooms = [(9, 9), *((c, m) for c, m, _ in options)]
    allowed = [[True, *(draw(st.booleans()) for _ in options)] for _ in range(classes)]
    family = [draw(st.sampled_from([-1, -1, 0])) for _ in range(classes)]
    limit = [draw(st.integers(1, 2))] if 0 in family else []
    return problem(requests, counts, rooms, [5.0, *(float(p) for *_, p in options)], allowed, family, limit)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_every_pod_is_packed_once_within_room_and_rules(given: PackingProblem) -> None:
    assert row_objections(given, pack_problem(given, QUICK).rows) == []
    assert row_objections(given, pack_problem(given, SHORT).rows) == []


@settings(max_examples=60, deadline=None)
@given(problems())
def test_bound_optimum_improved_and_first_plan_come_in_this_order(given: PackingProblem) -> None:
    best = cheapest(given)

    assert compute_certified_bound(given) <= best + 1e-6
    assert best <= pack_problem(given, SHORT).cost + 1e-6
    # A charge of a hundred-thousandth a node may favour fewer nodes over the last fraction of a cent.
    assert pack_problem(given, SHORT).cost <= pack_problem(given, QUICK).cost * 1.0001


@st.composite
def running_nodes(draw: st.DrawFn, classes: int, least: int) -> list[tuple[list[float], list[bool]]]:
    """Up to two nodes: the room that is left on each, and which classes it takes."""
    number = draw(st.integers(least, 2))
    return [
        ([draw(AMOUNT), draw(AMOUNT), 110.0], [draw(st.booleans()) for _ in range(classes)])
        for _ in range(number)
    ]


def bound_beside(given: PackingProblem, running: list[tuple[list[float], list[bool]]]) -> float:
    if not running:
        return compute_certified_bound(given)
    room = np.array([room for room, _ in running], float)
    return compute_certified_bound(given, room, np.array([takes for _, takes in running]).T)


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_room_that_is_paid_for_lowers_the_bound_at_least_as_far_as_the_optimum(
    given: PackingProblem, data: st.DataObject
) -> None:
    """A bound above the optimum would call a plan the best there is while a cheaper one exists."""
    running = data.draw(running_nodes(given.classes, 1))
    assert bound_beside(given, running) <= cheapest(given, running) + 1e-6


@settings(max_examples=150, deadline=None)
@given(problems(), st.data(), st.integers(0, 10_000))
def test_the_bound_is_true_whatever_prices_the_solver_finds(
    given: PackingProblem, data: st.DataObject, seed: int
) -> None:
    """A solver may end early or be off by its tolerance: then the bound is low, and never too high."""
    running = data.draw(running_nodes(given.classes, 0))
    chance = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "solve_interior_duals", lambda _, __, low, *___: chance.uniform(-1, 6, len(low)))
        found = bound_beside(given, running)
    assert 0.0 <= found <= cheapest(given, running) + 1e-6


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(1, 1_000_000))
def test_the_same_seed_repeats_the_plan(given: PackingProblem, seed: int) -> None:
    effort = Effort(rounds=3, dives=1, repacks=1, seed=seed)
    first, second = pack_problem(given, effort).rows, pack_problem(given, effort).rows

    assert [(r.option, r.counts.tolist(), r.copies) for r in first] == [
        (r.option, r.counts.tolist(), r.copies) for r in second
    ]


@given(st.integers(0, 40), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_pouring_pods_over_zones_never_raises_a_zone_above_a_lower_open_one(
    pods: int, have: list[int], data: st.DataObject
) -> None:
    open_ = np.array([True, *(data.draw(st.booleans()) for _ in have[1:])])
    poured = level_zones(pods, np.array(have), open_, np.zeros(len(have)))
    after = np.array(have) + poured

    assert poured.sum() == pods
    assert not poured[~open_].any()
    raised = poured > 0
    if raised.any():
        assert after[raised].max() - after[open_].min() <= 1


KINDS: list[dict[str, Any]] = [
    {},
    {},
    {"node_selector": {names.ZONE: Z1}},
    {"node_selector": {names.CAPACITY_TYPE: "on-demand"}},
    {"affinity": node_affinity(preferred=[(1, [(names.ZONE, "In", Z2)])])},
    {"affinity": apart(names.HOSTNAME, app="web")},
    {"affinity": apart(names.ZONE, app="db")},
    {"affinity": near(names.ZONE, app="web")},
    {"affinity": near(names.HOSTNAME, app="db")},
    {"topology_spread_constraints": (spread(names.ZONE),)},
    {"topology_spread_constraints": (spread(names.ZONE, soft=True), spread(names.HOSTNAME, soft=True))},
    {"topology_spread_constraints": (spread(names.HOSTNAME, 2), spread(names.CAPACITY_TYPE, soft=True))},
    {"host_ports": [80]},
]


@st.composite
def workloads(draw: st.DrawFn, number: int) -> list[Pod]:
    """A few pods of one shape."""
    shape: dict[str, Any] = {
        "cpu": draw(st.sampled_from(["100m", "1", "1500m", "4"])),
        "memory": draw(st.sampled_from(["64Mi", "1Gi", "6Gi"])),
        "labels": draw(st.sampled_from([{"app": "web"}, {"app": "db"}, {}])),
        **draw(st.sampled_from(KINDS)),
    }
    return [pod(f"w{number}-{i}", **shape) for i in range(draw(st.integers(1, 6)))]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    pods = [each for i in range(draw(st.integers(1, 5))) for each in draw(workloads(i))]
    held = [
        running(f"node-{i}", replace(draw(workloads(100 + i))[0], node_name=f"node-{i}"), zone=Z1)
        for i in range(draw(st.integers(0, 3)))
    ]
    limits = draw(st.sampled_from([None, None, {"cpu": "12"}, {"nodes": "2"}]))
    soft = [taint("soft", "PreferNoSchedule")] if draw(st.booleans()) else []
    world = World(nodepool("a", limits=limits), nodepool("b", weight=2, taints=soft), types=series(6))
    world.nodes = held
    return world.snapshot(*pods)


def placed(plan: Plan) -> int:
    return sum(len(node.pods) for node in plan.new_nodes) + sum(len(pods) for pods in plan.existing.values())


@settings(max_examples=60, deadline=None)
@given(snapshots())
def test_a_plan_keeps_every_rule_and_forgets_nobody(world: Snapshot) -> None:
    plan = solve(world, SHORT)

    assert verify_plan(world, plan) == []
    decided = placed(plan) + len(plan.unschedulable) + len(plan.deferred)
    assert decided == len(world.pods)


@settings(max_examples=60, deadline=None)
@given(snapshots())
def test_a_plan_is_never_worse_than_placing_pods_one_by_one(world: Snapshot) -> None:
    packed, plain = solve(world, SHORT), schedule_pods(world)

    assert placed(packed) >= placed(plain)
    if placed(packed) == placed(plain):
        assert packed.price <= plain.price + 1e-9
    assert packed.bound <= packed.price + 1e-6


@settings(max_examples=40, deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_arrival_order_does_not_matter_to_the_packing(world: Snapshot, rng: random.Random) -> None:
    def mixed(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(things, len(things)))

    other = replace(world, pods=mixed(world.pods), nodes=mixed(world.nodes), pools=mixed(world.pools))
    assert build_first_plan(other, SHORT) == build_first_plan(world, SHORT)
