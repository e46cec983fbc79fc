"""The simulated cluster: a busy hour in virtual time, and what the API server carries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from dovetail.runtime.clock import SystemClock
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.world import World
from support.churn import Churn, Size
from support.cluster import pod

from .registry import Figure, scenario

MANY = 20_000
WATCHERS = 20
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


def _body(number: int) -> dict[str, Any]:
    return pod(f"pod-{number:05d}", {"cpu": "100m", "memory": "128Mi"}, labels={"app": f"app-{number % 100}"})


@scenario("apiserver: 20,000 pods in process")
def creates() -> Iterator[Figure]:
    async def story() -> tuple[float, int]:
        server = ApiServer(VirtualClock(), random.Random(1))
        api = server.local("bench")
        watches = [api.watch("pods", resource_version="0") for _ in range(WATCHERS)]
        heard = 0
        begun = time.process_time()
        for number in range(MANY):
            api.create("pods", _body(number))
            if number % 100 == 99:
                heard += sum(len(watch.drain()) for watch in watches)
        return time.process_time() - begun, heard

    spent, heard = run_virtual(story())
    assert heard == MANY * WATCHERS, heard
    yield Figure("create 20,000 pods before 20 watchers", spent, "s", 20)
    yield Figure("creates each second", MANY / spent, "/s", 1000, more_is_better=True)


@asynccontextmanager
async def _serving(pods: int) -> AsyncIterator[tuple[ApiServer, str, aiohttp.ClientSession]]:
    server = ApiServer(SystemClock(), random.Random(1))
    api = server.local("bench")
    for number in range(pods):
        api.create("pods", _body(number))
    async with server.serve() as running, aiohttp.ClientSession() as session:
        yield server, running.url, session


@scenario("apiserver: lists and watches over HTTP")
def over_http() -> Iterator[Figure]:
    listed, size = asyncio.run(_listed())
    yield Figure("list 20,000 pods, read to the end", listed, "s", 2)
    yield Figure("size of that list", size / 1e6, "MB")
    yield Figure(
        "events to 20 watchers each second", asyncio.run(_fanned_out()), "/s", 5000, more_is_better=True
    )


async def _listed() -> tuple[float, int]:
    async with _serving(MANY) as (_, url, session):
        best, size = float("inf"), 0
        for _ in range(3):
            begun = time.process_time()
            async with session.get(f"{url}/api/v1/pods") as reply:
                size = len(await reply.read())
            best = min(best, time.process_time() - begun)
        return best, size


async def _fanned_out(changes: int = 1000) -> float:
    async with _serving(100) as (server, url, session):
        api = server.local("bench")

        async def follow() -> int:
            seen = 0
            query = {"watch": "true", "resourceVersion": str(server.store.revision)}
            async with session.get(f"{url}/api/v1/pods", params=query) as reply:
                async for _ in reply.content:
                    seen += 1
                    if seen == changes:
                        break
            return seen

        async def connected() -> None:
            # The server tells nobody who connects.
            while len(server.store.bucket("pods").listeners) < WATCHERS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        followers = [asyncio.create_task(follow()) for _ in range(WATCHERS)]
        await connected()
        begun = time.process_time()
        for number in range(changes):
            api.patch(
                "pods", f"pod-{number % 100:05d}", {"metadata": {"labels": {"n": str(number)}}}, "default"
            )
            if number % 20 == 19:
                await asyncio.sleep(0)
        await asyncio.gather(*followers)
        return changes * WATCHERS / (time.process_time() - begun)
