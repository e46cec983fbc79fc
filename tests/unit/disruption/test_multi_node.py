"""Many nodes for one or none, the order of the search, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.command import MULTI, Command
from dovetail.disruption.methods.consolidation import (
    choose_multi_node,
    choose_single_node,
    find_same_type_price,
    interleave_pools,
)
from dovetail.disruption.validate import (
    BUDGET,
    CHURN,
    SCHEDULING,
    InvalidCommand,
    validate_candidates,
    validate_command,
)
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import owner, pod, requirement
from support.disruption import LARGE, MEDIUM, SMALL, going, machine, names_of, pdb, pool, scene, state

RS = owner("ReplicaSet")


def light(name: str, on: str, cpu: str = "500m", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="100Mi", node=on, owned_by=RS, **about)


def lonely(name: str, cpu: str = "500m", **about: Any) -> StateNode:
    return state(name, light(f"p-{name}", name, cpu), **about)


def after(calls: int) -> Callable[[], bool]:
    """Time is up once it was asked for so often."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


@pytest.mark.spec("disruption-100")
@pytest.mark.parametrize("kinds", [("on-demand",) * 3, ("spot",) * 3, ("spot", "on-demand", "on-demand")])
def test_three_lightly_used_nodes_become_one(kinds: tuple[str, ...]) -> None:
    sold = [machine(f"m{i}", 4, 2.0 + i, ("on-demand", "spot")) for i in range(3)]
    states = [lonely(n, "1", of=sold[2], kind=k) for n, k in zip("abc", kinds, strict=True)]
    (command,) = choose_multi_node(scene(*states, types=sold, spot_to_spot=True)).commands
    assert (command.decision, len(command.candidates), len(command.replacements)) == ("replace", 3, 1)
    assert command.savings > 0


@pytest.mark.spec("disruption-101")
def test_two_nodes_that_would_become_one_of_the_same_are_left_to_a_deletion() -> None:
    states = [
        state("a", light("p", "a"), light("q", "a"), of=SMALL),
        state("b", light("r", "b"), of=SMALL),
    ]
    world = scene(*states, types=[SMALL])
    assert choose_multi_node(world).commands == []
    (command,) = choose_single_node(world).commands
    assert str(command) == "delete: [b]"


@pytest.mark.spec("disruption-102")
def test_the_same_type_filter_may_break_min_values() -> None:
    types = [machine(f"m{i}", 8, 2.0 + i / 10) for i in range(3)]
    wanted = requirement(labels.INSTANCE_TYPE, "In", *(t.name for t in types), min_values=2)
    states = [lonely("a", "3", of=types[1]), lonely("b", "3", of=types[1])]
    world = scene(*states, types=types, pools=[pool(requirements=[wanted])])
    assert choose_multi_node(world).commands == []
    (command,) = choose_single_node(world).commands
    assert (command.decision, len(command.candidates)) == ("delete", 1)


def test_a_replacement_must_beat_the_cheapest_of_its_own_kind_that_goes() -> None:
    huge, nano, xlarge = machine("2xlarge", 8, 4.0), machine("nano", 1, 0.5), machine("xlarge", 4, 2.0)
    types = [nano, SMALL, xlarge, huge]
    world = scene(lonely("a", of=huge), lonely("b", of=huge), lonely("c", of=SMALL), types=types)
    options = PlannedNode(
        name="x",
        pool="default",
        requirements=Requirements(),
        instance_types=("nano", "small", "xlarge", "2xlarge"),
        pods=(),
        requests={},
    )
    assert find_same_type_price(world, going(world), options) == 1.0


@pytest.mark.spec("disruption-103")
@pytest.mark.parametrize(("nodes", "count"), [("30%", 3), ("0%", 0)])
def test_many_nodes_are_no_more_than_the_budget(nodes: str, count: int) -> None:
    states = [lonely(f"n{i}", "100m") for i in range(10)]
    choice = choose_multi_node(scene(*states, types=[LARGE], pools=[pool(nodes=nodes)]))
    taken = [c.name for command in choice.commands for c in command.candidates]
    assert len(taken) == count
    assert choice.constrained


@pytest.mark.spec("disruption-103")
def test_each_pool_gives_no_more_than_its_own_budget() -> None:
    pools = [pool(f"p{i}", nodes="50%") for i in range(10)]
    states = [lonely(f"{p.name}-{i}", "100m", pool=p.name) for p in pools for i in range(3)]
    (command,) = choose_multi_node(scene(*states, types=[LARGE], pools=pools)).commands
    taken = [c.pool.name for c in command.candidates]
    assert [taken.count(p.name) for p in pools] == [2] * 10


@pytest.mark.spec("disruption-104")
def test_when_time_is_up_before_the_search_nothing_goes() -> None:
    states = [lonely(f"n{i}", "100m") for i in range(4)]
    choice = choose_multi_node(scene(*states, types=[LARGE]), should_stop=lambda: True)
    assert (choice.commands, choice.timed_out, choice.settled) == ([], True, False)


def test_what_was_found_before_time_was_up_is_kept() -> None:
    states = [lonely(f"n{i}", "100m") for i in range(8)]
    choice = choose_multi_node(scene(*states, types=[LARGE]), should_stop=after(1))
    assert choice.timed_out
    assert len(choice.commands[0].candidates) == 5


