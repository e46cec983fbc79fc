"""A cap on how much one new node may hold, for those who would rather lose less at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import solve
from support.peer_workloads import generated, snapshot_of


@pytest.mark.parametrize("most", [1, 7])
def test_no_new_node_is_planned_larger_than_the_cap(most: int) -> None:
    snapshot = snapshot_of(generated("mix", 100))
    capped = replace(snapshot, options=replace(snapshot.options, most_pods=most))
    for plan in (solve(capped), schedule_pods(capped)):
        assert not plan.unschedulable
        assert max(len(node.pods) for node in plan.new_nodes) <= most


def test_without_a_cap_nodes_are_as_large_as_is_cheapest() -> None:
    plan = solve(snapshot_of(generated("mix", 100)))
    assert max(len(node.pods) for node in plan.new_nodes) > 7
