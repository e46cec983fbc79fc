"""``dovetail controller``: the production process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Annotated, Literal

import typer

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.app import Dovetail
from dovetail.cli.output import print_note
from dovetail.runtime import health, logs
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import WorkerPool
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.leader import ElectionTerms, Elector, ElectorThread, new_identity
from dovetail.runtime.transport import USER_AGENT
from dovetail.settings import Settings, read_settings

OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}


def controller(
    context: typer.Context,
    provider: Annotated[
        Literal["aws", "kwok"], typer.Option(help="Whose machines to use: EC2's, or simulated ones.")
    ] = "kwok",
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="Kubeconfig; else $KUBECONFIG, the pod's own, or ~/.kube/config."),
    ] = "",
) -> None:
    """Run the autoscaler against a cluster until it is told to stop.

    Every setting is a flag (`--batch-idle-duration 2s`) or an environment variable of the same name
    (`BATCH_IDLE_DURATION`); `dovetail settings` lists them all.
    """
    settings = read_settings(tuple(context.args), dict(os.environ), provider=provider)
    logs.configure_logging(settings.log_level, settings.log_output_paths)
    for warning in settings.warnings:
        print_note(f"dovetail: {warning}")
    sys.exit(asyncio.run(_run_controller(settings, provider, kubeconfig)))


async def _run_controller(settings: Settings, provider: str, kubeconfig: str) -> int:
    clock, chance = SystemClock(), Random(SystemRandom().getrandbits(64))
    connection = connect(clock, kubeconfig)
    transport, workers = connection.open_transport(USER_AGENT), WorkerPool(min(2, os.cpu_count() or 1))
    elector = None if settings.disable_leader_election else _build_elector(settings, connection)
    leading: Callable[[], bool] = (lambda: True) if elector is None else (lambda: elector.leading)
    dovetail = Dovetail(
        settings,
        transport,
        clock=clock,
        chance=chance,
        provider=provider,
        authority=connection.authority,
        compute=workers,
        may_write=leading,
    )
    servers = [
        await health.serve_app(
            health.build_metrics_app(profiling=settings.enable_profiling, exposition=dovetail.render_metrics),
            settings.metrics_port,
        ),
        await health.serve_app(health.build_probes_app(_list_checks(dovetail)), settings.health_probe_port),
    ]
    try:
        return await _work_while_leading(dovetail, elector)
    finally:
        if elector is not None:
            await elector.stop()
        for runner, _ in servers:
            await runner.cleanup()
        workers.close()
        dovetail.close()
        await transport.close()


async def _work_while_leading(dovetail: Dovetail, elector: ElectorThread | None) -> int:
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
        print_note("dovetail: another process leads now; stopping")
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
