"""Caches that fill and follow: how many objects a second, and how long anyone else has to wait meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from random import Random

import msgspec

from dovetail.api.codec import Interner
from dovetail.api.pod import Pod
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.queue import WorkQueue
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines
from dovetail.runtime.watch import Follower, WatchOptions

from .registry import Figure, scenario
from .workload import pods

MANY = 20_000
PAGE = 500
# What one read of a busy socket brings.
BATCH = 64


@cache
def documents() -> tuple[bytes, ...]:
    """The pods as the server would send them, each with a name and a version of its own."""
    return tuple(_numbered(pod, number) for number, pod in enumerate(pods(MANY)))


@cache
def added() -> tuple[bytes, ...]:
    """The pods as lines of a stream."""
    return tuple(b'{"type":"ADDED","object":%s}' % document for document in documents())


def _numbered(pod: dict[str, object], number: int) -> bytes:
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    metadata["resourceVersion"] = str(number + 1)
    return msgspec.json.encode(pod)


class Canned:
    """A server that has everything ready: what is measured is what happens on our side."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed
        every = documents()
        self._pages = [
            b'{"metadata":{"resourceVersion":"20000","continue":"%s"},"items":[%s]}'
            % (b"more" if start + PAGE < MANY else b"", b",".join(every[start : start + PAGE]))
            for start in range(0, MANY, PAGE)
        ]
        self._given = 0

    async def send(self, request: ApiRequest) -> ApiReply:
        self._given += 1
        return ApiReply(200, self._pages[self._given - 1])

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        listing = "sendInitialEvents" in request.query
        yield _Canned(422 if listing and not self._streamed else 200, listing)

    async def close(self) -> None:
        """Nothing is held."""


class _Canned:
    def __init__(self, status: int, listing: bool) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self._listing = listing

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        if self._listing:
            lines = added()
            for start in range(0, len(lines), BATCH):
                yield list(lines[start : start + BATCH])
            mark = {"resourceVersion": "20000", "annotations": {"k8s.io/initial-events-end": "true"}}
            yield [msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": mark}})]
        await asyncio.Event().wait()

    async def read(self) -> bytes:
        return b"{}"


async def _filled(streamed: bool) -> tuple[float, float]:
    """Seconds until a cache is full, and the longest anyone else had to wait for a turn.

    Processor time, since the machine may be busy with other things.
    """
    informer, clock = Informer(Pod, {"node": lambda pod: (pod.node_name,)}), SystemClock()
    kube = KubeClient(Canned(streamed), clock)
    follower = Follower(
        kube, Pod, informer, clock=clock, rng=Random(1), options=WatchOptions(table=Interner())
    )
    started = last = time.process_time()
    task, longest = asyncio.create_task(follower.run()), 0.0
    while not informer.synced:
        await asyncio.sleep(0)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    took = time.process_time() - started
    assert len(informer) == MANY
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return took, longest


@scenario("runtime: a cache of 20,000 pods fills")
def a_cache_fills() -> Iterator[Figure]:
    added()
    for streamed, how in ((True, "streamed"), (False, "in pages of 500")):
        runs = [asyncio.run(_filled(streamed)) for _ in range(3)]
        took, longest = min(run[0] for run in runs), min(run[1] for run in runs)
        yield Figure(f"pods a second, {how}", MANY / took, "/s", 20_000, more_is_better=True)
        yield Figure(f"longest wait for a turn, {how}", 1e3 * longest, "ms", 50)


@scenario("runtime: a cache follows changes")
def a_cache_follows() -> Iterator[Figure]:
    line = b'{"type":"MODIFIED","object":%s}'
    lines = [line % document for document in documents()]
    informer, clock = Informer(Pod, {"node": lambda pod: (pod.node_name,)}), SystemClock()
    follower = Follower(KubeClient(Canned(True), clock), Pod, informer, clock=clock, rng=Random(1))
    for one in lines:
        follower._take_line(one, listing=False)
    started = time.process_time()
    for one in lines:
        follower._take_line(one, listing=False)
    yield Figure(
        "changes a second", len(lines) / (time.process_time() - started), "/s", 20_000, more_is_better=True
    )


@scenario("runtime: a queue of 100,000 keys")
def a_queue() -> Iterator[Figure]:
    keys = [f"ns/{number}" for number in range(100_000)]

    async def drained() -> float:
        queue = WorkQueue("bench", SystemClock())
        started = time.process_time()
        for key in keys:
            queue.add(key)
        for _ in keys:
            queue.mark_done(await queue.get())
        return time.process_time() - started

    took = min(asyncio.run(drained()) for _ in range(3))
    yield Figure("keys a second", len(keys) / took, "/s", 100_000, more_is_better=True)
