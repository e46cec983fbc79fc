"""What must hold for every cluster, whatever disruption does to it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.api import conditions, labels, predicates
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod
from dovetail.disruption import policy
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput, SnapshotFacts
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.drift import choose_drift, choose_static_drift
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.report import build_report
from dovetail.disruption.validate import InvalidCommand, validate_command
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import compute_nano_requests, subtract_resources
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.postprocess import apply_plan
from support.builders import NOW, owner, pod
from support.disruption import machine, pdb, pool, scene, state
from support.disruption_policies import asking
from support.worlds import apart

RS = owner("ReplicaSet")
DEAR = machine("dear-16", 16, 14.0), machine("dear-4", 4, 3.0)
TYPES = (
    *(
        machine(f"{kind}-{cpu}", cpu, round(cpu * rate, 3), (kind,))
        for cpu in (2, 4, 8, 16)
        for kind, rate in (("on-demand", 0.5), ("spot", 0.2))
    ),
    *DEAR,
)
# `make soak` looks at more of them.
TIMES = int(os.environ.get("DOVETAIL_EXAMPLES", "1"))
METHODS: tuple[Callable[[DisruptionInput], DisruptionChoice], ...] = (
    choose_empty_nodes,
    choose_static_drift,
    choose_drift,
    partial(choose_drift, at_once=None),
    choose_multi_node,
    choose_single_node,
    choose_split,
)
SAVING = (choose_empty_nodes, choose_multi_node, choose_single_node, choose_split)


@st.composite
def pods(draw: st.DrawFn, node: str, index: int, room: float) -> Pod:
    about: dict[str, Any] = {}
    kind = draw(st.sampled_from(("plain",) * 8 + ("web", "web", "held", "daemon", "light", "apart")))
    if kind == "apart":
        about |= {"labels": {"app": "apart"}, "affinity": apart(labels.HOSTNAME, app="apart")}
    if kind == "web":
        about["labels"] = {"app": "web"}
    if kind == "held":
        about["annotations"] = {labels.DO_NOT_DISRUPT: draw(st.sampled_from(("true", "5m", "nonsense")))}
    if kind == "light":
        about["annotations"] = {labels.POD_DELETION_COST: str(-(2**27))}
    cpu = draw(st.sampled_from((100, 250, 500, 1000, 1500)))
    amount = min(cpu, max(int(room * 1000), 1))
    of = owner("DaemonSet") if kind == "daemon" else RS
    return pod(f"{node}-{index}", cpu=f"{amount}m", memory="10Mi", node=node, owned_by=of, **about)


@st.composite
def machines(draw: st.DrawFn, index: int, pools: list[NodePool]) -> StateNode:
    of = draw(st.sampled_from(TYPES))
    name, mine, room = f"n{index}", [], float(of.capacity["cpu"].value) - 0.2
    for i in range(draw(st.integers(0, 4))):
        each = draw(pods(name, i, room))
        room -= float(each.spec.containers[0].resources.requests["cpu"].nano) / 1e9
        if room < 0:
            break
        mine.append(each)
    chance = st.sampled_from((False,) * 7 + (True,))
    return state(
        name,
        *mine,
        of=of,
        kind=of.offerings[0].capacity_type,
        pool=draw(st.sampled_from([p.name for p in pools])),
        consolidatable=not draw(chance),
        drifted=NOW - timedelta(minutes=index) if draw(chance) else None,
        nominated=draw(chance),
        marked=draw(chance),
        ready=not draw(chance),
        initialized=not draw(chance),
        annotations={labels.DO_NOT_DISRUPT: "true"} if draw(chance) else None,
    )


KNOBS: dict[str, tuple[str, ...]] = {
    "consolidation": ("one", "many", "many"),
    "min_saving": ("0", "0.5"),
    "min_saving_percent": ("0", "20"),
    "max_payback": ("0s", "30m"),
    "rest": ("0s", "0s", "1h"),
    "rate": ("1/1h", "9/1h"),
    "drift_pause_after": ("0s", "10m"),
}


@st.composite
def asked(draw: st.DrawFn, given: NodePool) -> NodePool:
    """The pool with some knobs turned, or none."""
    turned = draw(st.sets(st.sampled_from(sorted(KNOBS)), max_size=3))
    return asking(given, **{name: draw(st.sampled_from(KNOBS[name])) for name in sorted(turned)})


def scenes() -> st.SearchStrategy[DisruptionInput]:
    return st.one_of(mixed(), mixed(), wasteful())


@st.composite
def wasteful(draw: st.DrawFn) -> DisruptionInput:
    """Dear nodes that could be exchanged for several cheaper ones, and a pool that asks for that."""
    states = []
    for i in range(draw(st.integers(1, 6))):
        of = draw(st.sampled_from(DEAR))
        cpus = draw(st.lists(st.sampled_from((1500, 1900, 3500)), min_size=1, max_size=4))
        room = 3800 if of is DEAR[1] else 15800
        kept = [cpu for n, cpu in enumerate(cpus) if sum(cpus[: n + 1]) <= room]
        mine = (
            pod(f"n{i}-{n}", cpu=f"{cpu}m", memory="10Mi", node=f"n{i}", owned_by=RS)
            for n, cpu in enumerate(kept)
        )
        states.append(state(f"n{i}", *mine, of=of))
    sold = [each for each in TYPES if each in DEAR or draw(st.booleans())]
    given = draw(asked(pool(nodes=draw(st.sampled_from(("1", "3", "100%"))))))
    return scene(*states, pools=[asking(given, consolidation="many", rest="0s")], types=sold)


@st.composite
def mixed(draw: st.DrawFn) -> DisruptionInput:
    plain = [
        pool(
            name,
            budgets=(Budget(nodes=draw(st.sampled_from(("0", "1", "2", "30%", "100%")))),),
            consolidation_policy=draw(
                st.sampled_from(
                    ("WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced")
                )
            ),
            replicas=draw(st.sampled_from((None, None, None, 3))),
        )
        for name in draw(st.sampled_from((("default",), ("x", "y"))))
    ]
    pools = [draw(asked(each)) for each in plain]
    states = [draw(machines(i, pools)) for i in range(draw(st.integers(1, 7)))]
    budgets = [pdb(allowed=draw(st.integers(0, 1)))] if draw(st.booleans()) else []
    waiting = [pod(f"w{i}", cpu="500m", memory="10Mi") for i in range(draw(st.integers(0, 2)))]
    return scene(
        *states,
        pools=pools,
        types=TYPES,
        pdbs=budgets,
        pending=waiting,
        spot_to_spot=draw(st.booleans()),
    )


def commands(world: DisruptionInput) -> list[tuple[Command, DisruptionChoice]]:
    return [
        (command, choice) for method in METHODS for choice in (method(world),) for command in choice.commands
    ]


@settings(max_examples=250 * TIMES, deadline=None)
@given(scenes())
def test_no_method_overspends_a_budget(world: DisruptionInput) -> None:
    for method in METHODS:
        choice = method(world)
        if choice.commands:
            left = compute_allowances(world, choice.commands[0].method.reason)
            taken = Counter(c.pool.name for command in choice.commands for c in command.candidates)
            assert all(count <= left.count_left(name) for name, count in taken.items()), taken


@settings(max_examples=250 * TIMES, deadline=None)
@given(scenes())
def test_nothing_held_is_taken(world: DisruptionInput) -> None:
    now = world.snapshot.options.now
    for command, _ in commands(world):
        for candidate in command.candidates:
            mine = candidate.state
            assert mine.node is not None
            assert mine.claim is not None
            assert mine.node.annotations.get(labels.DO_NOT_DISRUPT) != "true"
            assert not mine.marked
            assert not mine.nominated
            assert views.is_initialized(mine)
            for each in mine.pods:
                held = predicates.is_active(each) and predicates.do_not_disrupt(each, now).active
                assert not held
                assert not world.limits.find_blocking_now(each, now)


@settings(max_examples=250 * TIMES, deadline=None)
@given(scenes())
def test_saving_money_never_costs_any(world: DisruptionInput) -> None:
    for command, _ in commands(world):
        if command.method.kind:
            assert command.savings >= 0
            new = sum(node.price for node in command.replacements)
            assert new < command.cost or not command.replacements


@settings(max_examples=250 * TIMES, deadline=None)
@given(scenes())
def test_every_pod_that_moves_has_a_place_before_its_node_goes(world: DisruptionInput) -> None:
    now = world.snapshot.options.now
    for command, _ in commands(world):
        if command.plan is None:
            continue
        homes = {pod for taken in command.plan.existing.values() for pod in taken}
        homes |= {pod for node in command.replacements for pod in node.pods}
        going = {candidate.name for candidate in command.candidates}
        assert not going & set(command.plan.existing)
        for candidate in command.candidates:
            for each in candidate.pods:
                if world.limits.currently_reschedulable(each, now):
                    assert each.full_name in homes, (each.full_name, str(command))


@settings(max_examples=250 * TIMES, deadline=None)
@given(scenes())
def test_commands_side_by_side_do_not_share_room(world: DisruptionInput) -> None:
    chosen = choose_drift(world, at_once=None).commands
    used = {name for c in chosen if c.plan for name, pods in c.plan.existing.items() if pods}
    assert not _overfull(world, chosen)
    going = [candidate.name for c in chosen for candidate in c.candidates]
    assert len(set(going)) == len(going)
    assert not set(going) & used


def _overfull(world: DisruptionInput, chosen: list[Command]) -> list[str]:
    """Nodes that all commands together would put more on than they have room for."""
    pods = {p.full_name: p for s in world.snapshot.nodes for p in s.pods}
    waiting = {p.full_name: p for p in world.snapshot.pods}
    free = {views.read_name(s): views.compute_available(s) for s in world.snapshot.nodes}
    landed = {
        (name, pod)
        for c in chosen
        if c.plan
        for name, taken in c.plan.existing.items()
        for pod in taken
        if pod in pods or pod in waiting
    }
    for name, each in landed:
        if name in free:
            free[name] = subtract_resources(
                free[name], compute_nano_requests(pods.get(each) or waiting[each])
            )
    return [name for name, left in free.items() if any(amount < 0 for amount in left.values())]


@settings(max_examples=150 * TIMES, deadline=None)
@given(scenes())
def test_what_was_right_is_still_right_in_the_same_world(world: DisruptionInput) -> None:
    for method in (choose_multi_node, choose_single_node, choose_split):
        for command in method(world).commands:
            assert not isinstance(validate_command(world, command), InvalidCommand)


@settings(max_examples=150 * TIMES, deadline=None)
@given(scenes())
def test_the_same_world_gives_the_same_choice(world: DisruptionInput) -> None:
    again = DisruptionInput(
        replace(world.snapshot, nodes=tuple(reversed(world.snapshot.nodes))),
        world.queued,
        world.buffered,
        world.spot_to_spot,
    )
    for method in (
        choose_empty_nodes,
        choose_drift,
        choose_single_node,
        choose_split,
    ):
        assert list(map(str, method(world).commands)) == list(map(str, method(again).commands))


@settings(max_examples=300 * TIMES, deadline=None)
@given(scenes())
def test_shortcuts_find_what_the_long_way_finds(world: DisruptionInput) -> None:
    room = dataclasses.replace(world.free_capacity, plain=False, limited=True)
    slow = world.with_facts(SnapshotFacts(free_capacity=room))
    for method in (
        choose_empty_nodes,
        choose_drift,
        choose_multi_node,
        choose_single_node,
    ):
        here, there = method(world).commands, method(slow).commands
        assert [(str(c), c.savings, c.plan) for c in here] == [(str(c), c.savings, c.plan) for c in there]


def carried_out(world: DisruptionInput, command: Command) -> DisruptionInput:
    """The world once the command is done: its nodes are gone, and its pods where the plan had them."""
    keys = {candidate.key for candidate in command.candidates}
    left = tuple(each for each in world.snapshot.nodes if views.read_provider_id(each) not in keys)
    moved = tuple(pod for c in command.candidates for pod in c.pods)
    snapshot = replace(world.snapshot, nodes=left, moving=moved)
    if command.plan is not None:
        snapshot = apply_plan(snapshot, replace(command.plan, new_nodes=command.replacements))
    known = {views.read_name(each) for each in left}
    nodes = tuple(each if views.read_name(each) in known else _up(each) for each in snapshot.nodes)
    return DisruptionInput(
        replace(snapshot, nodes=nodes, moving=()), world.queued, world.buffered, world.spot_to_spot
    )


def _up(new: StateNode) -> StateNode:
    """A replacement, once it is an ordinary node."""
    assert new.node is not None
    known = new.node.labels
    of = next(each for each in TYPES if each.name == known[labels.INSTANCE_TYPE])
    name = new.node.name.replace("/", "-")
    return state(name, *new.pods, of=of, kind=known[labels.CAPACITY_TYPE], pool=known[labels.NODEPOOL])


@settings(max_examples=100 * TIMES, deadline=None)
@given(scenes())
def test_a_quiet_cluster_comes_to_rest(world: DisruptionInput) -> None:
    """Step by step the price falls or nodes go; there is no way round in a circle."""
    for _ in range(40):
        choice = next(
            (c for method in SAVING if (c := method(world)).commands),
            None,
        )
        if choice is None:
            return
        before = _measure(world)
        world = carried_out(world, choice.commands[0])
        assert _measure(world) < before
    raise AssertionError("it never came to rest")


@settings(max_examples=150 * TIMES, deadline=None)
@given(scenes())
def test_every_node_goes_or_has_a_reason_to_stay(world: DisruptionInput) -> None:
    found = build_report(world, most=3)
    going = [candidate.name for command in found.commands for candidate in command.candidates]
    staying = [standing.name for standing in found.blocked_nodes]
    assert sorted(going + staying) == sorted(views.read_name(state) for state in world.snapshot.nodes)
    assert all(standing.main.why for standing in found.blocked_nodes)


@settings(max_examples=150 * TIMES, deadline=None)
@given(scenes())
def test_what_is_left_for_its_knobs_saves_too_little_or_comes_too_soon(world: DisruptionInput) -> None:
    now = world.snapshot.options.now
    for command, _ in commands(world):
        if command.method.reason != "Underutilized":
            continue
        for candidate in command.candidates:
            knobs = policy.read_policy(candidate.pool)
            assert command.savings >= knobs.min_saving - 1e-9
            assert command.savings >= command.cost * knobs.min_percent / 100 - 1e-9
            assert all(now - _born(each) >= knobs.rest for each in candidate.pods)
            if knobs.max_payback and command.payback is not None:
                assert timedelta(hours=command.payback) <= knobs.max_payback


def _born(of: Pod) -> datetime:
    assert of.metadata.creation_timestamp is not None
    return of.metadata.creation_timestamp


@settings(max_examples=150 * TIMES, deadline=None)
@given(scenes())
def test_every_drifted_node_is_in_one_wave_or_held(world: DisruptionInput) -> None:
    found = drift_waves.plan_waves(world)
    listed = [name for wave in found.waves for name in wave.nodes] + [each.name for each in found.held]
    drifted = [
        views.read_name(state)
        for state in world.snapshot.nodes
        if state.claim is not None and conditions.is_true(state.claim, conditions.DRIFTED)
    ]
    assert sorted(listed) == sorted(drifted)
    of = {views.read_name(state): views.read_pool_name(state) for state in world.snapshot.nodes}
    allowed = compute_allowances(world, "Drifted").allowed
    for wave in found.waves:
        assert all(count <= allowed[name] for name, count in Counter(of[n] for n in wave.nodes).items())


def _measure(world: DisruptionInput) -> tuple[float, int]:
    price = 0.0
    for each in world.snapshot.nodes:
        known = views.read_labels(each)
        price += next(t.offerings[0].price for t in TYPES if t.name == known[labels.INSTANCE_TYPE])
    return round(price, 6), len(world.snapshot.nodes)
