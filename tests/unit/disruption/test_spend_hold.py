"""Drift and consolidation under spend limits."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_single_node
from dovetail.disruption.methods.drift import choose_drift
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.spend_caps import SpendCap
from support.builders import NOW, pod
from support.disruption import machine, pool, scene, state

OLD, SAME, DEAR, CHEAP = (
    machine("old", 4, 2.0),
    machine("same", 4, 2.0),
    machine("dear", 4, 3.0),
    machine("cheap", 4, 1.0),
)


def capped(
    inputs: DisruptionInput, hourly: float, overlap: float = 0.0, *, warn: bool = False
) -> DisruptionInput:
    cap = SpendCap(limit="development", every=True, hourly=hourly, overlap=overlap, warn=warn)
    return dataclasses.replace(inputs, spend_caps=(cap,))


def drifted(*types: InstanceType) -> DisruptionInput:
    """One node that drifted and has a pod; its like is sold out, so that another type is bought."""
    sold_out = replace(OLD, offerings=tuple(replace(each, available=False) for each in OLD.offerings))
    node = state("a", pod("web", cpu="3", node="a"), of=OLD, drifted=NOW)
    return scene(node, types=(sold_out, *types))


def reasons(choice: DisruptionChoice) -> set[BlockedReason]:
    return {each.blocked_reason for each in choice.blocked}


@pytest.mark.spec("SL-5")
def test_at_its_limit_a_pool_drifts_where_the_new_node_costs_no_more() -> None:
    assert len(choose_drift(capped(drifted(SAME), 2.0)).commands) == 1
    assert len(choose_drift(capped(drifted(CHEAP), 2.0)).commands) == 1


@pytest.mark.spec("SL-5")
def test_a_dearer_replacement_holds_the_drift_of_its_node_and_says_why() -> None:
    assert len(choose_drift(drifted(DEAR)).commands) == 1
    choice = choose_drift(capped(drifted(DEAR), 2.0))
    assert choice.commands == []
    assert reasons(choice) == {BlockedReason.SPEND}
    (blocked,) = (each for each in choice.blocked if each.blocked_reason is BlockedReason.SPEND)
    assert "SpendLimit development allows $2.00 an hour" in blocked.why
    assert "$3.00 too much" in blocked.why


@pytest.mark.spec("SL-5")
def test_an_overlap_lets_a_dearer_replacement_stand_beside_what_it_replaces() -> None:
    assert len(choose_drift(capped(drifted(DEAR), 4.9, 0.0)).commands) == 0
    assert len(choose_drift(capped(drifted(DEAR), 4.9, 0.1)).commands) == 1
    assert len(choose_drift(capped(drifted(DEAR), 2.0, 0.0, warn=True)).commands) == 1


@pytest.mark.spec("SL-5")
def test_a_replacement_lists_no_type_that_is_dearer_than_what_it_replaces_where_that_makes_it_fit() -> None:
    (command,) = choose_drift(capped(drifted(CHEAP, SAME, DEAR), 2.0)).commands
    assert command.replacements[0].instance_types == ("cheap", "same")
    (wide,) = choose_drift(capped(drifted(CHEAP, SAME, DEAR), 90.0)).commands
    assert wide.replacements[0].instance_types == ("cheap", "same", "dear")


@pytest.mark.spec("SL-5")
def test_a_pool_at_its_limit_still_consolidates() -> None:
    inputs = scene(state("a", pod("web", cpu="3", node="a"), of=OLD), pools=(pool(),), types=(OLD, CHEAP))
    free = choose_single_node(inputs)
    held = choose_single_node(capped(inputs, 0.5))
    assert len(free.commands) == len(held.commands) == 1
