"""Following over real HTTP: live, through resets and compaction, page by page, and letting others live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.core import Node
from dovetail.api.pod import Pod
from dovetail.errors import DovetailError
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import Anonymous
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import ApiRequest, HttpTransport, Lines
from dovetail.runtime.watch import Follower, WatchOptions, WatchPace
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from support.apiserver import node, pod

HASTE = WatchPace(first_delay=0.02, last_delay=0.1)


class Following:
    """A server over HTTP and an informer that follows it."""

    def __init__(self, server: ApiServer, storm: FaultStorm, url: str, streamed: bool) -> None:
        self.server = server
        self.storm = storm
        self.api = server.build_local_client("someone")
        self.transport = HttpTransport(url, Anonymous()) if streamed else Paged(url, Anonymous())
        self.kube = KubeClient(self.transport, SystemClock(), page=100)
        self.troubles: list[DovetailError] = []

    def follow(self, kind: type[Any], labels: str = "") -> tuple[Informer[Any], asyncio.Task[None]]:
        informer = Informer(kind)
        follower = Follower(
            self.kube,
            kind,
            informer,
            clock=SystemClock(),
            rng=Random(1),
            options=WatchOptions(pace=HASTE, on_trouble=self.troubles.append, labels=labels),
        )
        return informer, asyncio.create_task(follower.run())

    def names(self, resource: str) -> list[str]:
        return sorted(name for _, name in self.server.store.get_bucket(resource).records)


class Paged(HttpTransport):
    """A server that never learnt to stream lists: the wish is refused on the way."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        query = {k: v for k, v in request.query.items() if k != "resourceVersionMatch"}
        async with super().stream(ApiRequest(request.method, request.path, query)) as lines:
            yield lines


@pytest.fixture(params=[True, False], ids=["streamed", "paged"])
async def following(request: pytest.FixtureRequest) -> AsyncIterator[Following]:
    storm = FaultStorm(SystemClock())
    server = ApiServer(SystemClock(), Random(1), faults=storm, bookmark_every=0.2)
    async with server.serve() as running:
        found = Following(server, storm, running.url, request.param)
        yield found
        await found.transport.close()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come true in 20 s")


def named(informer: Informer[Any]) -> list[str]:
    return sorted(obj.name for obj in informer)


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        assert not task.done()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cache_fills_and_then_follows(following: Following) -> None:
    for number in range(250):
        following.api.create("pods", pod(f"web-{number}"))
    pods, task = following.follow(Pod)
    web, other = following.follow(Pod, labels="app=db")
    await until(lambda: pods.synced and web.synced)
    assert len(pods) == 250
    assert len(web) == 0
    following.api.patch("pods", "web-7", {"metadata": {"labels": {"app": "db"}}}, "default")
    following.api.delete("pods", "web-8", "default", grace_seconds=0)
    await until(lambda: named(web) == ["web-7"] and len(pods) == 249)
    following.api.patch("pods", "web-7", {"metadata": {"labels": {"app": "web"}}}, "default")
    await until(lambda: len(web) == 0)
    assert following.troubles == []
    await ended(task, other)


async def test_a_cache_survives_resets_and_forgotten_history(following: Following) -> None:
    likely = {"server-error": 0.2, "reset": 0.2, "watch-reset": 0.5, "watch-expired": 1.0}
    following.storm.rules = tuple(
        msgspec.convert(
            {"trouble": trouble, "clients": ["karpenter"], "probability": chance, "amount": 5}, FaultRule
        )
        for trouble, chance in likely.items()
    )
    nodes, task = following.follow(Node)
    chance = Random(3)
    for step in range(300):
        name = f"n{chance.randint(0, 20)}"
        if name in following.names("nodes"):
            following.api.delete("nodes", name)
        else:
            following.api.create("nodes", node(name))
        if step % 50 == 0:
            following.server.store.compact()
        await asyncio.sleep(0.002)
    following.storm.end_faults()
    await until(lambda: named(nodes) == following.names("nodes"))
    assert len(following.storm.record) > 5
    await ended(task)


async def test_others_get_their_turn_while_a_long_list_is_read(following: Following) -> None:
    for number in range(1000):
        following.api.create("pods", pod(f"web-{number}"))
    pods, task = following.follow(Pod)
    turns = 0
    while not pods.synced:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10, "at least one for each page"
    assert len(pods) == 1000
    await ended(task)
