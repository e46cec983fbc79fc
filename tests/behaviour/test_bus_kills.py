"""kill -9 at any moment loses nothing: the real process, real HTTP, real signals."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dovetail.bus.generate import GeneratedFleet, generate_reclaim_storm
from support.router_kills import killed


@pytest.mark.spec("bus-L7")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_router_that_is_killed_loses_nothing_and_repeats_little(seed: int) -> None:
    fleet = GeneratedFleet.generate_fleet(8, 250, seed)
    # Their notice is long however slow this machine is: a short one would be broadcast.
    storm = list(
        generate_reclaim_storm(fleet, seed, within=2.0, start=datetime.now(UTC) + timedelta(minutes=10))
    )

    ended = asyncio.run(
        killed(
            fleet,
            storm,
            seed=seed,
            kills=2,
            within=300.0,
            maxUndeleted=12,  # of 1,000 events, as the 500 by default are of 40,000
            batch={"urgent": {"window": "100ms"}, "bulk": {"size": 200, "window": "200ms"}},
        )
    )

    assert (ended.events, ended.kills, ended.lost, ended.strays) == (1000, 2, 0, 0)
    assert ended.duplicates <= 0.05 * ended.events
