"""``dovetail up``: a whole cluster in this process, with Dovetail autoscaling it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.embedded import Embedded, EmbeddedOptions, embedded
from dovetail.cli.output import note, put
from dovetail.runtime import logs
from dovetail.settings import read


def up(
    port: Annotated[int, typer.Option(help="Port of the API server on loopback; 0 picks a free one.")] = 0,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the kubeconfig; yours is never touched."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Keep objects here, so that they survive a restart."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random: names, addresses.")] = 0,
    controller: Annotated[
        bool, typer.Option(help="Run Dovetail inside; without it, run your own against the kubeconfig.")
    ] = True,
    log_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the controller's log lines here.")
    ] = None,
) -> None:
    """Start an embedded cluster with Dovetail in it and say what to type next.

    Everything runs in this process: no cloud, no containers. It listens on loopback only, with a
    random token and a certificate of its own. Stop it with Ctrl-C.
    """
    logs.configure("info", (str(log_file),) if log_file else ("/dev/null",))
    settings = read((), {}, provider="kwok")
    options = EmbeddedOptions(settings, port, seed, data_dir, kubeconfig, controller)
    asyncio.run(_serve(options))


async def _serve(options: EmbeddedOptions) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stopped.set)
    async with embedded(options) as cluster:
        for complaint in cluster.notes:
            note(f"dovetail: {complaint}")
        put(_welcome(cluster))
        await stopped.wait()
        note("stopping…")


def _welcome(cluster: Embedded) -> str:
    inside = "Dovetail is autoscaling it" if cluster.dovetail else "no controller is running in it"
    return (
        f"A cluster is up at {cluster.url}, and {inside}.\n\n"
        f"  export KUBECONFIG={cluster.kubeconfig}\n"
        "  kubectl apply -f examples/kwok.yaml       # a node class and a pool of simulated nodes\n"
        "  kubectl apply -f examples/inflate.yaml    # something to run\n"
        "  kubectl scale deployment inflate --replicas=5\n"
        "  kubectl get nodeclaims,nodes,pods -w\n\n"
        "Ctrl-C stops it.\n"
    )
