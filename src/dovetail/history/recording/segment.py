"""Segments: the lines of a recording, gzipped, each segment ended by its length and digest.

A segment begins with its head and a keyframe. Each line has a checksum, and what was written is flushed after
each look, so that a segment that was torn is read as far as it is whole. The end stands in a gzip member of
its own: it is found even where what stands before it cannot be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec

from dovetail.api.meta import Record
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.answers import RecordedDecision
from dovetail.history.recording.encoder import LookEncoder
from dovetail.history.recording.rows import LookLine, decode_value, encode_row

__all__ = [
    "FORMAT",
    "DroppedLooks",
    "LineSplitter",
    "RenameLine",
    "SegmentEnd",
    "SegmentHead",
    "SegmentLine",
    "SegmentReader",
    "SegmentWriter",
    "inflate_piece",
    "read_line",
    "split_segments",
]

FORMAT: Final = "dovetail-recording/1"
GZIP: Final = 31
"""zlib's word for a gzip member."""
LEVEL: Final = 6
_CHECK: Final = 9
"""A line begins with eight hexadecimal digits and a space."""
_TAIL: Final = 1024
_MAGIC: Final = b"\x1f\x8b\x08"
_STEP: Final = 1 << 16
MOST_LINE_BYTES: Final = 256 << 20
"""No look of any cluster comes near it; without a bound, a few kilobytes would fill a reader's memory."""


class SegmentHead(Record, frozen=True):
    """What a segment says of itself before its first look.

    `follows` is the name of the segment that the same writer ended before; without it something may be
    missing in between. `names` says whether names are as they were (keep) or hashed.
    """

    format: str
    name: str
    began: Annotated[datetime, msgspec.Meta(tz=True)]
    by: str = ""
    cluster: str = ""
    version: str = ""
    follows: str = ""
    names: str = "keep"
    settings: Mapping[str, str] = {}


class SegmentEnd(Record, frozen=True):
    """What a segment held, when it ended as it should: bytes before gzip, and their SHA-256."""

    ended: Annotated[datetime, msgspec.Meta(tz=True)]
    looks: int
    decisions: int
    bytes: int
    sha256: str


class DroppedLooks(Record, frozen=True):
    """Looks that were not written because writing fell behind."""

    looks: int
    first: datetime
    last: datetime
    decisions: int = 0


class SegmentLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a segment: exactly one of these."""

    head: SegmentHead | None = None
    look: LookLine | None = None
    decision: RecordedDecision | None = None
    record: DecisionRecord | None = None
    dropped: DroppedLooks | None = None
    end: SegmentEnd | None = None


RenameLine = Callable[[SegmentLine], SegmentLine]
"""Another line in the place of a line: one that hides names."""


def _frame_line(line: SegmentLine) -> bytes:
    body = encode_row(line)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def read_line(framed: bytes) -> SegmentLine:
    """The line; ValueError when its checksum is another, or when it is none."""
    body = framed[_CHECK:-1]
    if framed[:_CHECK] != b"%08x " % zlib.crc32(body):
        raise ValueError("a line has another checksum than it says")
    line: SegmentLine = decode_value(body, SegmentLine)
    return line


class SegmentWriter:
    """Writes one segment; its bytes are taken with `flush`, as often as looks are to be safe."""

    def __init__(self, head: SegmentHead, rename: RenameLine | None = None) -> None:
        self._rename = rename
        self._encoder = LookEncoder()
        self._gzip = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
        self._digest = sha256()
        self._bytes = 0
        self._decisions = 0
        self._pending: list[bytes] = []
        self._add(SegmentLine(head=head))

    @property
    def looks(self) -> int:
        """How many looks were written."""
        return self._encoder.number

    def write_look(
        self, situation: Situation, at: datetime, digest: str = "", *, always: bool = True
    ) -> bool:
        """A look, whole if it is the first; its number is that of `looks` afterwards.

        Unless it is `always` to be written, one that differs in nothing from the last is left out: False.
        """
        look = self._encoder.encode_look(situation, at, digest)
        if not always and not look.differs:
            return False
        self._encoder.number += 1
        self._add(SegmentLine(look=look))
        return True

    def write_line(self, line: SegmentLine) -> None:
        """What stands beside looks, a decision or a record; or a line of another recording as it is."""
        self._decisions += line.decision is not None
        self._encoder.number += line.look is not None
        self._add(line)

    def flush(self) -> bytes:
        """The bytes since the last flush; with them, all lines so far can be read without what follows."""
        self._pending.append(self._gzip.flush(zlib.Z_SYNC_FLUSH))
        return self._take_pending()

    def end_segment(self, ended: datetime) -> bytes:
        """The last bytes; nothing may be written after them."""
        end = SegmentEnd(
            ended=ended,
            looks=self.looks,
            decisions=self._decisions,
            bytes=self._bytes,
            sha256=self._digest.hexdigest(),
        )
        last = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
        self._pending += (self._gzip.flush(), last.compress(_frame_line(SegmentLine(end=end))), last.flush())
        return self._take_pending()

    def _take_pending(self) -> bytes:
        pending, self._pending = self._pending, []
        return b"".join(pending)

    def _add(self, line: SegmentLine) -> None:
        framed = _frame_line(line if self._rename is None else self._rename(line))
        self._bytes += len(framed)
        self._digest.update(framed)
        self._pending.append(self._gzip.compress(framed))


@dataclass
class SegmentReader:
    """Reads the lines of a segment as far as they are whole; `torn` says afterwards what is wrong."""

    data: bytes
    end: SegmentEnd | None = None
    torn: str = ""
    looks: int = 0

    def read_head(self) -> SegmentHead:
        """What the segment says of itself; BadInput when it is none, or of another format."""
        first = next(_read_lines(self.data, []), b"")
        try:
            body = msgspec.json.decode(first[_CHECK:], type=dict[str, Any])
            found = body.get("head", {}).get("format")
        except (msgspec.MsgspecError, UnicodeError, AttributeError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise BadInput("it is no segment of a recording")
        if found != FORMAT:
            raise BadInput(
                f"its format is {found[:40]!r} and this version reads {FORMAT!r}; "
                "read it with the version that wrote it"
            )
        try:
            head = read_line(first).head
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError) as error:
            raise BadInput("its first line is damaged") from error
        assert head is not None, "the line says that it is a head"
        return head

    def __iter__(self) -> Iterator[SegmentLine]:
        self.end, self.torn, self.looks = None, "", 0
        troubles: list[str] = []
        digest, size = sha256(), 0
        for framed in _read_lines(self.data, troubles):
            try:
                line = read_line(framed)
            except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError) as error:
                troubles.append(str(error))
                break
            if line.end is not None:
                self.end = line.end
                if (line.end.bytes, line.end.sha256) != (size, digest.hexdigest()):
                    troubles.append("its digest is another than it says")
                break
            size += len(framed)
            digest.update(framed)
            self.looks += line.look is not None
            yield line
        if self.end is None:
            self.end = _find_end(self.data)
            troubles.append("it has no end")
        self.torn = troubles[0] if troubles else ""


def split_segments(data: bytes) -> Iterator[bytes]:
    """The segments of a file that holds several, one after another; the last one may be torn."""
    start, lines, head = 0, 0, b""
    for text, ended in _inflate_members(data, []):
        head += text[: _TAIL - len(head)]
        lines += text.count(b"\n")
        if not ended:
            continue
        if lines == 1 and head[_CHECK:].startswith(b'{"end":'):
            yield data[start:ended]
            start = ended
        lines, head = 0, b""
    if start < len(data):
        yield data[start:]


def inflate_piece(member: zlib._Decompress, piece: bytes | memoryview) -> Iterator[bytes]:
    """The text of a piece of a gzip member, a little at a time: a small piece may hold very much."""
    while piece and not member.eof:
        yield member.decompress(piece, _STEP)
        piece = member.unconsumed_tail


def _inflate_members(data: bytes, troubles: list[str]) -> Iterator[tuple[bytes, int]]:
    """The text of gzip members one after another, as far as they can be read.

    With the last of each member comes the place in the bytes where it ends, with the others zero.
    """
    rest = memoryview(data)
    start = 0
    while start < len(rest):
        member = zlib.decompressobj(GZIP)
        try:
            while start < len(rest) and not member.eof:
                piece = rest[start : start + _STEP]
                start += len(piece)
                for text in inflate_piece(member, piece):
                    start -= len(member.unused_data)
                    yield text, start if member.eof else 0
        except zlib.error as error:
            troubles.append(f"its bytes are damaged ({error})")
            return


def _read_lines(data: bytes, troubles: list[str]) -> Iterator[bytes]:
    """Whole lines with their ends; what follows the last of them is left out."""
    lines = LineSplitter()
    try:
        for text, _ in _inflate_members(data, troubles):
            yield from lines.add_text(text)
    except _LongLine as error:
        troubles.append(str(error))


class _LongLine(ValueError):
    """A line beyond all measure: whoever wrote it means harm, or the bytes are no recording."""

    def __init__(self) -> None:
        super().__init__(f"a line is longer than {MOST_LINE_BYTES >> 20} MiB")


class LineSplitter:
    """Lines out of text that comes piece by piece; a line that does not end is held up to a bound."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0

    def add_text(self, text: bytes) -> Iterator[bytes]:
        """The lines that end in this text, with their ends; _LongLine when one does not end at all."""
        first, *others = text.split(b"\n")
        self._hold(first)
        for other in others:
            yield b"".join((*self._held, b"\n"))
            self._held, self._size = [], 0
            self._hold(other)

    def _hold(self, text: bytes) -> None:
        self._size += len(text)
        if self._size > MOST_LINE_BYTES:
            raise _LongLine
        self._held.append(text)


def _find_end(data: bytes) -> SegmentEnd | None:
    """The end of a segment whose other bytes cannot all be read."""
    tail = data[-_TAIL:]
    at = tail.rfind(_MAGIC)
    while at >= 0:
        for framed in _read_lines(tail[at:], []):
            try:
                return read_line(framed).end
            except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
                break
        at = tail.rfind(_MAGIC, 0, at)
    return None
