"""Shadow mode: a cluster is recorded, and what is recorded is compared with what Dovetail would have done.

    recorder ─► TeePlace ─► the recording
                        ─► SegmentFeed ─► ShadowFold      what was paid, one-step differences
                        ─► SegmentFeed ─► TwinConsumer    the twin, and the calibration twin

The recording is all the state there is: after a restart everything is fed from it once more. Nothing is
written to the cluster, and two shadows of one cluster know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from dovetail.history.record import DecisionRecord
from dovetail.history.recording.reader import RecordedLook, SegmentSource
from dovetail.history.recording.segment import SegmentHead
from dovetail.history.recording.tail import SegmentTail
from dovetail.ports import RecordingPlace

__all__ = [
    "LookConsumer",
    "SegmentFeed",
    "SegmentSink",
    "TeePlace",
    "feed_segments",
    "find_since",
    "find_span",
]


class LookConsumer(Protocol):
    """Takes the looks of a recording in order of time."""

    def begin_segment(self, head: SegmentHead) -> None:
        """A segment begins, with what it says of itself."""

    def add_look(self, look: RecordedLook) -> None:
        """One more look."""

    def add_record(self, record: DecisionRecord) -> None:
        """Something that was heard between two looks; it comes after the second of them."""

    def end_segment(self, ended: datetime) -> None:
        """Until this time nothing differed from the last look."""

    def skip_gap(self, until: datetime) -> None:
        """Nothing was watched until this time."""


class SegmentSink(Protocol):
    """Takes the bytes of segments as they are written."""

    def begin_segment(self, name: str) -> None:
        """A segment begins; the one before may have been torn."""

    def add_bytes(self, data: bytes) -> None:
        """More of the segment."""


class SegmentFeed:
    """Feeds a consumer with the looks of segments, as their bytes come; what is missing is a gap.

    Only what is from `since` on counts, and only what is before `until`: the last look before holds until
    the next one that differs.
    """

    def __init__(
        self, consumer: LookConsumer, since: datetime | None = None, until: datetime | None = None
    ) -> None:
        self._consumer = consumer
        self._since = since
        self._until = until
        self._over = False
        self._held: RecordedLook | None = None
        self._tail = SegmentTail()
        self._number = 0
        self._follows = ""
        self._fed = False
        self._fresh = True

    def begin_segment(self, name: str) -> None:
        """A segment begins."""
        ended = self._tail.end is not None and self._tail.head is not None
        self._follows = self._tail.head.name if ended and self._tail.head is not None else ""
        self._number += 1
        self._tail, self._fresh = SegmentTail(self._number), True

    def add_bytes(self, data: bytes) -> None:
        """More of the segment."""
        tail = self._tail
        ended = tail.end is not None
        for look in tail.add_bytes(data):
            self._hand_records()
            if self._over:
                continue
            if self._since is not None and look.at < self._since:
                self._held = look
                continue
            self._begin_held()
            if self._until is not None and look.at >= self._until:
                self._end_time()
                continue
            if self._fresh and tail.head is not None:
                if self._fed and not self._is_next(tail.head):
                    self._consumer.skip_gap(look.at)
                self._consumer.begin_segment(tail.head)
            self._fresh, self._fed = False, True
            self._consumer.add_look(look)
        if tail.end is not None and self._since is not None and tail.end.ended > self._since:
            self._begin_held()
        self._hand_records()
        if tail.end is not None and not ended and self._fed and not self._over:
            self._consumer.end_segment(min(tail.end.ended, self._until or tail.end.ended))

    def _begin_held(self) -> None:
        """Begin with the look that held when the time began, where nothing is missing since."""
        held, self._held, head = self._held, None, self._tail.head
        if held is None or head is None or self._since is None:
            return
        if held.segment == self._number or self._is_next(head):
            self._consumer.begin_segment(head)
            self._consumer.add_look(replace(held, at=self._since, decisions=[], records=[], dropped=[]))
            self._fresh, self._fed = False, True

    def _is_next(self, head: SegmentHead) -> bool:
        """Whether nothing is missing between the segment before, which has its end, and this one."""
        return bool(self._follows) and head.follows == self._follows

    def _end_time(self) -> None:
        """What follows is of another time: until then nothing differed, unless something is missing."""
        self._over = True
        head = self._tail.head
        missing = self._fresh and head is not None and not self._is_next(head)
        if self._fed and self._until is not None and not missing:
            self._consumer.end_segment(self._until)

    def _hand_records(self) -> None:
        records, self._tail.records = self._tail.records, []
        if self._fed and not self._over:
            for record in records:
                self._consumer.add_record(record)


class TeePlace:
    """A place of a recording that also hands every byte to whoever follows it."""

    def __init__(self, inner: RecordingPlace, sinks: Iterable[SegmentSink]) -> None:
        self._inner = inner
        self._sinks = tuple(sinks)

    async def begin_segment(self, name: str) -> None:
        await self._inner.begin_segment(name)
        for sink in self._sinks:
            sink.begin_segment(name)

    async def append_bytes(self, data: bytes) -> None:
        await self._inner.append_bytes(data)
        for sink in self._sinks:
            sink.add_bytes(data)

    async def end_segment(self) -> None:
        await self._inner.end_segment()

    async def forget_before(self, time: datetime) -> None:
        await self._inner.forget_before(time)


def feed_segments(sources: Iterable[SegmentSource], sinks: Iterable[SegmentSink]) -> None:
    """Hand whole segments of a recording, the oldest first, to whoever follows it."""
    followers = tuple(sinks)
    for source in sources:
        data = source.read()
        for sink in followers:
            sink.begin_segment(source.name)
            sink.add_bytes(data)


def find_span(heads: Iterable[SegmentHead]) -> tuple[datetime, datetime] | None:
    """When the first and the last segment of a recording began; None without any."""
    times = [head.began for head in heads]
    return (min(times), max(times)) if times else None


def find_since(sources: Iterable[SegmentSource], length: timedelta | None) -> datetime | None:
    """When the last so many hours of a recording began; None for all of it."""
    if length is None:
        return None
    last: datetime | None = None
    for source in sources:
        tail = SegmentTail()
        for look in tail.add_bytes(source.read()):
            last = look.at
        last = tail.end.ended if tail.end is not None else last
    return last - length if last is not None else None
