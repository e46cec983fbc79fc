"""Some nodes for several cheaper ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.command import MANY
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.validate import BUDGET, SCHEDULING, InvalidCommand, validate_command
from dovetail.scheduling import solve
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from support.builders import NOW, owner, pod
from support.disruption import LARGE, MEDIUM, SMALL, machine, pool, scene, state
from support.disruption_policies import asking
from support.worlds import apart

RS = owner("ReplicaSet")
# Half a large one costs far more than half of its price: small ones are the better deal.
HUGE = machine("huge", 64, 40.0)


def light(name: str, node: str, cpu: str = "1", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS, **about)


MANYFOLD = asking(pool(), consolidation="many")


def test_a_big_node_is_split_into_small_ones() -> None:
    """Six pods of 3 cpu: no one node that holds them is cheaper than huge, and three medium ones are."""
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    world = scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM], pools=[MANYFOLD])
    assert choose_single_node(world).commands == []
    (command,) = choose_split(world).commands
    assert (command.method, command.decision) == (MANY, "replace")
    assert [node.instance_type for node in command.replacements] == ["medium"] * 5
    assert command.savings == pytest.approx(30.0)
    assert command.evictions == 5
    assert command.payback == pytest.approx(10 * 0.1 / 30)
    assert str(command) == "replace: [n] -> [5 replacements]"


def test_small_nodes_are_merged_into_few() -> None:
    """Eight nodes of which no one can go alone and no one node holds all: two cheaper ones do."""
    dear = machine("dear", 4, 5.0)
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear) for i in range(8)]
    world = scene(*nodes, types=[dear, LARGE], pools=[MANYFOLD])
    assert choose_single_node(world).commands == []
    (fewer,) = choose_multi_node(world).commands
    assert len(fewer.candidates) == 4
    (command,) = choose_split(world).commands
    assert len(command.candidates) == 8
    assert [node.instance_type for node in command.replacements] == ["large", "large"]
    assert command.savings == pytest.approx(8 * 5.0 - 2 * 8.0)
    assert command.savings > fewer.savings


def test_only_pools_that_ask_for_it_are_looked_at() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    nodes = state("n", *pods, of=HUGE)
    assert choose_split(scene(nodes, types=[HUGE, MEDIUM])).commands == []
    assert choose_split(scene(nodes, types=[HUGE, MEDIUM], pools=[MANYFOLD])).commands


def test_a_node_that_would_be_bought_again_stays() -> None:
    dear = machine("dear", 4, 5.0)
    nodes = [state("good", light("g", "good", "3.5"), of=MEDIUM)]
    nodes += [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear) for i in range(2)]
    (command,) = choose_split(scene(*nodes, types=[dear, MEDIUM], pools=[MANYFOLD])).commands
    assert "good" not in [candidate.name for candidate in command.candidates]


def test_nothing_is_done_where_nothing_is_saved() -> None:
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "15")) for i in range(4)]
    assert choose_split(scene(*nodes, pools=[MANYFOLD])).commands == []


def test_budgets_bound_what_goes_at_once() -> None:
    dear = machine("dear", 4, 5.0)
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear) for i in range(8)]
    few = asking(pool(nodes="4"), consolidation="many")
    (command,) = choose_split(scene(*nodes, types=[dear, LARGE], pools=[few])).commands
    assert len(command.candidates) == 4
    none = asking(pool(nodes="0"), consolidation="many")
    assert choose_split(scene(*nodes, types=[dear, LARGE], pools=[none])).commands == []


def test_the_price_of_every_type_that_may_be_launched_is_covered() -> None:
    """However the launches go, all together cost less than what goes."""
    dear = machine("dear", 4, 5.0)
    options = [machine(f"big{i}", 16, 8.0 + i) for i in range(12)]
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear) for i in range(8)]
    (command,) = choose_split(scene(*nodes, types=[dear, *options], pools=[MANYFOLD])).commands
    prices = {each.name: each.offerings[0].price for each in (dear, *options)}
    worst = sum(max(prices[name] for name in node.instance_types) for node in command.replacements)
    assert all(len(node.instance_types) > 1 for node in command.replacements)
    assert worst <= command.cost


def test_spot_is_exchanged_for_spot_only_where_the_gate_is_open() -> None:
    kinds = ("spot",)
    dear, big = machine("dear", 4, 5.0, kinds), machine("big", 16, 8.0, kinds)
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear, kind="spot") for i in range(8)]
    shut = scene(*nodes, types=[dear, big], pools=[MANYFOLD])
    assert choose_split(shut).commands == []
    (command,) = choose_split(scene(*nodes, types=[dear, big], pools=[MANYFOLD], spot_to_spot=True)).commands
    assert all(node.requirements[labels.CAPACITY_TYPE].names == {"spot"} for node in command.replacements)


def test_pods_that_keep_apart_get_nodes_of_their_own() -> None:
    lonely = {"labels": {"app": "a"}, "affinity": apart(labels.HOSTNAME, app="a")}
    pods = [light("p", "n", "1.5", **lonely), *(light(f"q{i}", "n", "1.5") for i in range(3))]
    world = scene(state("n", *pods, of=HUGE), types=[HUGE, SMALL], pools=[MANYFOLD])
    (command,) = choose_split(world).commands
    placed = [name for node in command.replacements for name in node.pods]
    assert sorted(placed) == sorted(each.full_name for each in pods)


def test_pods_that_wait_are_left_to_provisioning() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    waiting = pod("w", cpu="3", memory="10Mi")
    world = scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM], pools=[MANYFOLD], pending=[waiting])
    for command in choose_split(world).commands:
        assert "default/w" not in [name for node in command.replacements for name in node.pods]


def test_it_is_validated_as_the_others_are() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    node = state("n", *pods, of=HUGE)
    world = scene(node, types=[HUGE, MEDIUM], pools=[MANYFOLD])
    (command,) = choose_split(world).commands
    assert validate_command(world, command) == command
    more = scene(state("n", *pods, light("new", "n", "3.5"), of=HUGE), types=[HUGE, MEDIUM], pools=[MANYFOLD])
    assert validate_command(more, command) == InvalidCommand(SCHEDULING, 1)
    shut = asking(pool(nodes="0"), consolidation="many")
    assert validate_command(scene(node, types=[HUGE, MEDIUM], pools=[shut]), command) == InvalidCommand(
        BUDGET, 1
    )


def test_it_is_given_up_when_it_saves_less_than_it_did() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    (command,) = choose_split(
        scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM], pools=[MANYFOLD])
    ).commands
    dearer = scene(state("n", *pods, of=HUGE), types=[HUGE, machine("medium", 4, 3.0)], pools=[MANYFOLD])
    assert choose_split(dearer).commands, "it would still pay"
    assert validate_command(dearer, command) == InvalidCommand(SCHEDULING, 1)


def test_it_is_given_up_when_other_machines_would_be_bought() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    (command,) = choose_split(
        scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM], pools=[MANYFOLD])
    ).commands
    other = scene(state("n", *pods, of=HUGE), types=[HUGE, machine("other", 4, 1.0)], pools=[MANYFOLD])
    assert choose_split(other).commands[0].savings > command.savings
    assert validate_command(other, command) == InvalidCommand(SCHEDULING, 1)


def test_an_exchange_for_several_that_only_pays_if_the_scheduler_follows_the_plan_is_left() -> None:
    """Three small pods were to share a node; the scheduler spreads them, and the large one is left over."""
    old = machine("old", 8, 4.5)
    cpus = ["1300m", "1300m", "1300m", "1500m", "2400m"]
    pods = [light(f"p{i}", "n", cpu) for i, cpu in enumerate(cpus)]
    world = scene(state("n", *pods, of=old), types=[old, MEDIUM], pools=[MANYFOLD])
    choice = choose_split(world)
    assert choice.commands == []
    even = [light(f"p{i}", "n", "1900m") for i in range(4)]
    (command,) = choose_split(
        scene(state("n", *even, of=old), types=[old, MEDIUM], pools=[MANYFOLD])
    ).commands
    assert [node.instance_type for node in command.replacements] == ["medium", "medium"]


def test_young_nodes_and_such_as_are_not_ready_take_no_pods() -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    slow = asking(pool(consolidate_after="1h"), consolidation="many")
    settled = state("n", *pods, of=HUGE)
    assert settled.claim is not None
    event = replace(settled.claim.status, last_pod_event_time=NOW - timedelta(hours=2))
    settled = replace(settled, claim=replace(settled.claim, status=event))
    for other in (state("young", of=LARGE), state("late", of=LARGE, initialized=False)):
        (command,) = choose_split(scene(settled, other, types=[HUGE, MEDIUM], pools=[slow])).commands
        assert command.plan is not None
        assert not any(command.plan.existing.values())


def plans_made(monkeypatch: pytest.MonkeyPatch) -> list[solve.Effort]:
    made: list[solve.Effort] = []
    real = solve.find_cheapest_plan

    def noted(snapshot: Snapshot, effort: solve.Effort = solve.THOROUGH, *, cache: DecisionCache) -> Plan:
        made.append(effort)
        return real(snapshot, effort, cache=cache)

    monkeypatch.setattr(solve, "find_cheapest_plan", noted)
    return made


def test_where_nothing_can_come_of_it_nothing_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plans_made(monkeypatch)
    kinds = ("spot",)
    dear, big = machine("dear", 4, 5.0, kinds), machine("big", 16, 8.0, kinds)
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "3.5"), of=dear, kind="spot") for i in range(8)]
    choose_split(scene(*nodes, types=[dear, big], pools=[MANYFOLD]))
    assert made == []
    # With the gate open none of the eight is looked at alone: two types are too few to choose from.
    choose_split(scene(*nodes, types=[dear, big], pools=[MANYFOLD], spot_to_spot=True))
    assert made == [solve.QUICK, solve.THOROUGH] * 3


def test_a_thorough_plan_is_made_only_where_a_quick_one_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plans_made(monkeypatch)
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "15")) for i in range(4)]
    assert choose_split(scene(*nodes, pools=[MANYFOLD])).commands == []
    assert made
    assert set(made) == {solve.QUICK}
