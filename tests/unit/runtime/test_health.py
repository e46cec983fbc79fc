"""Probes and metrics over HTTP."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest
from aiohttp import web

from dovetail.api import crds
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.errors import Misconfigured
from dovetail.runtime import health, metrics
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import Anonymous
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import HttpTransport
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport


@asynccontextmanager
async def asking(app: web.Application) -> AsyncIterator[aiohttp.ClientSession]:
    runner, port = await health.serve_app(app, 0, "127.0.0.1")
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        await runner.cleanup()


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as reply:
        return reply.status, await reply.text()


async def test_alive_is_whoever_answers_and_ready_is_whoever_knows_the_cluster() -> None:
    ready: set[str] = set()
    caches = {kind: (lambda kind=kind: kind in ready) for kind in ("pods", "nodes")}
    async with asking(health.build_probes_app([health.require_synced(caches)])) as session:
        assert await get(session, "/healthz") == (200, "ok")
        assert await get(session, "/readyz") == (500, "waiting for a first list of pods, nodes")
        ready.add("pods")
        assert await get(session, "/readyz") == (500, "waiting for a first list of nodes")
        ready.add("nodes")
        assert await get(session, "/readyz") == (200, "ok")


async def test_ready_needs_the_kinds_to_be_served() -> None:
    server = ApiServer(SystemClock(), Random(1))
    kube = KubeClient(LocalTransport(server), SystemClock())
    check = health.require_served(kube, (NodePool.KIND, NodeClaim.KIND))
    said = await check()
    assert said is not None
    assert "nodepools.karpenter.sh, nodeclaims.karpenter.sh; install the CRDs" in said
    for definition in crds.build_manifests("kwok"):
        server.build_local_client("someone").create(
            "customresourcedefinitions.apiextensions.k8s.io", definition
        )
    assert await check() is None


async def test_ready_needs_an_api_server_that_answers() -> None:
    kube = KubeClient(HttpTransport("http://127.0.0.1:1", Anonymous()), SystemClock())
    said = await health.require_served(kube, (NodePool.KIND,))()
    assert said is not None
    assert said.startswith("calling GET /apis/karpenter.sh/v1: ")
    await kube.transport.close()


def test_a_process_that_only_looks_shows_its_own_numbers_alone() -> None:
    shown = metrics.render_part("leader_election_", "process_").decode()
    names = {line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE ")}
    assert {"leader_election_master_status", "process_cpu_seconds_total"} <= names
    assert not {each for each in names if not each.startswith(("leader_election_", "process_"))}
    assert b"# TYPE workqueue_depth " in metrics.render_exposition()


async def test_metrics_are_text_and_profiles_come_only_when_asked_for() -> None:
    async with asking(health.build_metrics_app()) as session:
        async with session.get("/metrics") as reply:
            assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "workqueue_depth" in await reply.text()
        assert (await get(session, "/debug/pprof/"))[0] == 404
    async with asking(health.build_metrics_app(profiling=True)) as session:
        assert "goroutine" in (await get(session, "/debug/pprof/"))[1]
        assert "thread MainThread" in (await get(session, "/debug/pprof/goroutine"))[1]
        assert "dict" in (await get(session, "/debug/pprof/heap"))[1]
        assert "thread MainThread" in (await get(session, "/debug/pprof/threadcreate"))[1]
        assert (await get(session, "/debug/pprof/cmdline"))[0] == 200
        assert (await get(session, "/debug/pprof/profile?seconds=0"))[0] == 400
        status, text = await get(session, "/debug/pprof/profile?seconds=1")
        assert (status, "function calls" in text) == (200, True)


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"listening on port {port}: .*; choose another port"):
            await health.serve_app(health.build_probes_app([]), port, "127.0.0.1")


def test_a_page_that_takes_long_is_made_seldom() -> None:
    seconds, made = [0.0], [0]

    def make() -> bytes:
        made[0] += 1
        seconds[0] += 0.5
        return str(made[0]).encode()

    page = health.cache_page(make, lambda: seconds[0])

    assert [page(), page()] == [b"1", b"1"]
    seconds[0] += 4.9
    assert page() == b"1"
    seconds[0] += 0.2
    assert page() == b"2"
