"""Other recordings made from one: a part of its time, or all of it without its names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec.structs import replace

from dovetail.history.recording.anonymise import NameHider, rank_parts
from dovetail.history.recording.reader import RecordedLook, RecordingReader, RecordingSegment
from dovetail.history.recording.segment import SegmentHead, SegmentLine, SegmentReader, SegmentWriter

__all__ = ["anonymise_segments", "cut_segments"]


def cut_segments(reader: RecordingReader, since: datetime, until: datetime) -> Iterator[bytes]:
    """The segments of a recording of this time alone: each begins with a keyframe and is whole.

    The first look is the last one before the time, if it has none of its own at that very moment: what was
    seen then is known, too.
    """
    writer: SegmentWriter | None = None
    segment, last = 0, since
    for look in reader.looks(_find_start(reader, since), until):
        if writer is None or look.segment != segment:
            if writer is not None:
                yield writer.end_segment(last)
            segment = look.segment
            writer = SegmentWriter(_cut_head(reader.segments[segment - 1], look))
        last = look.at
        _copy_look(writer, look)
    if writer is not None:
        yield writer.end_segment(last)


def _find_start(reader: RecordingReader, since: datetime) -> datetime:
    first = reader.first
    return since if first is None or first >= since else reader.at(since).at


def _cut_head(segment: RecordingSegment, look: RecordedLook) -> SegmentHead:
    """The head of what is left of a segment; its first look may be of before the time."""
    return segment.head if look.key else replace(segment.head, began=look.at, follows="")


def _copy_look(writer: SegmentWriter, look: RecordedLook) -> None:
    writer.write_look(look.situation, look.at, look.digest)
    for decision in look.decisions:
        writer.write_line(SegmentLine(decision=replace(decision, look=writer.looks)))
    for record in look.records:
        writer.write_line(SegmentLine(record=record))
    for dropped in look.dropped:
        writer.write_line(SegmentLine(dropped=dropped))


def anonymise_segments(reader: RecordingReader, salt: bytes) -> Iterator[tuple[str, bytes]]:
    """Every segment with another name and without names in it; a torn one stays torn.

    Everything is read twice: pseudonyms that sort as names did need to know all names first.
    """
    parts: set[str] = set()
    collect = NameHider(_collect_into(parts))
    for segment in reader.segments:
        for line in SegmentReader(segment.source.read()):
            collect.hide_line(line)
    hider = NameHider(rank_parts(parts, salt))
    for segment in reader.segments:
        lines = SegmentReader(segment.source.read())
        head = hider.hide_line(SegmentLine(head=segment.head)).head
        assert head is not None, "a head stays a head"
        writer = SegmentWriter(head)
        for line in lines:
            if line.head is None:
                writer.write_line(hider.hide_line(line))
        whole = lines.end is not None and not lines.torn
        ended = lines.end.ended if lines.end is not None else head.began
        yield head.name, writer.end_segment(ended) if whole else writer.flush()


def _collect_into(parts: set[str]) -> Callable[[str], str]:
    def collect(part: str) -> str:
        parts.add(part)
        return part

    return collect
