"""Balanced: a share of money saved against a share of peace disturbed."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption import policy
from dovetail.disruption.candidates import sort_by_ratio
from dovetail.disruption.command import MULTI, SINGLE, Command
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.policy import PoolTotals, can_approve, compute_score, compute_totals, score_command
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import node, owner, pod
from support.disruption import LARGE, SMALL, going, machine, names_of, pool, scene, state
from support.worlds import RESERVATION, Z1, Z2, instance_type, offering

BALANCED = pool(consolidation_policy="Balanced")
RS = owner("ReplicaSet")


def crowd(name: str, count: int, cpu: str = "100m", **about: Any) -> StateNode:
    return state(name, *(light(f"{name}-{i}", name, cpu) for i in range(count)), **about)


def light(name: str, on: str, cpu: str = "100m") -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=on, owned_by=RS)


@pytest.mark.parametrize(
    ("total", "saved", "cost", "value", "approved"),
    [
        (PoolTotals(58.08, 90), 7.26, 4, 2.81, True),
        (PoolTotals(58.08, 90), 4.84, 5, 1.50, True),
        (PoolTotals(58.08, 90), 2.42, 9, 0.42, False),
        (PoolTotals(58.08, 90), 0, 11, 0, False),
        (PoolTotals(48.40, 90), 2.42, 9, 0.50, True),
        (PoolTotals(58.08, 117), 4.84, 5, 1.95, True),
        (PoolTotals(58.08, 117), 4.84, 32, 0.31, False),
        (PoolTotals(580.80, 900), 7.26, 4, 2.81, True),
        (PoolTotals(3.0, 5.0), 3.0, 5.0, 1.0, True),
    ],
)
def test_the_worked_numbers(
    total: PoolTotals, saved: float, cost: float, value: float, approved: bool
) -> None:
    found = compute_score(saved, cost, total)
    assert found.value == pytest.approx(value, abs=0.006)
    assert found.approved is approved


def test_the_edges_of_a_score() -> None:
    assert compute_score(1.0, 1.0, None).value == 0.0
    assert compute_score(1.0, 1.0, PoolTotals(0.0, 1.0)).value == 0.0
    assert compute_score(1.0, 1.0, PoolTotals(1.0, 0.0)).value == 0.0
    assert compute_score(1.0, 0.0, PoolTotals(1.0, 1.0)).value == inf
    assert compute_score(-1.0, 1.0, PoolTotals(1.0, 1.0)).value == 0.0


@pytest.mark.spec("disruption-111")
def test_a_node_too_large_for_its_pod_is_replaced_and_the_score_is_told() -> None:
    choice = choose_single_node(scene(crowd("a", 1), pools=[BALANCED]))
    assert choice.commands[0].decision == "replace"
    (judgement,) = choice.judged
    text = str(judgement.scores["default"])
    assert ">= threshold 0.50" in text
    assert "(k: 2, savings 87.5%, disruption 100.0%)" in text


@pytest.mark.spec("disruption-112")
def test_a_cheap_full_node_stays_without_a_word() -> None:
    choice = choose_single_node(scene(crowd("a", 1, "1800m", of=SMALL), pools=[BALANCED]))
    assert (choice.commands, choice.judged) == ([], [])


@pytest.mark.spec("disruption-113")
def test_large_nodes_with_one_pod_each_go_together() -> None:
    states = [crowd(name, 1) for name in "abc"]
    choice = choose_multi_node(scene(*states, pools=[BALANCED]))
    assert len(choice.commands[0].candidates) >= 2
    assert len(choice.judged) == 1


@pytest.mark.spec("disruption-115")
def test_a_deletion_saves_everything_and_a_replacement_the_difference() -> None:
    both = scene(crowd("a", 1), crowd("b", 3), types=[LARGE], pools=[BALANCED])
    (command,) = choose_single_node(both).commands
    assert (str(command), command.savings) == ("delete: [a]", 8.0)
    (alone,) = choose_single_node(scene(crowd("a", 1), pools=[BALANCED])).commands
    assert (alone.decision, alone.savings) == ("replace", 7.0)


@pytest.mark.spec("disruption-116")
def test_the_best_bargain_goes_first() -> None:
    types = [machine("m16", 64, 16.0), machine("m8", 64, 8.0), machine("m1", 64, 1.2)]
    states = [crowd(t.name, n, of=t) for t, n in zip(types, (10, 1, 8), strict=True)]
    found = sort_by_ratio(going(scene(*states, types=types, pools=[BALANCED])))
    assert names_of(found) == ["m8", "m16", "m1"]


@pytest.mark.spec("disruption-117")
def test_only_pools_that_ask_for_it_are_scored() -> None:
    cheap = machine("cheap", 16, 7.9)
    states = [crowd("a", 1, pool="even", of=LARGE), crowd("b", 1, pool="plain", of=LARGE)]
    pools = [pool("even", consolidation_policy="Balanced"), pool("plain")]
    rule = {"even": [cheap, LARGE], "plain": [cheap, LARGE]}
    alone = choose_single_node(scene(states[0], pools=pools[:1], types=rule))
    assert alone.commands == []
    assert [j.approved for j in alone.judged] == [False]
    free = choose_single_node(scene(states[1], pools=pools[1:], types=rule))
    assert free.commands[0].decision == "replace"
    assert free.judged[0].scores == {}


def command_of(*states: StateNode, savings: float, **about: Any) -> tuple[Command, dict[str, PoolTotals]]:
    world = scene(*states, **about)
    found = going(world)
    return Command(MULTI, tuple(found), savings=savings), compute_totals(world, found)


@pytest.mark.spec("disruption-118")
def test_what_cannot_be_scored_is_rejected_and_what_need_not_be_is_approved() -> None:
    command, _ = command_of(crowd("a", 1), savings=8.0, pools=[BALANCED])
    missing = score_command(command, {})
    assert (missing.approved, missing.scores["default"].value) == (False, 0.0)
    assert not score_command(Command(SINGLE, ()), {}).approved
    plain, known = command_of(crowd("a", 1), savings=8.0)
    verdict = score_command(plain, known)
    assert (verdict.approved, verdict.scores) == (True, {})


@pytest.mark.spec("disruption-119")
def test_one_of_ten_equal_nodes_scores_one() -> None:
    world = scene(*(crowd(f"n{i}", 1) for i in range(10)), pools=[BALANCED])
    found = going(world)
    verdict = score_command(Command(SINGLE, (found[0],), savings=8.0), compute_totals(world, found))
    assert verdict.approved
    assert verdict.scores["default"].value == pytest.approx(1.0)
    pools = [pool("even", consolidation_policy="Balanced"), pool("plain")]
    command, known = command_of(
        crowd("a", 1, pool="even"), crowd("b", 1, pool="plain"), savings=16.0, pools=pools
    )
    assert score_command(command, known).scores["even"].value == pytest.approx(1.0)


@pytest.mark.spec("disruption-120")
def test_every_balanced_pool_has_its_say_even_if_one_rejects() -> None:
    pools = [pool(name, consolidation_policy="Balanced") for name in ("x", "y")]
    states = [crowd("a", 1, pool="x"), crowd("b", 40, pool="y", of=machine("big", 64, 1.0))]
    command, _ = command_of(*states, savings=4.0, pools=pools, types=[LARGE, machine("big", 64, 1.0)])
    verdict = score_command(command, {"x": PoolTotals(8.0, 2.0), "y": PoolTotals(100.0, 41.0)})
    assert set(verdict.scores) == {"x", "y"}
    assert not verdict.approved
    assert not verdict.scores["y"].approved


@pytest.mark.spec("disruption-121")
def test_a_node_without_a_price_adds_to_the_disruption_only() -> None:
    unknown = crowd("b", 1, labels={labels.INSTANCE_TYPE: "gone"})
    world = scene(crowd("a", 1), unknown, pools=[BALANCED])
    assert compute_totals(world, going(world)) == {"default": PoolTotals(8.0, 4.0)}


@pytest.mark.spec("disruption-122")
def test_savings_of_an_on_demand_pool_ignore_spot() -> None:
    mine = instance_type("mine", 16, "32Gi", 110, offerings=[offering(Z1, "on-demand", 0.5)])
    deals = [offering(Z1, "on-demand", 0.4), offering(Z1, "spot", 0.1)]
    other = instance_type("other", 16, "32Gi", 110, offerings=deals)
    od = pool(consolidation_policy="Balanced", requirements=[(labels.CAPACITY_TYPE, "In", "on-demand")])
    tiny = machine("tiny", 2, 0.3)
    states = [crowd("a", 1, "3", of=mine), crowd("b", 1, "1800m", of=tiny, consolidatable=False)]
    found = choose_single_node(scene(*states, types=[tiny, mine, other], pools=[od]))
    (judgement,) = found.judged
    assert judgement.command.savings == pytest.approx(0.1)
    assert judgement.scores["default"].value == pytest.approx(0.25)
    assert not judgement.approved
    assert found.commands == []


def test_nodes_that_are_no_candidates_count_in_the_price_and_the_disruption() -> None:
    held = crowd("b", 4, marked=True)
    nobodys = StateNode(node=node("c", nodepool=""))
    world = scene(crowd("a", 1), held, nobodys, pools=[BALANCED])
    assert compute_totals(world, going(world)) == {"default": PoolTotals(8.0 + 8.0, 2.0 + 5.0)}


def test_a_node_whose_deletion_would_not_pass_is_not_simulated() -> None:
    cheap = machine("cheap", 64, 0.1)
    states = [crowd("a", 30, of=cheap), crowd("b", 1)]
    world = scene(*states, types=[cheap, LARGE], pools=[BALANCED])
    found = {c.name: c for c in going(world)}
    known = compute_totals(world, list(found.values()))
    assert (can_approve(found["a"], known), can_approve(found["b"], known)) == (False, True)
    assert can_approve(found["a"], {})
    assert policy.THRESHOLD == 0.5


@pytest.mark.parametrize(
    ("kind", "said", "paid"),
    [
        ("on-demand", {}, 1.0),
        ("on-demand", {labels.INSTANCE_TYPE: "b"}, 8.0),
        ("on-demand", {labels.ZONE: Z2}, 2.0),
        ("on-demand", {labels.CAPACITY_TYPE: "spot"}, 4.0),
        ("reserved", {RESERVATION: "r2"}, 0.5),
    ],
)
def test_what_a_pool_pays_goes_by_the_labels_of_claims(kind: str, said: dict[str, str], paid: float) -> None:
    sold = [offering(Z1, "on-demand", 1.0), offering(Z2, "on-demand", 2.0), offering(Z1, "spot", 4.0)]
    reserved = [offering(Z1, "reserved", price, reservation=f"r{i}") for i, price in ((1, 0.25), (2, 0.5))]
    types = [
        instance_type("a", offerings=[*sold, *reserved]),
        instance_type("b", offerings=[offering(Z1, "on-demand", 8.0)]),
    ]
    mine = {RESERVATION: "r1"} if kind == "reserved" else {}
    each = crowd("a", 1, of=types[0], kind=kind, labels=mine)
    assert each.claim is not None
    claimed = replace(each.claim.metadata, labels={**each.claim.labels, **said})
    world = scene(replace(each, claim=replace(each.claim, metadata=claimed)), pools=[BALANCED], types=types)
    assert compute_totals(world, going(world))["default"].cost == paid
