"""RecordingReader: the looks of a recording, from first to last or at a time, with what was decided on each.

Segments are handed in by name, each with a function that gives its bytes. What cannot be read is told in
`troubles` and never guessed: a look is whole or it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, note_contained
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.answers import RecordedDecision
from dovetail.history.recording.decoder import LookDecoder
from dovetail.history.recording.segment import DroppedLooks, SegmentEnd, SegmentHead, SegmentReader

__all__ = ["RecordedLook", "RecordingGap", "RecordingReader", "RecordingSegment", "SegmentSource"]


class SegmentSource(NamedTuple):
    """One segment: its name, and the function that reads all its bytes."""

    name: str
    read: Callable[[], bytes]


@dataclass(slots=True)
class RecordedLook:
    """One look: when, what was seen, and what was decided on it.

    `records` are the records of decisions that were written between this look and the next.
    """

    segment: int
    number: int
    at: datetime
    situation: Situation
    key: bool = False
    digest: str = ""
    decisions: list[RecordedDecision] = field(default_factory=list)
    records: list[DecisionRecord] = field(default_factory=list)
    dropped: list[DroppedLooks] = field(default_factory=list)


@dataclass(slots=True)
class RecordingSegment:
    """A segment by its number from 1: its head, and what was found when its lines were read."""

    number: int
    source: SegmentSource
    head: SegmentHead
    end: SegmentEnd | None = None
    last: datetime | None = None
    looks: int = 0
    torn: str = ""


class RecordingGap(NamedTuple):
    """A time of which nothing is recorded, and why."""

    since: datetime
    until: datetime | None
    why: str

    def __str__(self) -> str:
        return f"{_tell(self.since)} to {_tell(self.until) if self.until else 'the end'}: {self.why}"


class RecordingReader:
    """A recording, by its segments in order of time. What is wrong is found while it is read."""

    def __init__(self, sources: Iterable[SegmentSource]) -> None:
        self.troubles: list[str] = []
        found = []
        for source in sources:
            try:
                found.append((SegmentReader(source.read()).read_head(), source))
            except BadInput as error:
                self.troubles.append(f"{source.name}: {error}")
        found.sort(key=lambda each: (each[0].began, each[0].name))
        self.segments = [
            RecordingSegment(number, source, head) for number, (head, source) in enumerate(found, 1)
        ]

    def looks(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[RecordedLook]:
        """Every whole look of the time, each with the decisions and records that follow it."""
        for at, segment in enumerate(self.segments):
            following = self.segments[at + 1].head.began if at + 1 < len(self.segments) else None
            if until is not None and segment.head.began > until:
                return
            if since is not None and following is not None and following <= since:
                continue  # the segment ends before, whether or not it is whole
            for look in self._read_segment(segment):
                if until is not None and look.at > until:
                    return
                if since is None or look.at >= since:
                    yield look

    def at(self, time: datetime) -> RecordedLook:
        """The last look before or at a time; BadInput when there is none, or when it is missing there."""
        segment = next((each for each in reversed(self.segments) if each.head.began <= time), None)
        if segment is None:
            raise BadInput(f"nothing is recorded before {_tell(self.first) if self.first else 'the end'}")
        found = None
        for look in self._read_segment(segment):
            if look.at > time:
                break
            found = look
        if found is None:
            raise BadInput(f"segment {segment.number} has no whole look at or before {_tell(time)}")
        return found

    @property
    def first(self) -> datetime | None:
        """When the recording begins."""
        return self.segments[0].head.began if self.segments else None

    def list_gaps(self) -> list[RecordingGap]:
        """The times of which nothing is recorded, as far as segments were read."""
        gaps = []
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.torn:
                why = describe_torn(before, after.head.began)
            elif after.head.follows == before.head.name:
                continue
            elif after.head.by != before.head.by:
                why = "another leader began"
            else:
                why = "writing began anew"
            gaps.append(RecordingGap(before.last or before.head.began, after.head.began, why))
        last = self.segments[-1] if self.segments else None
        if last is not None and last.torn:
            gaps.append(RecordingGap(last.last or last.head.began, None, describe_torn(last, None)))
        return gaps

    def _read_segment(self, segment: RecordingSegment) -> Iterator[RecordedLook]:
        """The looks of a segment; what is known of it is set anew when all of it was read."""
        reader, decoder = SegmentReader(segment.source.read()), LookDecoder()
        current: RecordedLook | None = None
        last, looks, wrong = None, 0, ""
        for line in reader:
            if line.look is not None:
                if current is not None:
                    yield current
                try:
                    decoder.apply_look(line.look)
                    situation = decoder.build_situation()
                except Exception as error:  # noqa: BLE001 (a row that nobody wrote like this; all before it is whole)
                    note_contained(error)
                    current, wrong = None, f"a look cannot be read ({error})"
                    break
                last, looks = line.look.at, looks + 1
                current = RecordedLook(
                    segment.number, line.look.number, line.look.at, situation, line.look.key, line.look.digest
                )
            elif current is not None:
                _add_line(current, line.decision, line.record, line.dropped)
        if current is not None:
            yield current
        segment.last, segment.looks = last, looks
        segment.end, segment.torn = reader.end, wrong or reader.torn


def _add_line(
    look: RecordedLook,
    decision: RecordedDecision | None,
    record: DecisionRecord | None,
    dropped: DroppedLooks | None,
) -> None:
    if decision is not None and decision.look == look.number:
        look.decisions.append(decision)
    if record is not None:
        look.records.append(record)
    if dropped is not None:
        look.dropped.append(dropped)


def describe_torn(segment: RecordingSegment, until: datetime | None) -> str:
    """Where a segment that is not whole ends, and what of it is missing."""
    of = f" of {segment.end.looks:,}" if segment.end is not None else ""
    ends = until if until is not None else segment.end.ended if segment.end is not None else None
    missing = f"what follows until {_tell(ends)} is missing" if ends else "what follows is missing"
    return f"segment {segment.number} ends after {segment.looks:,}{of} looks; {missing}"


def _tell(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
