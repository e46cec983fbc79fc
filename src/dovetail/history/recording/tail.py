"""SegmentTail: the looks of a segment while it is being written, as its bytes come."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from dovetail.history.record import DecisionRecord
from dovetail.history.recording.decoder import LookDecoder
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.recording.segment import (
    GZIP,
    LineSplitter,
    SegmentEnd,
    SegmentHead,
    SegmentLine,
    inflate_piece,
    read_line,
)

__all__ = ["SegmentTail"]


class SegmentTail:
    """Takes the bytes of one segment piece by piece; what cannot be read ends it, and `torn` says so."""

    def __init__(self, number: int = 1) -> None:
        self._number = number
        self._member = zlib.decompressobj(GZIP)
        self._decoder = LookDecoder()
        self._lines = LineSplitter()
        self.head: SegmentHead | None = None
        self.end: SegmentEnd | None = None
        self.torn = ""
        # What was written beside the looks so far; whoever reads them takes them away.
        self.records: list[DecisionRecord] = []

    def add_bytes(self, data: bytes) -> Iterator[RecordedLook]:
        """The looks that are whole with these bytes."""
        try:
            for framed in self._split_lines(data):
                look = self._apply_line(read_line(framed))
                if look is not None:
                    yield look
        except (zlib.error, msgspec.MsgspecError, ValueError, LookupError, RecursionError) as error:
            self.torn = str(error)

    def _split_lines(self, data: bytes) -> Iterator[bytes]:
        while data and not self.torn:
            for text in inflate_piece(self._member, data):
                yield from self._lines.add_text(text)
            data = b""
            if self._member.eof:
                data, self._member = self._member.unused_data, zlib.decompressobj(GZIP)

    def _apply_line(self, line: SegmentLine) -> RecordedLook | None:
        self.head = line.head or self.head
        self.end = line.end or self.end
        if line.record is not None:
            self.records.append(line.record)
        if line.look is None:
            return None
        self._decoder.apply_look(line.look)
        situation = self._decoder.build_situation()
        return RecordedLook(
            self._number, line.look.number, line.look.at, situation, line.look.key, line.look.digest
        )
