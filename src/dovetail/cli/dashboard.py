"""``dovetail dashboard``: a web page about a cluster, live or from a snapshot, that changes nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail.app.cluster_source import ClusterSource
from dovetail.app.dashboard_recording import RecordedCluster
from dovetail.app.dashboard_watch import ClusterWatcher, build_picture, list_new_decisions
from dovetail.app.live_cluster import open_cluster
from dovetail.app.recordings import open_recording
from dovetail.app.snapshot_file import find_cluster
from dovetail.cli.views.options import (
    ClusterNameOption,
    ContextOption,
    KubeconfigOption,
    ProviderOption,
    RegionOption,
    SnapshotOption,
)
from dovetail.cli.views.output import print_note, print_remark, print_text
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import health, logs
from dovetail.web import Dashboard, ShownCluster

BindOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS:PORT", help="Where to listen; port 0 picks a free one."),
]
HostOption = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", help="A name it may be called by; may be said again."),
]


RecordingOption = Annotated[
    str,
    typer.Option(metavar="PLACE", help="Show a recording instead: a folder, a file, or s3://bucket/prefix."),
]


def dashboard(
    bind: BindOption = "127.0.0.1:8090",
    host: HostOption = None,
    snapshot: SnapshotOption = "",
    recording: RecordingOption = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    provider: ProviderOption = "auto",
    cluster_name: ClusterNameOption = "",
    region: RegionOption = "",
) -> None:
    """Show a cluster, and what Dovetail would do in it, on a web page.

    The cluster is only read, and the controller's own rules are asked; the controller need not run. Each
    page has a twin for programs: /nodes and /nodes.json. It asks nobody who they are: keep it on loopback,
    or put something that does in front of it. Stop it with Ctrl-C.
    """
    address, port = _parse_bind(bind)
    logs.configure_logging("error", ("stderr",))
    where = ClusterSource(kubeconfig, context, provider, cluster_name, region)
    if snapshot and recording:
        raise BadInput("--snapshot and --recording exclude each other; leave one out")
    if recording:
        where.exclude_snapshot("--recording")
        _serve_recording(address, port, host or [], recording)
        return
    if snapshot:
        where.exclude_snapshot()
        work = _serve_snapshot(address, port, host or [], snapshot)
    else:
        work = _serve_live(address, port, host or [], where)
    asyncio.run(work)


def _parse_bind(bind: str) -> tuple[str, int]:
    address, colon, port = bind.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        colon = ""
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Misconfigured(f"--bind {bind}: say it as ADDRESS:PORT, such as 127.0.0.1:8090")
    return address, int(port)


async def _serve_snapshot(address: str, port: int, hosts: list[str], path: str) -> None:
    seen = find_cluster(path, ClusterSource(), print_remark)
    board = Dashboard(ShownCluster(Path(path).name, live=False), hosts)
    picture = build_picture(seen, Path(path).name, live=False)
    board.show(replace(picture, decisions=tuple(list_new_decisions(None, picture))))
    await _serve_page(board, address, port, None)


def _serve_recording(address: str, port: int, hosts: list[str], place: str) -> None:
    with open_recording(place) as reader:
        for trouble in reader.troubles:
            print_note(f"reading the recording {place}: {trouble}")
        cluster = RecordedCluster(reader, place)
        board = Dashboard(ShownCluster(place, live=False), hosts, cluster)
        asyncio.run(_serve_page(board, address, port, None))


async def _serve_live(address: str, port: int, hosts: list[str], where: ClusterSource) -> None:
    async with open_cluster(where) as cluster:
        board = Dashboard(ShownCluster(cluster.name or cluster.connection.server.partition("://")[2]), hosts)
        await _serve_page(board, address, port, ClusterWatcher(cluster, board))


async def _serve_page(board: Dashboard, address: str, port: int, watching: ClusterWatcher | None) -> None:
    """Serve until told to stop, or until the cluster cannot be looked at any more."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    runner, taken = await health.serve_app(board.build_app(), port, address)
    shown = f"[{address}]" if ":" in address else address
    print_text(f"http://{shown}:{taken}/\n")
    print_note("Ctrl-C stops it.")
    work: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    if watching is not None:
        work.append(asyncio.create_task(watching.run()))
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await runner.cleanup()
