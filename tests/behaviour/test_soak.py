"""Hours of churn in virtual time: nothing piles up, and nobody waits long."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from dovetail.sim.clock import VirtualClock
from dovetail.sim.world import World, relax_garbage_collector
from support.churn import Churn, Size, leftovers, resident_bytes
from support.cluster import in_virtual_time

# Long enough for events to reach their age and for every history to be full before the first look.
WARM_UP, MEASURED, HISTORY = 65 * 60, 25 * 60, 1000
SIZE = Size(nodes=15, deployments=4, replicas=15, per_second=1)


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """The collector as it was, for the tests after this one."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@in_virtual_time
async def test_an_hour_and_a_half_of_churn_leave_nothing_behind(frozen_heap: None) -> None:
    world = World(VirtualClock(), 3, history=HISTORY)
    churn = Churn(world, SIZE)
    async with world.running():
        await churn.fill()
        churn.more_kinds()
        watching = asyncio.create_task(churn.watch())
        await churn.run(WARM_UP)
        relax_garbage_collector()
        before, events = resident_bytes(), len(world.api.list("events"))
        churn.watched.worst = 0.0
        await churn.run(MEASURED)
        grown = resident_bytes() - before
        worst, seen = churn.watched.worst, churn.watched.seen
        await world.settle(120)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

        assert grown < 0.1 * before, f"{grown} bytes more than {before}"
        assert seen > MEASURED, "the watcher was kept busy"
        assert worst < 0.1, f"a watcher heard {worst:.3f} s late"
        assert leftovers(world) == {}
        assert abs(len(world.api.list("events")) - events) < 0.2 * events
        leases = world.api.list("leases.coordination.k8s.io", "kube-node-lease")
        assert len(leases) == len(world.api.list("nodes")) == SIZE.nodes
        running = [p for p in world.api.list("pods") if p["status"]["phase"] == "Running"]
        assert len(running) >= SIZE.deployments * SIZE.replicas
