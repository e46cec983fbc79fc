"""``dovetail dashboard``: a web page about a cluster, live or from a snapshot, that changes nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail.app.cluster_source import ClusterSource
from dovetail.app.dashboard_recording import RecordedCluster
from dovetail.app.dashboard_rules import RulePricer
from dovetail.app.dashboard_watch import (
    ClusterWatcher,
    DescribeChange,
    add_change,
    build_picture,
    list_new_decisions,
)
from dovetail.app.live_cluster import open_cluster
from dovetail.app.recordings import open_recording
from dovetail.app.shadow_source import ShadowFollower
from dovetail.app.snapshot_file import find_cluster
from dovetail.cli.views.dashboard_changes import read_dashboard_change
from dovetail.cli.views.options import SnapshotOption, add_cluster_options
from dovetail.cli.views.output import print_note, print_remark, print_text
from dovetail.cli.views.world_source import ChangeOption, DeleteOption
from dovetail.errors import BadInput, Misconfigured
from dovetail.picture import SeenShadow
from dovetail.runtime import health, logs
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import PassingWorkers
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


ShadowOption = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS|FILE",
        help="Show at /shadow what a shadow found: http://HOST:PORT of its --report, or a file of its JSON.",
    ),
]


@add_cluster_options
def dashboard(
    bind: BindOption = "127.0.0.1:8090",
    host: HostOption = None,
    snapshot: SnapshotOption = "",
    recording: RecordingOption = "",
    shadow: ShadowOption = "",
    change: ChangeOption = None,
    delete: DeleteOption = None,
    *,
    where: ClusterSource,
) -> None:
    """Show a cluster, and what Dovetail would do in it, on a web page.

    The cluster is only read, and the controller's own rules are asked; the controller need not run. Each
    page has a twin for programs: /nodes and /nodes.json. With --change, /change has the cluster beside the
    changed one; the JSON that `dovetail plan --change` printed is shown as it is. It asks nobody who they
    are: keep it on loopback, or put something that does in front of it. Stop it with Ctrl-C.
    """
    address, port = _parse_bind(bind)
    logs.configure_logging("error", ("stderr",))
    if snapshot and recording:
        raise BadInput("--snapshot and --recording exclude each other; leave one out")
    describe = read_dashboard_change(change or [], delete or []) if change or delete else None
    followed = ShadowFollower(shadow) if shadow else None
    if recording:
        where.exclude_snapshot("--recording")
        if shadow:
            raise BadInput("--recording has a shadow of its own; leave --shadow out")
        _serve_recording(address, port, host or [], recording, describe)
        return
    if snapshot:
        where.exclude_snapshot()
        work = _serve_snapshot(address, port, host or [], snapshot, describe, followed)
    else:
        work = _serve_live(address, port, host or [], where, describe, followed)
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


def _find(followed: ShadowFollower | None) -> Callable[[], SeenShadow] | None:
    return followed.find_shadow if followed is not None else None


async def _serve_snapshot(
    address: str,
    port: int,
    hosts: list[str],
    path: str,
    describe: DescribeChange | None,
    followed: ShadowFollower | None,
) -> None:
    seen = find_cluster(path, ClusterSource(), print_remark)
    rules = RulePricer(SystemClock(), PassingWorkers())
    shown = ShownCluster(Path(path).name, live=False)
    board = Dashboard(shown, hosts, shadow=_find(followed), rules=rules.find_prices)
    rules.start(seen.situation, board.stream.announce_picture)
    picture = add_change(build_picture(seen, Path(path).name, live=False), seen, describe)
    if describe is not None and picture.change is None:
        raise BadInput(picture.problems[-1])
    board.show(replace(picture, decisions=tuple(list_new_decisions(None, picture))))
    await _serve_page(board, address, port, followed)


def _serve_recording(
    address: str, port: int, hosts: list[str], place: str, describe: DescribeChange | None
) -> None:
    with open_recording(place) as reader:
        for trouble in reader.troubles:
            print_note(f"reading the recording {place}: {trouble}")
        cluster = RecordedCluster(reader, place, describe)
        # Here, for it brings the simulated cluster that its twins live in.
        from dovetail.play.recorded_shadow import RecordedShadow

        own = RecordedShadow(reader.segments)
        board = Dashboard(ShownCluster(place, live=False), hosts, cluster, own.find_shadow)
        asyncio.run(_serve_page(board, address, port))


async def _serve_live(
    address: str,
    port: int,
    hosts: list[str],
    where: ClusterSource,
    describe: DescribeChange | None,
    followed: ShadowFollower | None,
) -> None:
    async with open_cluster(where) as cluster:
        shown = ShownCluster(cluster.name or cluster.connection.server.partition("://")[2])
        rules = RulePricer(SystemClock(), PassingWorkers())
        board = Dashboard(shown, hosts, shadow=_find(followed), rules=rules.find_prices)
        rules.start(None, board.stream.announce_picture)
        watcher = ClusterWatcher(cluster, board, describe, rules)
        await _serve_page(board, address, port, watcher, followed)


async def _serve_page(
    board: Dashboard, address: str, port: int, *watching: ClusterWatcher | ShadowFollower | None
) -> None:
    """Serve until told to stop, or until the cluster cannot be looked at any more."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    runner, taken = await health.serve_app(board.build_app(), port, address)
    shown = f"[{address}]" if ":" in address else address
    print_text(f"http://{shown}:{taken}/\n")
    print_note("Ctrl-C stops it.")
    work: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    work += [asyncio.create_task(_follow(each, stop)) for each in watching if each is not None]
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await runner.cleanup()


async def _follow(each: ClusterWatcher | ShadowFollower, stop: asyncio.Event) -> None:
    """Follow it; one that has nothing more to follow does not end the dashboard."""
    await each.run()
    await stop.wait()