@pytest.mark.spec("disruption-105")
def test_a_search_that_a_budget_constrained_is_not_settled() -> None:
    full = [lonely(f"n{i}", "15") for i in range(4)]
    held = choose_multi_node(scene(*full, types=[LARGE], pools=[pool(nodes="2")]))
    assert (held.commands, held.settled) == ([], False)
    assert choose_multi_node(scene(*full, types=[LARGE])).settled


@pytest.mark.spec("disruption-106")
def test_a_search_does_not_end_at_a_hundred_nodes() -> None:
    states = [lonely(f"n{i:03d}", "10m") for i in range(130)]
    (command,) = choose_multi_node(scene(*states, types=[LARGE])).commands
    assert len(command.candidates) > 100


# One at a time


def three_pools() -> list[StateNode]:
    return [lonely(f"{p}-{i}", "15", pool=p) for p in ("x", "y", "z") for i in range(3)]


POOLS = [pool(name) for name in ("x", "y", "z")]


@pytest.mark.spec("disruption-107")
def test_pools_take_turns() -> None:
    found = interleave_pools(going(scene(*three_pools(), pools=POOLS)))
    pools = [candidate.pool.name for candidate in found]
    assert [set(pools[i : i + 3]) for i in (0, 3, 6)] == [{"x", "y", "z"}] * 3
    ratios = [candidate.ratio for candidate in found]
    assert ratios == sorted(ratios, reverse=True)


@pytest.mark.spec("disruption-108")
def test_a_pool_that_was_not_reached_comes_first() -> None:
    found = interleave_pools(going(scene(*three_pools(), pools=POOLS)), {"y"})
    assert [candidate.pool.name for candidate in found[::3]] == ["y"] * 3


@pytest.mark.spec("disruption-109")
def test_pools_not_reached_in_time_are_remembered_and_forgotten_when_reached() -> None:
    world = scene(*three_pools(), pools=POOLS, types=[LARGE])
    assert choose_single_node(world).unseen == frozenset()
    at_once = choose_single_node(world, should_stop=lambda: True)
    assert (at_once.unseen, at_once.timed_out) == (frozenset(("x", "y", "z")), True)
    assert len(choose_single_node(world, should_stop=after(2)).unseen) == 1


# Still right?


def decided(*states: StateNode, **about: Any) -> Command:
    (command,) = choose_single_node(scene(*states, **about)).commands
    return command


@pytest.mark.spec("disruption-95")
def test_a_pod_that_changes_what_would_be_bought_ends_the_command() -> None:
    command = decided(lonely("a"), types=[SMALL, MEDIUM, LARGE])
    assert isinstance(validate_command(scene(lonely("a")), command), Command)
    more = state("a", light("p-a", "a"), light("more", "a", "3"))
    assert validate_command(scene(more), command) == InvalidCommand(SCHEDULING, 1)


@pytest.mark.spec("disruption-96", "disruption-99")
def test_a_node_that_is_no_candidate_any_more_ends_the_command() -> None:
    hold = {labels.DO_NOT_DISRUPT: "true"}
    web = light("p-a", "a", labels={"app": "web"})
    deleting = decided(lonely("a", "1"), lonely("b", "2"), types=[LARGE])
    for command, types in ((decided(lonely("a")), [SMALL, LARGE]), (deleting, [LARGE])):
        name = command.candidates[0].name
        other = [lonely("b", "2")] if command.decision == "delete" else []
        assert name == "a"
        held = scene(state("a", light("p-a", "a", annotations=hold)), *other, types=types)
        assert validate_command(held, command) == InvalidCommand(CHURN, 1)
        assert validate_command(
            scene(state("a", web), *other, types=types, pdbs=[pdb()]), command
        ) == InvalidCommand(CHURN, 1)


@pytest.mark.spec("disruption-97", "disruption-99")
def test_budgets_nominations_and_lost_room_end_the_command() -> None:
    command = decided(lonely("a", "1"), lonely("b", "2"), types=[LARGE])
    shut = scene(lonely("a", "1"), lonely("b", "2"), types=[LARGE], pools=[pool(nodes="0")])
    assert validate_command(shut, command) == InvalidCommand(BUDGET, 1)
    wanted = scene(lonely("a", "1", nominated=True), lonely("b", "2"), types=[LARGE])
    assert validate_command(wanted, command) == InvalidCommand(BUDGET, 1)
    assert validate_candidates(wanted, command) == InvalidCommand(BUDGET, 1)
    full = scene(lonely("a", "1"), lonely("b", "15"), types=[LARGE])
    assert validate_command(full, command) == InvalidCommand(SCHEDULING, 1)
    gone = scene(lonely("b", "2"), types=[LARGE])
    assert validate_command(gone, command) == InvalidCommand(CHURN, 1)
    churned = scene(lonely("a", "1", consolidatable=False), lonely("b", "2"), types=[LARGE])
    assert validate_command(churned, command) == InvalidCommand(CHURN, 1)


def test_a_command_of_several_nodes_is_told_to_each_as_its_part() -> None:
    states = [lonely(n, "100m") for n in "abc"]
    (command,) = choose_multi_node(scene(*states, types=[LARGE])).commands
    assert command.method == MULTI
    first = command.candidates[0]
    count = len(command.candidates)
    assert (
        command.describe_for(first)
        == f"{command.decision}: [{first.name}] (part of {count}-node consolidation)"
    )
    assert names_of(command.candidates) == sorted(names_of(command.candidates))
