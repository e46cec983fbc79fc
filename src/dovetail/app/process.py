"""The production process: the controllers beside their leader election, metrics and probes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random, SystemRandom

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.app.controller import Dovetail, ProcessOptions
from dovetail.app.leader_election import build_elector, work_while_leading
from dovetail.app.published_settings import build_lease_annotations
from dovetail.runtime import health
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import PassingWorkers, WorkerPool
from dovetail.runtime.history_server import HistoryServer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.leader import new_identity
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
    settings = await read_policy(settings, KubeClient(transport, clock), find_namespace(settings))
    identity, said = new_identity(), build_lease_annotations(settings)
    elector = build_elector(settings, connection, settings.leader_election_name, identity, said)
    leading: Callable[[], bool] = (lambda: True) if elector is None else (lambda: elector.leading)
    dovetail = Dovetail(
        settings,
        transport,
        clock=clock,
        chance=chance,
        provider=provider,
        process=ProcessOptions(
            connection.authority, workers, PassingWorkers(), leading, identity, asyncio.to_thread
        ),
    )
    servers = [
        await health.serve_app(
            health.build_metrics_app(
                profiling=settings.enable_profiling,
                exposition=dovetail.render_metrics,
                history=HistoryServer(dovetail.history.ring, clock, elector, dovetail.list_told),
            ),
            settings.metrics_port,
        ),
        await health.serve_app(health.build_probes_app(_list_checks(dovetail)), settings.health_probe_port),
    ]
    try:
        if await work_while_leading(dovetail, elector):
            return 0
        remark("dovetail: another process leads now; stopping")
        return 1
    finally:
        if elector is not None:
            await elector.stop()
        for runner, _ in servers:
            await runner.cleanup()
        workers.close()
        dovetail.close()
        await transport.close()


def _list_checks(dovetail: Dovetail) -> list[health.Check]:
    """Ready once the caches are filled and the cluster knows our kinds; leading is not needed for it."""

    async def filled() -> str | None:
        return None if dovetail.synced else "caches are still being filled"

    return [filled, health.require_served(dovetail.kube, (NodePool.KIND, NodeClaim.KIND))]
