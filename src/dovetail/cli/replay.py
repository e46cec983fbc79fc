"""``dovetail replay``: recorded decisions made again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from dovetail.app.recordings import open_recording
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_note
from dovetail.cli.views.progress import count_interrupts, draw_bar, wipe_bar
from dovetail.cli.views.verified import print_verified
from dovetail.errors import BadInput, Misconfigured
from dovetail.history.asking import parse_moment
from dovetail.history.recording.reader import RecordingReader
from dovetail.history.verifying import VerifiedDecisions, verify_decisions
from dovetail.runtime import logs

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


def replay(
    places: PlacesArgument,
    verify: VerifyOption = False,
    since: FromOption = "",
    until: ToOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Make recorded decisions again, and say what differs.

    Run with a new release, --verify is the rehearsal of an upgrade. Ctrl-C ends it early, with what is done.
    Exit codes: 0 all decisions are equal, 1 the recording cannot be read, 3 some decisions differ.
    """
    logs.configure_logging("error", ("/dev/null",))
    now = datetime.now(UTC)
    begin = parse_moment(since, now, "--from") if since else None
    end = parse_moment(until, now, "--to") if until else None
    if begin is not None and end is not None and begin > end:
        raise BadInput("--from is after --to; exchange them")
    if not verify:
        raise Misconfigured("say --verify: every recorded decision is made again")
    with _open_recordings(places) as reader:
        found = _verify(reader, begin, end)
        _tell_missing(reader)
    print_verified(found, output)
    if found.differing:
        raise typer.Exit(LEFT_OUT)


@contextmanager
def _open_recordings(places: Sequence[str]) -> Iterator[RecordingReader]:
    """All the places as one recording, in order of time."""
    with ExitStack() as stack:
        readers = [stack.enter_context(open_recording(place)) for place in places]
        for place, each in zip(places, readers, strict=True):
            if each.troubles and not each.segments:
                raise BadInput(f"reading the recording {place}: {each.troubles[0]}")
        if len(readers) == 1:
            yield readers[0]
            return
        whole = RecordingReader(segment.source for each in readers for segment in each.segments)
        whole.troubles += [trouble for each in readers for trouble in each.troubles]
        yield whole


def _verify(reader: RecordingReader, begin: datetime | None, end: datetime | None) -> VerifiedDecisions:
    show = sys.stderr.isatty()
    first, last = begin or reader.segments[0].head.began, end or reader.segments[-1].head.began
    length = max((last - first).total_seconds(), 1.0)
    with count_interrupts() as interrupted:

        def tell(at: datetime) -> bool:
            if show:
                draw_bar(min((at - first).total_seconds() / length, 1.0), f"{at:%a %d %b %H:%M}")
            return interrupted[0] > 0

        found = verify_decisions(reader.looks(begin, end), tell)
    if show:
        wipe_bar()
    if found.stopped:
        print_note("stopped early; this is what was made again so far")
    return found


def _tell_missing(reader: RecordingReader) -> None:
    torn = [gap.why for gap in reader.list_gaps() if gap.why.startswith("segment ")]
    for why in (*reader.troubles, *torn):
        print_note(f"reading the recording: {why}")
