"""The production process: the controllers beside their leader election, metrics and probes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random, SystemRandom

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.app.controller import Dovetail, ProcessOptions
from dovetail.runtime import health
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import WorkerPool
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.leader import ElectionTerms, Elector, ElectorThread, new_identity
from dovetail.runtime.transport import USER_AGENT
from dovetail.settings import Settings
from dovetail.zonal.policy_map import read_policy
from dovetail.zonal.wiring import find_namespace

__all__ = ["run_controller"]


async def run_controller(
    settings: Settings, provider: str, kubeconfig: str, remark: Callable[[str], None]
) -> int:
    """Run the controllers, their leader election, metrics and probes until told to stop; the exit code."""
    clock, chance = SystemClock(), Random(SystemRandom().getrandbits(64))
    connection = connect(clock, kubeconfig)
    transport, workers = connection.open_transport(USER_AGENT), WorkerPool(min(2, os.cpu_count() or 1))
    elector = None if settings.disable_leader_election else _build_elector(settings, connection)
    leading: Callable[[], bool] = (lambda: True) if elector is None else (lambda: elector.leading)
    settings = await read_policy(settings, KubeClient(transport, clock), find_namespace(settings))
    dovetail = Dovetail(
        settings,
        transport,
        clock=clock,
        chance=chance,
        provider=provider,
        process=ProcessOptions(authority=connection.authority, compute=workers, may_write=leading),
    )
    servers = [
        await health.serve_app(
            health.build_metrics_app(profiling=settings.enable_profiling, exposition=dovetail.render_metrics),
            settings.metrics_port,
        ),
        await health.serve_app(health.build_probes_app(_list_checks(dovetail)), settings.health_probe_port),
    ]
    try:
        return await _work_while_leading(dovetail, elector, remark)
    finally:
        if elector is not None:
            await elector.stop()
        for runner, _ in servers:
            await runner.cleanup()
        workers.close()
        dovetail.close()
        await transport.close()


async def _work_while_leading(
    dovetail: Dovetail, elector: ElectorThread | None, remark: Callable[[str], None]
) -> int:
    """Work while leading. One that loses its lease ends; its successor starts with a clear head."""
    dovetail.manager.stop_on_signals()
    if elector is None:
        await dovetail.run()
        return 0
    elector.start()
    lost = asyncio.create_task(elector.wait_lost())
    running = asyncio.create_task(dovetail.run(elector.wait_leading))
    await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    if lost.done() and not running.done():
        dovetail.stop()
        await running
        remark("dovetail: another process leads now; stopping")
        return 1
    lost.cancel()
    await running
    return 0


def _build_elector(settings: Settings, connection: Connection) -> ElectorThread:
    terms = ElectionTerms(
        name=settings.leader_election_name,
        namespace=settings.leader_election_namespace or connection.namespace,
    )
    identity = new_identity()

    def make(tell: Callable[[bool], None]) -> Elector:
        clock = SystemClock()
        # A client of its own: heavy traffic of the controllers must not hold up a renewal.
        kube = KubeClient(connection.open_transport(USER_AGENT), clock)
        return Elector(kube, terms, identity, clock=clock, rng=Random(identity), on_change=tell)

    return ElectorThread(make)


def _list_checks(dovetail: Dovetail) -> list[health.Check]:
    """Ready once the caches are filled and the cluster knows our kinds; leading is not needed for it."""

    async def filled() -> str | None:
        return None if dovetail.synced else "caches are still being filled"

    return [filled, health.require_served(dovetail.kube, (NodePool.KIND, NodeClaim.KIND))]
