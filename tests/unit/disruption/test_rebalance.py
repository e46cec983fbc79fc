"""After a zone was away: moves towards balance, one at a time, that cost nothing and come to an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.disruption.command import REBALANCE, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.rebalance import choose_rebalance
from dovetail.disruption.validate import InvalidCommand, validate_command
from dovetail.scheduling.model.requirements import Values
from support.builders import owner, pod
from support.disruption import pool, scene, state
from support.worlds import instance_type, offering

A, B, C = "test-zone-a", "test-zone-b", "test-zone-c"
RS = owner("ReplicaSet")


def machine(price_in_a: float = 2.0, kind: str = "on-demand") -> Any:
    prices = {A: price_in_a, B: 2.0, C: 2.0}
    sold = [offering(zone, kind, price) for zone, price in prices.items()]
    return instance_type("medium", 4, "32Gi", 110, offerings=sold)


def world(a: int, b: int, c: int, *, of: Any = None, **about: Any) -> DisruptionInput:
    """So many nodes in each zone, each with a pod that fills it."""
    sold = of or machine()
    kind = sold.offerings[0].capacity_type
    pod_about = about.pop("pod", {})
    states = [
        state(
            f"{zone[-1]}{n}",
            pod(f"{zone[-1]}{n}", cpu="3", node=f"{zone[-1]}{n}", owned_by=RS, **pod_about),
            of=sold,
            zone=zone,
            kind=kind,
        )
        for zone, count in ((A, a), (B, b), (C, c))
        for n in range(count)
    ]
    return scene(*states, types=(sold,), **about)


BACK = frozenset((A,))


def found(of: DisruptionInput, returned: frozenset[str] = BACK) -> Command | None:
    commands = choose_rebalance(replace(of, returned_zones=returned)).commands
    assert len(commands) <= 1
    return commands[0] if commands else None


def test_a_node_of_the_fullest_zone_is_replaced_in_the_zone_that_is_back() -> None:
    command = found(world(0, 4, 2))
    assert command is not None
    assert (command.method, command.candidates[0].zone, command.savings) == (REBALANCE, B, 0.0)
    (node,) = command.replacements
    assert node.zone == A
    assert node.requirements[labels.ZONE] == Values(frozenset((A,)))


@pytest.mark.parametrize("counts", [(2, 3, 3), (3, 3, 3), (4, 2, 2)])
def test_zones_that_differ_by_one_are_even_enough(counts: tuple[int, int, int]) -> None:
    assert found(world(*counts)) is None


def test_without_a_zone_that_is_back_nothing_is_moved() -> None:
    assert found(world(0, 5, 2), frozenset()) is None
    away = DisruptionInput(world(0, 5, 2).snapshot, excluded_zones=frozenset((A,)))
    assert found(away) is None, "it is away again"


def test_moves_come_to_an_end_with_zones_that_differ_by_one_at_most() -> None:
    counts = {A: 0, B: 7, C: 4}
    moves = 0
    while (command := found(world(counts[A], counts[B], counts[C]))) is not None:
        counts[command.candidates[0].zone] -= 1
        counts[command.replacements[0].zone] += 1
        moves += 1
        assert moves < 10
    # Only the zone that is back is filled; the others are not evened out between themselves.
    assert max(counts.values()) - counts[A] <= 1


def test_balance_is_not_paid_for() -> None:
    assert found(world(0, 4, 2, of=machine(price_in_a=2.5))) is None
    cheaper = found(world(0, 4, 2, of=machine(price_in_a=1.5)))
    assert cheaper is not None
    assert cheaper.savings == 0.5


def test_a_budget_that_allows_nothing_holds_balance_too() -> None:
    held = world(0, 4, 2, pools=[pool(nodes="0")])
    choice = choose_rebalance(replace(held, returned_zones=BACK))
    assert (choice.commands, choice.constrained) == ([], True)


def test_pods_that_cannot_go_there_stay() -> None:
    assert found(world(0, 4, 2, pod={"node_selector": {labels.ZONE: B}})) is None


def test_a_pool_that_does_not_want_consolidation_is_left_alone() -> None:
    assert found(world(0, 4, 2, pools=[pool(consolidation_policy="WhenEmpty")])) is None


def test_spot_nodes_are_moved_only_where_spot_may_replace_spot() -> None:
    assert found(world(0, 4, 2, of=machine(kind="spot"))) is None


def test_a_while_later_the_move_is_asked_about_again() -> None:
    before = world(0, 4, 2)
    command = found(before)
    assert command is not None
    again = validate_command(before, command)
    assert isinstance(again, Command)
    assert again.replacements[0].zone == A
    evened = validate_command(world(3, 4, 2), command)
    assert isinstance(evened, InvalidCommand), "somebody filled the zone meanwhile"
    gone = validate_command(DisruptionInput(before.snapshot, excluded_zones=frozenset((A,))), command)
    assert isinstance(gone, InvalidCommand), "the zone is away again"


def test_a_node_whose_zone_was_shifted_away_meanwhile_is_no_candidate_any_more() -> None:
    before = world(0, 4, 2)
    command = found(before)
    assert command is not None
    assert isinstance(
        validate_command(DisruptionInput(before.snapshot, excluded_zones=frozenset((B,))), command),
        InvalidCommand,
    )
