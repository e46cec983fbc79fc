"""The interruption bus killed at random moments (L7): the real process over HTTP, twenty runs.

`DOVETAIL_BENCH_STORM=10000` makes each run the whole storm of 40,000 events in a minute; without it, a
quarter of it, at the same rate.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime

from dovetail.bus.generate import GeneratedFleet, generate_reclaim_storm

from .registry import Figure, scenario

RUNS = int(os.environ.get("DOVETAIL_BENCH_KILL_RUNS", "20"))
INSTANCES = int(os.environ.get("DOVETAIL_BENCH_STORM", "2500"))
RATE = 40_000 / 60


@scenario("bus: kill -9 at random moments of a storm (L7)")
def the_kills() -> Iterator[Figure]:
    from support.router_kills import Killed, killed

    def run(seed: int) -> Killed:
        fleet = GeneratedFleet.generate_fleet(200, INSTANCES, seed)
        within = 4 * INSTANCES / RATE
        storm = list(generate_reclaim_storm(fleet, seed, within=within, start=datetime.now(UTC)))
        return asyncio.run(killed(fleet, storm, seed=seed, kills=1, within=600.0))

    runs = [run(seed) for seed in range(RUNS)]
    events = sum(each.events for each in runs)
    yield Figure("runs", len(runs), "")
    yield Figure("kills", sum(each.kills for each in runs), "")
    yield Figure("events", events, "")
    yield Figure("events lost", sum(each.lost for each in runs), "", 0)
    yield Figure("delivered twice", 100 * sum(each.duplicates for each in runs) / events, "%", 5)
