"""The embedded API server: writes with watchers, long lists over HTTP, fan-out, and `dovetail up` itself."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.local import LocalApi

from .registry import Figure, scenario

MANY = 20_000
WATCHERS = 20
STREAMS = 50
CHANGES = 2_000
COMMAND = Path(sys.executable).with_name("dovetail")
TICK = os.sysconf("SC_CLK_TCK")


def _pod(number: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    container = {"name": "main", "image": "web:1", "resources": {"requests": requests}}
    meta = {"name": f"web-{number:05}", "namespace": "default", "labels": {"app": f"web-{number % 100}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


def _server() -> tuple[ApiServer, LocalApi]:
    server = ApiServer(SystemClock(), random.Random(1), history=2 * MANY)
    return server, server.build_local_client("bench")


@scenario("apiserver: 20,000 pods are created in process, 20 watchers listen")
def creates() -> Iterator[Figure]:
    """Every watcher takes every event, encoded as it would go out; the bytes are made once for all."""
    _, api = _server()
    watches = [api.watch("pods", resource_version="1") for _ in range(WATCHERS)]
    bodies = [_pod(number) for number in range(MANY)]
    heard = size = 0
    started = time.process_time()
    for number, body in enumerate(bodies):
        api.create("pods", body)
        if number % 100 == 99:
            for watch in watches:
                notices = watch.take_notices()
                heard += len(notices)
                size += sum(len(notice.record.body) for notice in notices)
    took = time.process_time() - started
    assert heard == MANY * WATCHERS
    yield Figure("seconds", took, "s")
    yield Figure("creates a second", MANY / took, "/s", 2_000, more_is_better=True)
    yield Figure("events delivered a second", heard / took, "/s")
    yield Figure("size of an event", size / heard, "bytes")


@asynccontextmanager
async def _full() -> AsyncIterator[tuple[LocalApi, aiohttp.ClientSession, str]]:
    server, api = _server()
    for number in range(MANY):
        api.create("pods", _pod(number))
    connector = aiohttp.TCPConnector(limit=0)
    async with server.serve() as running, aiohttp.ClientSession(connector=connector) as session:
        yield api, session, running.url


@scenario("apiserver: a list of 20,000 pods over HTTP")
def listing() -> Iterator[Figure]:
    async def measure() -> list[Figure]:
        async with _full() as (_, session, url):
            whole, size, longest = await _listed(session, f"{url}/api/v1/pods")
            again, _, _ = await _listed(session, f"{url}/api/v1/pods")
            started = time.process_time()
            pages, token = 0, ""
            while pages == 0 or token:
                query = {"limit": "500", "continue": token}
                async with session.get(f"{url}/api/v1/pods", params=query) as response:
                    document = await response.json()
                token, pages = document["metadata"].get("continue", ""), pages + 1
            return [
                Figure("whole, the first time (both sides)", whole, "s"),
                Figure("whole, again", again, "s"),
                Figure("size", size / 1e6, "MB"),
                Figure("longest anyone else waited", 1e3 * longest, "ms", 10),
                Figure(f"in {pages} pages, decoded", time.process_time() - started, "s"),
            ]

    yield from asyncio.run(measure())


async def _listed(session: aiohttp.ClientSession, url: str) -> tuple[float, int, float]:
    """Seconds of processor time, bytes, and the longest that another task had to wait for its turn."""
    longest, over = 0.0, asyncio.Event()

    async def patient() -> None:
        nonlocal longest
        last = time.process_time()
        while not over.is_set():
            await asyncio.sleep(0)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    waiting = asyncio.create_task(patient())
    started = time.process_time()
    size = 0
    async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
        async for chunk in response.content.iter_any():
            size += len(chunk)
    took = time.process_time() - started
    over.set()
    await waiting
    return took, size, longest


@scenario("apiserver: watch fan-out over HTTP")
def fan_out() -> Iterator[Figure]:
    async def measure() -> float:
        server, api = _server()
        api.create("pods", _pod(0))
        connector = aiohttp.TCPConnector(limit=0)
        async with server.serve() as running, aiohttp.ClientSession(connector=connector) as session:
            ready = [asyncio.Event() for _ in range(STREAMS)]
            followers = [
                asyncio.create_task(_follow(session, f"{running.url}/api/v1/pods?watch=true", flag))
                for flag in ready
            ]
            for flag in ready:
                await flag.wait()
            started = time.process_time()
            for number in range(CHANGES):
                api.patch("pods", "web-00000", {"metadata": {"labels": {"n": str(number)}}}, "default")
                if number % 20 == 19:
                    await asyncio.sleep(0)
            assert await asyncio.gather(*followers) == [CHANGES] * STREAMS
            return time.process_time() - started

    took = asyncio.run(measure())
    yield Figure("streams", STREAMS, "")
    yield Figure("events a second, both sides", CHANGES * STREAMS / took, "/s", 20_000, more_is_better=True)


async def _follow(session: aiohttp.ClientSession, url: str, ready: asyncio.Event) -> int:
    """How many changes came after the first line."""
    seen = -1
    async with session.get(url) as response:
        async for chunk in response.content.iter_any():
            seen += chunk.count(b"\n")
            ready.set()
            if seen >= CHANGES:
                return seen
    return seen


@scenario("apiserver: dovetail up")
def up() -> Iterator[Figure]:
    for options, budget in (((), None), (("--no-controller",), 2.0)):
        what = "without a controller" if options else "with Dovetail inside"
        ready, cost, idle, memory = min(_ups(options, 3))
        yield Figure(f"ready after, {what}", ready, "s", 2.0)
        yield Figure(f"processor time until ready, {what}", cost, "s")
        yield Figure(f"idle, {what}", idle, "% of a core", budget)
        yield Figure(f"memory, {what}", memory, "MB")


def _ups(options: tuple[str, ...], times: int) -> Iterator[tuple[float, float, float, float]]:
    for _ in range(times):
        with tempfile.TemporaryDirectory() as home:
            yield _up(options, home)


def _up(options: tuple[str, ...], home: str) -> tuple[float, float, float, float]:
    """Seconds until ready, processor seconds until then, idle load in per cent, and megabytes."""
    command = [str(COMMAND), "up", "--kubeconfig", f"{home}/kubeconfig", *options]
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    while b"Ctrl-C" not in child.stdout.readline():
        if child.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} failed with {child.returncode}; run it to see why")
    ready, cost = time.monotonic() - started, _cpu(child.pid)
    time.sleep(3)  # caches fill, the first leases are written
    before, began = _cpu(child.pid), time.monotonic()
    time.sleep(10)
    idle = 100 * (_cpu(child.pid) - before) / (time.monotonic() - began)
    pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
    child.terminate()
    child.wait()
    child.stdout.close()
    return ready, cost, idle, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
