"""``dovetail recording``: what a recording holds, parts of it, all without names, a moment as a snapshot."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from dovetail.app.recordings import open_recording, see_look
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.files import STDIN, expect_writable, write_file
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    format_count,
    print_note,
    print_structured,
    print_text,
)
from dovetail.errors import BadInput, Misconfigured
from dovetail.history.asking import parse_moment
from dovetail.history.recording.editing import anonymise_segments, cut_segments
from dovetail.history.recording.reader import RecordingReader
from dovetail.history.recording.summary import RecordingSummary, summarise_recording
from dovetail.runtime.recording_folder import SUFFIX

Action = Literal["info", "cut", "anonymise", "snapshot"]
ActionArgument = Annotated[
    Action,
    typer.Argument(
        help="info: what it holds; cut: a part of the time; anonymise: the same without names; "
        "snapshot: one moment as a file of `dovetail snapshot`."
    ),
]
PlaceArgument = Annotated[
    str, typer.Argument(metavar="RECORDING", help="A folder, a file that was cut, or s3://bucket/prefix.")
]
TargetArgument = Annotated[str, typer.Argument(metavar="OUT", help="The folder that anonymise writes to.")]
FromOption = Annotated[str, typer.Option("--from", metavar="T", help="Where to begin: a time, or 24h ago.")]
ToOption = Annotated[str, typer.Option("--to", metavar="T", help="Where to end: a time, or 1h ago.")]
AtOption = Annotated[str, typer.Option("--at", metavar="T", help="The moment: a time, or 3h ago.")]
OutOption = Annotated[str, typer.Option("--out", metavar="FILE", help="Where to write it; - for stdout.")]


def recording(
    action: ActionArgument,
    place: PlaceArgument,
    target: TargetArgument = "",
    since: FromOption = "",
    until: ToOption = "",
    at: AtOption = "",
    out: OutOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Look into a recording of what decisions saw, or make another one of it.

    A recording is made by the controller with RECORDING, or by `dovetail record` beside any autoscaler. What
    is missing in it is told, never guessed. Exit codes: 0 fine, 1 something is missing or cannot be read.
    """
    with open_recording(place) as reader:
        if reader.troubles and not reader.segments:
            raise BadInput(f"reading the recording {place}: {reader.troubles[0]}")
        if action == "info":
            complete = _show_info(reader, place, output)
        elif action == "cut":
            complete = _cut_recording(reader, place, since, until, out)
        elif action == "anonymise":
            complete = _hide_names(reader, place, target or out)
        else:
            complete = _write_snapshot(reader, place, at, out)
    if not complete:
        raise typer.Exit(COMPLAINTS)


def _show_info(reader: RecordingReader, place: str, output: Output) -> bool:
    found = summarise_recording(reader)
    size = sum(len(segment.source.read()) for segment in reader.segments)
    if output is Output.table:
        print_text(_describe(found, size))
    else:
        print_structured(_build_document(found, size), output)
    return _tell_missing(reader, place)


def _describe(found: RecordingSummary, size: int) -> str:
    ready = found.median_seconds_to_ready
    dropped = f", {found.dropped_looks:,} dropped" if found.dropped_looks else ""
    limited = f", {found.timed_out:,} of them cut short by a time limit" if found.timed_out else ""
    booted = f", half of them ready within {ready:.0f} s" if ready is not None else ""
    rows = (
        ("from", _tell(found.since)),
        ("to", _tell(found.until)),
        ("nodes", f"{found.fewest_nodes:,} to {found.most_nodes:,}"),
        ("pods", f"{found.fewest_pods:,} to {found.most_pods:,}"),
        ("looks", f"{found.looks:,} in {format_count(found.segments, 'segment')}{dropped}"),
        ("decisions", f"{found.decisions:,}{limited}"),
        ("records", f"{found.records:,}"),
        (
            "orders",
            f"{len(found.orders):,}{booted}",
        ),
        ("gaps", "; ".join(found.gaps) or "none"),
        ("size", f"{size:,} bytes"),
    )
    return "".join(f"{name:<10} {value}\n" for name, value in rows)


def _build_document(found: RecordingSummary, size: int) -> dict[str, object]:
    return {
        "from": _tell(found.since),
        "to": _tell(found.until),
        "segments": found.segments,
        "looks": found.looks,
        "droppedLooks": found.dropped_looks,
        "decisions": found.decisions,
        "questions": found.questions,
        "timedOut": found.timed_out,
        "records": found.records,
        "nodes": {"fewest": found.fewest_nodes, "most": found.most_nodes},
        "pods": {"fewest": found.fewest_pods, "most": found.most_pods},
        "orders": [
            {
                "claim": each.claim,
                "pool": each.pool,
                "instanceType": each.instance_type,
                "zone": each.zone,
                "capacityType": each.capacity_type,
                "secondsToReady": each.seconds_to_ready,
            }
            for each in found.orders
        ],
        "gaps": list(found.gaps),
        "unreadable": list(found.unreadable),
        "bytes": size,
    }


def _cut_recording(reader: RecordingReader, place: str, since: str, until: str, out: str) -> bool:
    if not since or not until or not out:
        raise Misconfigured("cut needs --from, --to and --out, such as --from 3h --to 2h --out part.gz")
    expect_writable(Path(out))
    now = datetime.now(UTC)
    begin, end = parse_moment(since, now, "--from"), parse_moment(until, now, "--to")
    data = b"".join(cut_segments(reader, begin, end))
    if not data:
        raise BadInput(f"cutting the recording {place}: there is no look from {_tell(begin)} to {_tell(end)}")
    write_file(Path(out), data, private=True)
    print_note(f"{out}: {_tell(begin)} to {_tell(end)}, {len(data):,} bytes")
    return _tell_missing(reader, place)


def _hide_names(reader: RecordingReader, place: str, out: str) -> bool:
    if not out:
        raise Misconfigured("anonymise needs a folder to write to: dovetail recording anonymise IN OUT")
    folder = Path(out)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"writing to {out}: {(error.strerror or str(error)).lower()}") from error
    size = 0
    for name, data in anonymise_segments(reader, secrets.token_bytes(32)):
        write_file(folder / f"{name}{SUFFIX}", data, private=True)
        size += len(data)
    print_note(f"{out}: {format_count(len(reader.segments), 'segment')} without names, {size:,} bytes")
    return _tell_missing(reader, place)


def _write_snapshot(reader: RecordingReader, place: str, at: str, out: str) -> bool:
    if not at:
        raise Misconfigured("snapshot needs a moment, such as --at 2026-11-02T03:12:00Z or --at 3h")
    look = reader.at(parse_moment(at, datetime.now(UTC), "--at"))
    data = encode_snapshot(see_look(reader, look))
    if not out or out == STDIN:
        print_text(data.decode())
    else:
        expect_writable(Path(out))
        write_file(Path(out), data, private=True)
    print_note(
        f"as it was seen at {_tell(look.at)}: {format_count(len(look.situation.snapshot.nodes), 'node')}"
    )
    return True


def _tell_missing(reader: RecordingReader, place: str) -> bool:
    """Say what could not be read; whether all of it could."""
    torn = [gap.why for gap in reader.list_gaps() if gap.why.startswith("segment ")]
    for why in (*reader.troubles, *torn):
        print_note(f"reading the recording {place}: {why}")
    return not reader.troubles and not torn


def _tell(time: datetime | None) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}" if time is not None else ""
