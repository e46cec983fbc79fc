"""The chain of a decision log: each record is numbered and holds the digest of the one before.

A term is the time one leader writes. It begins with TermBegan, which is number 1 and names the last record
that the leader could read back. What a log lost is declared in it: by `lostAfter` of the next term, or by a
LogGap. `check_chain` finds whatever else is missing, changed or out of order, but for what was cut off the
end: nobody wrote after it. Keep the head that a check reports to find that, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.errors import BadInput
from dovetail.history.record import DecisionRecord, RecordKind, decode_record, encode_record

__all__ = [
    "ChainFault",
    "ChainReport",
    "DecisionChain",
    "FaultWord",
    "LogEnd",
    "LogPart",
    "check_chain",
    "digest_line",
    "find_log_end",
    "read_part_order",
]

MOST_FAULTS = 1_000


def digest_line(line: bytes) -> str:
    """The SHA-256 of a line without its end, in hexadecimal."""
    return sha256(line).hexdigest()


class LogEnd(NamedTuple):
    """Where a log ends: the last whole record's digest and number, and how many bytes are whole."""

    digest: str
    seq: int
    whole_bytes: int


class DecisionChain:
    """Links the records of one term, and gives the line of each, without its end."""

    def __init__(self) -> None:
        self._prev = ""
        self._seq = 0

    @property
    def seq(self) -> int:
        """The number of the last record."""
        return self._seq

    def begin_term(self, record: DecisionRecord, end: LogEnd | None = None) -> bytes:
        """The first line of a term, which follows what was read back of the log, if anything was."""
        assert record.kind is RecordKind.TERM_BEGAN, "a term begins with TermBegan"
        self._prev, self._seq = (end.digest if end else ""), 0
        return self.link_record(replace(record, lost_after=end.seq if end else None))

    def skip_records(self, count: int) -> tuple[int, int]:
        """Pass over the numbers of records that could not be written: the first and the last of them."""
        first = self._seq + 1
        self._seq += count
        return first, self._seq

    def declare_gap(self, record: DecisionRecord, first: int, last: int) -> bytes:
        """The line that says which records of this term could not be written."""
        assert record.kind is RecordKind.LOG_GAP, "a gap is declared by LogGap"
        return self.link_record(replace(record, gap_from=first, gap_to=last))

    def link_record(self, record: DecisionRecord) -> bytes:
        """The line of the next record."""
        self._seq += 1
        line = encode_record(replace(record, seq=self._seq, prev=self._prev))
        self._prev = digest_line(line)
        return line

    def link_line(self, line: bytes) -> bytes:
        """The line of the next record, given as `encode_record` wrote it: what is added comes last."""
        self._seq += 1
        prev = b',"prev":"%s"' % self._prev.encode() if self._prev else b""
        linked = b'%s,"seq":%d%s}' % (line[:-1], self._seq, prev)
        self._prev = digest_line(linked)
        return linked


def find_log_end(data: bytes) -> LogEnd | None:
    """Where the text of a log's last part ends; None when no line of it is a whole record.

    A writer that goes on with a part cuts it to `whole_bytes` first: a killed one may have left half a line.
    """
    whole = data.rfind(b"\n") + 1
    while whole:
        start = data.rfind(b"\n", 0, whole - 1) + 1
        try:
            record = decode_record(data[start : whole - 1])
        except BadInput:
            whole = start
            continue
        return LogEnd(digest_line(data[start : whole - 1]), record.seq, whole)
    return None


def read_part_order(first_line: bytes) -> str:
    """What the parts of a log are sorted by, given the first line of each: the id of that record."""
    try:
        return decode_record(first_line.removesuffix(b"\n")).id
    except BadInput:
        return ""


class LogPart(NamedTuple):
    """One file or object of a log: its name, and its lines with their ends."""

    name: str
    lines: Iterable[bytes]


class FaultWord(StrEnum):
    """What is wrong with a log, in one word."""

    TORN = "torn"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    MISSING = "missing"
    ORDER = "order"
    TERM = "term"


