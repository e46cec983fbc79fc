"""The simulated cluster: a busy hour in virtual time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.world import World
from support.churn import Churn, Size

from .registry import Figure, scenario

SAMPLE = 300


@scenario("cluster: a busy hour")
def busy_hour() -> Iterator[Figure]:
    """100 nodes, 3,000 pods, ten replaced each second; five minutes are measured and scaled to an hour."""

    async def story() -> tuple[float, float, int]:
        world = World(VirtualClock(), 1)
        churn = Churn(world, Size())
        async with world.running():
            begun = time.process_time()
            await churn.fill()
            filled = time.process_time()
            revision = world.server.store.revision
            await churn.run(SAMPLE)
            return filled - begun, time.process_time() - filled, world.server.store.revision - revision

    fill, churned, writes = run_virtual(story())
    yield Figure("start 100 nodes and 3,000 pods", fill, "s")
    yield Figure("one simulated hour", churned * 3600 / SAMPLE, "s", 30)
    yield Figure("per write, all included", churned / writes * 1e6, "µs")
