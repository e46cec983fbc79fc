"""``dovetail shadow``: beside any autoscaler, without a write, what Dovetail would have done and paid."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dovetail.cli.views.options import add_cluster_options
from dovetail.cli.views.output import print_note, print_remark, print_text
from dovetail.errors import BadInput, Misconfigured
from dovetail.settings.durations import parse_duration

if TYPE_CHECKING:
    from dovetail.app.cluster_source import ClusterSource
    from dovetail.app.given_pools import GivenPools
    from dovetail.history.shadow import ShadowReport
    from dovetail.play.shadow_run import LiveShadow
    from dovetail.play.shadow_twins import ShadowTwins

Action = Literal["watch", "report"]
# The metrics of a shadow: those of a controller would claim that it decides, and has not seen its cluster.
OWN_FAMILIES = ("dovetail_shadow_", "dovetail_recording_", "process_")


class Shape(StrEnum):
    """The shape of a report."""

    table = "table"
    json = "json"
    html = "html"


ActionArgument = Annotated[
    Action,
    typer.Argument(help="watch: beside a cluster, until Ctrl-C; report: what a recording of one says."),
]
PlaceArgument = Annotated[
    str,
    typer.Argument(metavar="[RECORDING]", help="What report reads: the folder or bucket that --to named."),
]
ToOption = Annotated[str, typer.Option("--to", metavar="PLACE", help="A folder, or s3://bucket/prefix.")]
ReportOption = Annotated[
    str,
    typer.Option("--report", metavar="ADDRESS:PORT", help="Serve the report, report.json and metrics there."),
]
EveryOption = Annotated[str, typer.Option(metavar="DURATION", help="How often to look at most.")]
ForOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long; else until Ctrl-C.")]
SinceOption = Annotated[str, typer.Option(metavar="DURATION", help="Only the last so long, such as 7d.")]
AsOption = Annotated[
    Literal["dovetail", "karpenter"], typer.Option("--as", help="Whose choices the twin makes.")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="KEY=VALUE|FILE",
        help="A setting, or a file of manifests, to try instead of the recorded ones.",
    ),
]
TwinOption = Annotated[
    Literal["auto", "live", "nightly", "off"],
    typer.Option(
        "--twin",
        help="When twins of the cluster run: beside it (live), at the end of each day on the recording "
        "(nightly), or never; auto is live up to 1,000 nodes.",
    ),
]
RestartOption = Annotated[
    Literal["weekly", "daily", "never"],
    typer.Option(
        "--restart",
        help="How often twins begin again from the real fleet, so that their error does not pile up: Mondays "
        "at midnight, UTC, each midnight, or never.",
    ),
]
PoolsOption = Annotated[
    str,
    typer.Option(
        "--pools",
        metavar="FILE",
        help="For a cluster without NodePools, such as one of Cluster Autoscaler: those to compare it with.",
    ),
]
ShapeOption = Annotated[Shape, typer.Option("--output", "-o", help="Shape of the report.")]
DEFAULT_FOLDER = "dovetail-shadow"


@add_cluster_options
def shadow(
    action: ActionArgument = "watch",
    place: PlaceArgument = "",
    to: ToOption = DEFAULT_FOLDER,
    report: ReportOption = "",
    every: EveryOption = "10s",
    lasts: ForOption = "",
    since: SinceOption = "",
    output: ShapeOption = Shape.table,
    choices: AsOption = "dovetail",
    tried: WithOption = None,
    twin: TwinOption = "auto",
    restart: RestartOption = "weekly",
    pools: PoolsOption = "",
    *,
    where: ClusterSource,
) -> None:
    """Say what Dovetail would have done beside the autoscaler that runs today.

    The cluster is only read, whichever autoscaler it has; it takes the right to get, list and watch. What is
    seen is recorded, and each decision there is compared with ours. Nothing leaves this machine.
    """
    twins = replace(_read_twins(choices, tried or [], twin != "off"), restart=restart)
    if action == "report":
        if pools:
            raise Misconfigured("report reads the pools from the recording; leave --pools out")
        length = _parse_length(since, "--since") if since else None
        _print_report(place or to, length, output, twins, nightly=twin == "nightly")
        return
    if place:
        raise Misconfigured(f"watch takes no RECORDING; to keep what is seen in {place}, say --to {place}")
    from dovetail.app.recordings import parse_target
    from dovetail.play.shadow_run import ShadowOptions
    from dovetail.runtime import logs

    address = _parse_address(report) if report else None
    given = _read_pools(pools) if pools else None
    options = ShadowOptions(parse_target(to), to, _parse_length(every, "--every"), twins, twin, given)
    limit = _parse_length(lasts, "--for") if lasts else None
    logs.configure_logging("error", ("stderr",))
    print_note(f"watching, and recording to {to}; Ctrl-C ends it.")
    with suppress(asyncio.CancelledError):
        found = asyncio.run(_watch(where, options, limit, address))
        _show(found, output)


async def _watch(
    where: object, options: object, limit: timedelta | None, address: tuple[str, int] | None
) -> ShadowReport:
    from dovetail.app.cluster_source import ClusterSource
    from dovetail.play.shadow_run import ShadowOptions, run_shadow

    assert isinstance(where, ClusterSource)
    assert isinstance(options, ShadowOptions)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    served: list[asyncio.Task[None]] = []

    def count_down() -> None:
        if limit is not None:
            loop.call_later(limit.total_seconds(), stop.set)

    def start(live: LiveShadow) -> None:
        if address is not None:
            served.append(asyncio.create_task(_serve(live, address)))

    try:
        return await run_shadow(where, options, stop, print_remark, start, count_down)
    finally:
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def _serve(live: LiveShadow, address: tuple[str, int]) -> None:
    """The report as a page and for programs, and the metrics."""
    import msgspec
    from aiohttp import web

    from dovetail.play.shadow_page import render_shadow
    from dovetail.runtime import health, metrics

    async def show_page(_: web.Request) -> web.Response:
        page = await asyncio.to_thread(lambda: render_shadow(live.build_report()))
        return web.Response(text=page, content_type="text/html")

    async def show_json(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(live.build_report()), content_type="application/json")

    async def show_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = health.build_metrics_app(exposition=partial(metrics.render_part, *OWN_FAMILIES))
    app.add_routes([web.get("/", show_page), web.get("/report.json", show_json)])
    app.add_routes([web.get("/healthz", show_health)])
    runner, port = await health.serve_app(app, address[1], address[0] or None)
    print_note(f"the report is at http://{address[0] or 'localhost'}:{port}/")
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _print_report(
    place: str, since: timedelta | None, output: Shape, twins: ShadowTwins, *, nightly: bool
) -> None:
    from dovetail.app.recordings import open_recording
    from dovetail.play.shadow_nights import report_by_days
    from dovetail.play.shadow_twins import report_recording
    from dovetail.play.shadowing import find_since

    with open_recording(place) as reader:
        if reader.troubles and not reader.segments:
            raise BadInput(f"reading the recording {place}: {reader.troubles[0]}")
        for trouble in reader.troubles:
            print_remark(trouble)
        sources = [segment.source for segment in reader.segments]
        began = find_since(sources, since)
        if nightly:
            _show(report_by_days(reader.segments, twins, began), output)
        else:
            _show(report_recording(sources, twins, began), output)


def _show(found: ShadowReport, output: Shape) -> None:
    if output is Shape.json:
        import msgspec

        print_text(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    elif output is Shape.html:
        from dovetail.play.shadow_page import render_shadow

        print_text(render_shadow(found))
    else:
        from dovetail.cli.views.shadows import format_report

        print_text(format_report(found))


def _read_twins(choices: Literal["dovetail", "karpenter"], tried: list[str], live: bool) -> ShadowTwins:
    """What the twin tries: settings, and manifests that replace their namesakes."""
    from dovetail.cli.views.files import read_manifests
    from dovetail.play.shadow_twins import ALL_ROLES, DIFFERENCES, ShadowTwins
    from dovetail.settings.table import BY_VARIABLE

    settings, manifests = [], []
    for each in tried:
        key, equals, value = each.partition("=")
        if not equals:
            found = read_manifests([each])
            if found.complaints:
                raise BadInput(f"--with {each}: {found.complaints[0].message}")
            manifests += [document.value for document in found.documents]
        elif key in BY_VARIABLE:
            settings.append((key, value))
        else:
            raise Misconfigured(f"--with {each}: there is no setting {key}; `dovetail settings` lists them")
    return ShadowTwins(ALL_ROLES if live else (DIFFERENCES,), choices, tuple(settings), tuple(manifests))


def _read_pools(path: str) -> GivenPools:
    from dovetail.app.given_pools import read_given_pools
    from dovetail.cli.views.files import read_manifests

    found = read_manifests([path])
    if found.complaints:
        raise BadInput(f"--pools {path}: {found.complaints[0].message}")
    return read_given_pools((document.value for document in found.documents), path)


def _parse_length(text: str, asked: str) -> timedelta:
    try:
        days = text.removesuffix("d")
        found = timedelta(days=float(days)) if days != text else parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{asked} {text}: write a duration such as 10s, 24h or 7d") from error
    if found < timedelta(seconds=1):
        raise BadInput(f"{asked} {text}: it must be a second at least, such as 10s")
    return found


def _parse_address(text: str) -> tuple[str, int]:
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    with suppress(ValueError):
        if address:
            ipaddress.ip_address(address)
        if colon and port.isdecimal() and int(port) <= 65535:
            return address, int(port)
    raise Misconfigured(f"--report {text}: say it as ADDRESS:PORT or :PORT, such as 127.0.0.1:8091")
