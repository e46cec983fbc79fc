"""A floor under the price of any fleet, and Karpenter's own order of placing as a choice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import compute_price_floor, solve
from support.peer_workloads import generated, snapshot_of


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
