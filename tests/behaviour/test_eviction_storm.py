"""Fifty evictors, one budget: never more than one disruption in flight."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import cluster, condition, in_virtual_time, pods_of, workload


def evict(world: World, name: str) -> int:
    """Try once; what the server said."""
    try:
        world.api.evict(name, "default")
    except ApiError as error:
        return error.code
    return 201


def up(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not pod["metadata"].get("deletionTimestamp")


@in_virtual_time
async def test_a_storm_of_evictions_never_breaks_the_budget() -> None:
    async with cluster(10, cpu="64", pods="200") as world:
        world.api.create("deployments.apps", workload("web", 500))
        meta = {"name": "web", "namespace": "default"}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
        world.api.create("poddisruptionbudgets.policy", {"metadata": meta, "spec": spec})
        await world.settle(20)
        evicted, refused, worst = 0, 0, 0
        stop = world.clock.monotonic() + 60

        names = [p["metadata"]["name"] for p in pods_of(world, "web")]

        async def evictor(number: int) -> None:
            nonlocal evicted, refused
            while world.clock.monotonic() < stop:
                code = evict(world, names[(number * 7 + refused) % len(names)])
                evicted, refused = evicted + (code == 201), refused + (code == 429)
                await world.clock.sleep(0.5 + number / 100)

        async def guard() -> None:
            nonlocal worst
            while world.clock.monotonic() < stop:
                pods = pods_of(world, "web")
                worst = max(worst, 500 - sum(map(up, pods)))
                names[:] = [p["metadata"]["name"] for p in pods]
                await world.clock.sleep(0.5)

        async with asyncio.TaskGroup() as group:
            group.create_task(guard())
            for number in range(50):
                group.create_task(evictor(number))
        assert worst <= 1
        assert evicted > 15
        assert refused > evicted
