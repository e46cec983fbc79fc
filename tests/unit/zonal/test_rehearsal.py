"""What losing a zone would mean, from a snapshot alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.errors import BadInput
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.zonal.model.rehearsal import find_zone_name, rehearse, remove_zone
from support.builders import owner, pod
from support.disruption import pdb, scene, state
from support.worlds import instance_type, offering

A, B = "test-zone-a", "test-zone-b"
SOLD = instance_type(
    "medium", 4, "32Gi", 110, offerings=[offering(zone, "on-demand", 2.0) for zone in (A, B)]
)


def world_of(pods_in: Mapping[str, int], *, pinned: bool = False, allowed: int = 9) -> Snapshot:
    """Full nodes in each zone; their pods are free to go, or bound to their zone."""
    states = []
    for zone, count in pods_in.items():
        selector: dict[str, Any] = {"node_selector": {labels.ZONE: zone}} if pinned else {}
        mine = [
            pod(
                f"{zone[-1]}{n}",
                cpu="3",
                node="x",
                labels={"app": "web"},
                owned_by=owner("ReplicaSet", zone),
                **selector,
            )
            for n in range(count)
        ]
        states += [state(f"node-{each.name}", each, of=SOLD, zone=zone) for each in mine]
    return scene(*states, types=(SOLD,), pdbs=[pdb(allowed=allowed)]).snapshot


def test_pods_of_the_zone_find_a_home_elsewhere_at_a_price() -> None:
    found = rehearse(world_of({A: 4, B: 1}), A)
    assert (found.nodes, found.pods, found.passed, found.readiness) == (4, 4, True, 1.0)
    assert (found.new_nodes, found.price) == (4, 8.0)
    assert found.minutes > 0


def test_pods_bound_to_the_zone_are_homeless_and_it_fails() -> None:
    found = rehearse(world_of({A: 4, B: 1}, pinned=True), A)
    assert (found.passed, len(found.homeless), found.readiness) == (False, 4, 0.0)
    assert all(found.homeless.values())


def test_budgets_that_break_and_workloads_in_one_place_are_named() -> None:
    found = rehearse(world_of({A: 4, B: 1}, allowed=1), A)
    assert found.budgets == ("default/pdb",)
    assert found.concentrated == (f"ReplicaSet/default/{A}",)


def test_an_empty_zone_is_no_loss() -> None:
    found = rehearse(world_of({B: 2}), A)
    assert (found.pods, found.new_nodes, found.readiness) == (0, 0, 1.0)


def test_a_zone_nobody_knows_is_told_with_those_there_are() -> None:
    world = world_of({A: 1, B: 1})
    assert find_zone_name(world, A) == A
    with pytest.raises(BadInput, match=f"there are {A}"):
        find_zone_name(world, "mars1-az1")


def test_nothing_is_for_sale_in_the_zone_any_more() -> None:
    world = remove_zone(world_of({A: 1, B: 1}), A)
    left = {
        each.zone for types in world.catalogs for one in types for each in one.offerings if each.available
    }
    assert left == {B}
    assert [state.node.labels[labels.ZONE] for state in world.nodes if state.node] == [B]