@dataclass(frozen=True, slots=True, order=True)
class ChainFault:
    """What is wrong at one line of a log. `position` counts lines over all parts."""

    position: int
    source: str
    line: int
    word: FaultWord
    message: str

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a check found. `head` is the digest of the last record; a later check of the log must know it."""

    records: int
    terms: int
    declared_gaps: int
    unlinked_terms: int
    head: str
    fault: ChainFault | None


@dataclass(frozen=True, slots=True)
class _Place:
    position: int
    source: str
    line: int

    def find_fault(self, word: FaultWord, message: str) -> ChainFault:
        return ChainFault(self.position, self.source, self.line, word, message)


@dataclass(slots=True)
class _Gap:
    """Numbers that are missing in a term, and the line after them."""

    first: int
    last: int
    place: _Place


@dataclass(slots=True)
class _ChainReader:
    """Follows a chain line by line, and collects faults."""

    faults: list[ChainFault] = field(default_factory=list)
    records: int = 0
    terms: int = 0
    declared: int = 0
    unlinked: int = 0
    place: _Place = field(default_factory=lambda: _Place(0, "", 0))
    digest: str = ""
    seq: int = 0
    # Of the term that is read: digests by number, what is missing, and what is declared missing.
    digests: dict[int, str] = field(default_factory=dict)
    gaps: list[_Gap] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    # Two lines do not fit together; the line after them shows which of the two was changed.
    suspects: tuple[_Place, _Place] | None = None

    def read_line(self, line: bytes, place: _Place) -> None:
        try:
            record = decode_record(line)
        except BadInput:
            self._add_fault(place.find_fault(FaultWord.UNREADABLE, "this is no record; the line was changed"))
            return
        self._settle_suspects(record)
        if record.kind is RecordKind.TERM_BEGAN:
            self._begin_term(record, place)
        elif self.records:
            self._follow_record(record, place)
        self.records += 1
        self.place, self.seq, self.digest = place, record.seq, digest_line(line)
        self.digests[record.seq] = self.digest
        if record.kind is RecordKind.LOG_GAP:
            self.ranges.append((record.gap_from, record.gap_to))

    def _begin_term(self, record: DecisionRecord, place: _Place) -> None:
        self.terms += 1
        if self.records and record.prev == "":
            self.unlinked += 1
        elif self.records:
            last = record.lost_after if record.lost_after is not None else self.seq
            known = self.digests.get(last)
            if last > self.seq:
                missing = _list_numbers(self.seq + 1, last)
                told = f"the term before wrote {missing}, which {_be(self.seq + 1, last)} missing"
                self._add_fault(place.find_fault(FaultWord.MISSING, told))
            elif known != record.prev:
                told = (
                    f"this term does not follow record {last} of the term before: one of the two was changed"
                )
                self._add_fault(place.find_fault(FaultWord.TERM, told))
        if record.seq != 1:
            told = f"a term begins with number 1, not {record.seq}"
            self._add_fault(place.find_fault(FaultWord.TERM, told))
        self.close_term()

    def _follow_record(self, record: DecisionRecord, place: _Place) -> None:
        if record.seq <= self.seq:
            known = "once more" if record.seq in self.digests else "out of order"
            told = f"record {record.seq} comes after record {self.seq}, {known}"
            self.gaps = [gap for gap in self.gaps if not gap.first <= record.seq <= gap.last]
            self._add_fault(place.find_fault(FaultWord.ORDER, told))
        elif record.seq > self.seq + 1:
            self.gaps.append(_Gap(self.seq + 1, record.seq - 1, place))
        elif record.prev != self.digest:
            self.suspects = (self.place, place)

    def _settle_suspects(self, record: DecisionRecord) -> None:
        """The record after two that do not fit: if it fits the second, the first was changed."""
        if self.suspects is None:
            return
        first, second = self.suspects
        self.suspects = None
        told = "this record was changed after it was written"
        changed = first if record.prev == self.digest else second
        self._add_fault(changed.find_fault(FaultWord.CHANGED, told))

    def close_term(self) -> None:
        """All of a term was read: what is missing in it must have been declared in it."""
        for gap in self.gaps:
            if _is_declared(gap, self.ranges):
                self.declared += 1
                continue
            verb = _be(gap.first, gap.last)
            told = (
                f"{_list_numbers(gap.first, gap.last)} {verb} missing before this one, and no LogGap says so"
            )
            self._add_fault(gap.place.find_fault(FaultWord.MISSING, told))
        self.digests, self.gaps, self.ranges = {}, [], []

    def close_log(self) -> None:
        if self.suspects is not None:
            told = "this record or the one after it was changed after it was written"
            self._add_fault(self.suspects[0].find_fault(FaultWord.CHANGED, told))
        self.close_term()

    def add_torn_line(self, place: _Place) -> None:
        told = (
            "the last line ends in the middle of a record: its writer was killed, and no term has begun since"
        )
        self._add_fault(place.find_fault(FaultWord.TORN, told))

    def _add_fault(self, fault: ChainFault) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def check_chain(parts: Iterable[LogPart], head: str = "") -> ChainReport:
    """Follow a log over all of its parts, in order, and report the first fault.

    With the `head` of an earlier check, that record must be there still. The first record may follow on
    from parts that were deleted. Half a line at the end of a part is no fault when a term begins after it.
    """
    reader, position, torn, known = _ChainReader(), 0, None, not head
    for part in parts:
        for number, line in enumerate(part.lines, 1):
            position += 1
            place = _Place(position, part.name, number)
            if not line.endswith(b"\n"):
                torn = place
                continue
            text = line[:-1]
            if torn is not None and b'"kind":"TermBegan"' not in text:
                reader.add_torn_line(torn)
            torn = None
            reader.read_line(text, place)
            known = known or reader.digest == head
    reader.close_log()
    if torn is not None:
        reader.add_torn_line(torn)
    faults = sorted(reader.faults)
    if not known and not faults:
        told = f"the record with the digest {head} is missing"
        faults.append(reader.place.find_fault(FaultWord.MISSING, told))
    return ChainReport(
        reader.records,
        reader.terms,
        reader.declared,
        reader.unlinked,
        reader.digest,
        faults[0] if faults else None,
    )


def _is_declared(gap: _Gap, ranges: Iterable[tuple[int, int]]) -> bool:
    first = gap.first
    for low, high in sorted(ranges):
        if low <= first <= high:
            first = high + 1
    return first > gap.last


def _list_numbers(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def _be(first: int, last: int) -> str:
    return "is" if first == last else "are"
