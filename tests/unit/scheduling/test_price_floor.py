"""A floor under the price of any fleet, and Karpenter's own order of placing as a choice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import compute_price_floor, solve
from support.builders import pod
from support.peer_workloads import generated, snapshot_of
from support.worlds import Z1, Z2, World, instance_type, node_affinity, offering


@pytest.mark.parametrize("family", ["mix", "web", "diverse"])
def test_no_plan_is_cheaper_than_the_floor(family: str) -> None:
    snapshot = snapshot_of(generated(family, 60))

    floor = compute_price_floor(snapshot)

    assert 0 < floor <= solve(snapshot).price + 1e-9
    assert floor == pytest.approx(solve(snapshot).bound)


def test_one_by_one_gives_the_plan_of_the_exact_placer() -> None:
    snapshot = snapshot_of(generated("mix", 60))
    plain = replace(snapshot, options=replace(snapshot.options, one_by_one=True))

    assert solve(plain) == schedule_pods(plain)
    assert solve(plain).price >= solve(snapshot).price


@pytest.mark.parametrize("wishes", [1, 2], ids=["some pods have wishes", "all pods have wishes"])
def test_a_floor_by_hard_rules_asks_for_no_wishes(wishes: int) -> None:
    """Wishes for a dear zone make a plan dearer, and not the floor under what nobody could do without."""
    dear = node_affinity(preferred=[(1, [(names.ZONE, "In", Z2)])])
    deals = [offering(Z1, "on-demand", 1.0), offering(Z2, "on-demand", 3.0)]
    pods = [pod(f"p{i}", cpu="3", affinity=dear if i < wishes else None) for i in range(2)]
    plan = solve(World(types=[instance_type("t", 4, offerings=deals)]).snapshot(*pods))

    assert plan.bound == pytest.approx(2.0)
    assert plan.bound <= plan.bound_as_asked <= plan.price == pytest.approx(2.0 + 2.0 * wishes)
