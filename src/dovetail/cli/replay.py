"""``dovetail replay``: a recorded cluster played again, under the rules it had and under others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.views.files import expect_writable, write_file
from dovetail.cli.views.output import (
    LEFT_OUT,
    Output,
    OutputOption,
    print_note,
    print_structured,
    print_text,
)
from dovetail.cli.views.progress import watch_progress
from dovetail.cli.views.recordings import open_recordings, tell_missing
from dovetail.cli.views.verified import print_verified
from dovetail.errors import BadInput
from dovetail.history.asking import parse_moment
from dovetail.history.recording.reader import RecordingReader
from dovetail.history.verifying import VerifiedDecisions, verify_decisions
from dovetail.runtime import logs
from dovetail.settings.durations import parse_duration

PlacesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECORDING…",
        help="Folders, files that were cut, or s3://bucket/prefix; several are one recording.",
    ),
]
FromOption = Annotated[str, typer.Option("--from", metavar="T", help="Where to begin: a time, or 24h ago.")]
ToOption = Annotated[str, typer.Option("--to", metavar="T", help="Where to end: a time, or 1h ago.")]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Make every recorded decision again, and say which differ.")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="KEY=VALUE|FILE|NAME=…,…",
        help="A variation: a setting, manifests that replace their namesakes, or a named group of them.",
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="PATH=A,B,…",
        help="A variation for each value of a setting or of a field, as pools.NAME.spec.weight.",
    ),
]
SlicesOption = Annotated[
    str, typer.Option("--slices", metavar="DURATION", help="Play slices of this length side by side.")
]
WorkersOption = Annotated[
    int, typer.Option(min=1, help="Worker processes; with one, all is played in this process.")
]
DaskOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Play on the workers of this Dask scheduler instead.")
]
BoundsOption = Annotated[
    bool, typer.Option("--bounds", help="Also play with all and with the least capacity that can be assumed.")
]
HtmlOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with a chart here.")]


class Whose(StrEnum):
    """Whose choices are replayed."""

    recorded = "recorded"
    karpenter = "karpenter"
    dovetail = "dovetail"


class Assume(StrEnum):
    """Which capacity can be had."""

    optimistic = "optimistic"
    observed = "observed"
    pessimistic = "pessimistic"


AsOption = Annotated[
    Whose,
    typer.Option(
        "--as",
        help="Whose choices: recorded only adds up what was, karpenter plans one pod after the other.",
    ),
]
AssumeOption = Annotated[
    Assume,
    typer.Option(help="What can be bought: all that is listed, what was to be had, what was launched."),
]


def replay(
    places: PlacesArgument,
    verify: VerifyOption = False,
    tried: WithOption = None,
    vary: VaryOption = None,
    whose: AsOption = Whose.dovetail,
    since: FromOption = "",
    until: ToOption = "",
    slices: SlicesOption = "",
    workers: WorkersOption = 1,
    dask: DaskOption = "",
    seed: Annotated[int, typer.Option(help="Of chance; the same seed gives the same bytes.")] = 1,
    assume: AssumeOption = Assume.observed,
    bounds: BoundsOption = False,
    html: HtmlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Replay a recorded cluster, as it was ruled and under other rules.

    Which pods were wanted, what was sold and what the cloud took back is as recorded; what is done about it
    is decided anew by the controllers themselves, in virtual time. Ctrl-C ends it early, with what is done.
    Exit codes: 0 fine, 1 the recording cannot be read, 3 decisions differ or pods are left without a place.
    """
    logs.configure_logging("error", ("/dev/null",))
    now = datetime.now(UTC)
    begin = parse_moment(since, now, "--from") if since else None
    end = parse_moment(until, now, "--to") if until else None
    if begin is not None and end is not None and begin > end:
        raise BadInput("--from is after --to; exchange them")
    if verify:
        _verify(places, begin, end, output)
        return
    # Half of what there is to import, and verifying needs none of it.
    from dovetail.cli.views.replays import ReplayChoices, play_recording
    from dovetail.play.replay_page import render_replay_page
    from dovetail.play.replay_report import build_report_document, render_report

    if html is not None:
        expect_writable(html)
    choices = ReplayChoices(
        tuple(tried or ()),
        tuple(vary or ()),
        whose.value,
        seed,
        assume.value,
        bounds,
        (_parse_slices(slices), workers, dask),
    )
    report = play_recording(places, begin, end, choices)
    if output is Output.table:
        print_text(render_report(report))
    else:
        print_structured(build_report_document(report), output)
    if html is not None:
        write_file(html, render_replay_page(report, places[0]).encode())
        print_note(f"the page is in {html}")
    if report.unplaced:
        raise typer.Exit(LEFT_OUT)


def _parse_slices(text: str) -> timedelta | None:
    if not text:
        return None
    try:
        length = parse_duration(text)
    except ValueError as error:
        raise BadInput(f"--slices {text}: write a duration such as 24h") from error
    if length < timedelta(hours=2):
        raise BadInput(f"--slices {text}: an hour before each slice is played beside it; at least 2h")
    return length


def _verify(places: Sequence[str], begin: datetime | None, end: datetime | None, output: Output) -> None:
    with open_recordings(places) as reader:
        found = _verify_decisions(reader, begin, end)
        tell_missing(reader)
    print_verified(found, output)
    if found.differing:
        raise typer.Exit(LEFT_OUT)


def _verify_decisions(
    reader: RecordingReader, begin: datetime | None, end: datetime | None
) -> VerifiedDecisions:
    first, last = begin or reader.segments[0].head.began, end or reader.segments[-1].head.began
    with watch_progress(first, last) as tell:
        found = verify_decisions(reader.looks(begin, end), tell)
    if found.stopped:
        print_note("stopped early; this is what was made again so far")
    return found
