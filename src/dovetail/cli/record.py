"""``dovetail record``: a recording of a cluster, read-only, beside whatever autoscaler it has."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer

from dovetail.app.cluster_recorder import RecordingPace, record_cluster
from dovetail.app.cluster_source import ClusterSource
from dovetail.app.recordings import parse_target
from dovetail.cli.views.options import add_cluster_options
from dovetail.cli.views.output import format_count, print_note, print_remark
from dovetail.errors import BadInput
from dovetail.runtime import logs
from dovetail.settings.durations import parse_duration

ToOption = Annotated[str, typer.Option("--to", metavar="PLACE", help="A folder, or s3://bucket/prefix.")]
EveryOption = Annotated[str, typer.Option(metavar="DURATION", help="How often to look at most.")]
KeepOption = Annotated[
    str, typer.Option(metavar="DURATION", help="How long segments in a folder are kept; else for good.")
]
ForOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long; else until Ctrl-C.")]


@add_cluster_options
def record(
    to: ToOption,
    every: EveryOption = "10s",
    lasts: ForOption = "",
    keep: KeepOption = "",
    *,
    where: ClusterSource,
) -> None:
    """Record what a cluster looks like, to look at any moment of it later.

    The cluster is only read, whichever autoscaler it has; it takes the right to get, list and watch. Secrets,
    images, arguments, environment values and annotations that Dovetail does not read are never included.
    """
    pause = _parse_length(every, "--every")
    limit = _parse_length(lasts, "--for") if lasts else None
    place = parse_target(to)
    pace = RecordingPace(pause, _parse_length(keep, "--keep") if keep else None)
    # A line when the place cannot be written to, and one when it can again.
    logs.configure_logging("info", ("stderr",))

    async def work() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, stop.set)
        if limit is not None:
            loop.call_later(limit.total_seconds(), stop.set)
        return await record_cluster(where, place, pace, stop, print_remark)

    print_note(f"recording to {to}; Ctrl-C ends it.")
    with suppress(asyncio.CancelledError):
        looks = asyncio.run(work())
        print_note(f"{to}: {format_count(looks, 'look')}; `dovetail recording info {to}` says more")


def _parse_length(text: str, asked: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{asked} {text}: write a duration such as 10s or 24h") from error
    if found < timedelta(seconds=1):
        raise BadInput(f"{asked} {text}: it must be a second at least, such as 10s")
    return found
