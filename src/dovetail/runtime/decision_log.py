"""DecisionLog: hands every record to the places of DECISION_LOG, without ever holding up a decision.

    note_record ─► lane of a file   ─► linked into its chain, written each second
                └► lane of a bucket ─► linked into its chain, written each five minutes or 4 MiB

A lane keeps what its sink has not taken yet: an hour's records and 16 MiB at most. What it must drop, oldest
first, it declares by a LogGap as soon as the sink takes records again. Lines that a sink was handed are
handed to it again until it takes them, byte for byte: nobody knows what became of an attempt that failed. A
process that no longer leads writes nothing more; its term is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, TypeVar

import msgspec

from dovetail import logs
from dovetail.errors import DovetailError, NotAuthorized
from dovetail.history.chain import DecisionChain
from dovetail.history.record import (
    DecisionRecord,
    RecordDraft,
    RecordGroup,
    RecordKind,
    encode_record,
    stamp_record,
)
from dovetail.logs import get_logger
from dovetail.metrics import counter, gauge
from dovetail.ports import Clock, LogSink, LogTerm, RunBlocking

__all__ = ["DecisionLog", "LogLane", "LogLines", "run_inline"]

R = TypeVar("R")
# What waits for a sink that is full or away: so many bytes, for so many seconds.
MOST_WAITING, LONGEST_WAIT = 16 * 1024 * 1024, 3600.0
# How long a sink that refused is left alone: doubling from the first to the last. Seconds.
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
# How long a process that stops waits for its sinks. Seconds.
LAST_WRITE = 10.0
BYTES = counter("dovetail_decision_log_bytes_total", "Bytes written to a decision log.", ("to",))
BEHIND = gauge(
    "dovetail_decision_log_behind_seconds",
    "Age of the oldest record that a decision log has not taken yet.",
    ("to",),
)
DECISION = logs.audit(
    "decided",
    "A decision was recorded, and DECISION_LOG has log among its places.",
    ("record",),
    logger="decisions",
)


async def run_inline(work: Callable[[], R]) -> R:
    """Do it here and now."""
    return work()


class _WaitingLine(NamedTuple):
    line: bytes
    id: str
    since: float


class LogLane:
    """What one sink is to be told, in order: waiting, then linked into the chain, then written."""

    def __init__(self, sink: LogSink, clock: Clock, in_thread: RunBlocking) -> None:
        self._sink = sink
        self._clock = clock
        self._in_thread = in_thread
        self._log = get_logger()
        self._chain = DecisionChain()
        self._term: LogTerm | None = None
        self._begun = asyncio.Event()
        self._begun_at = 0.0
        self._opened = self._over = False
        # Noted and not linked yet; dropped before they were linked; linked and handed to the sink.
        self._waiting: deque[_WaitingLine] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._last_dropped = ""
        self._sealed: list[bytes] = []
        self._oldest_sealed = 0.0
        self._wake = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._pause = FIRST_PAUSE
        self._trouble = ""

    @property
    def to(self) -> str:
        """How metrics and messages call the sink."""
        return self._sink.to

    @property
    def waiting_bytes(self) -> int:
        """How much memory the lines take that wait for the sink."""
        return self._waiting_bytes

    @property
    def dropped(self) -> int:
        """How many records were dropped that no LogGap has declared yet."""
        return self._dropped

    def begin_term(self, term: LogTerm) -> None:
        self._term, self._begun_at = term, self._clock.monotonic()
        self._begun.set()

    def note_line(self, line: bytes, record_id: str) -> None:
        """Keep a record's line until the sink takes it; drop the oldest if there are too many."""
        if self._over:
            return
        self._waiting.append(_WaitingLine(line, record_id, self._clock.monotonic()))
        self._waiting_bytes += len(line)
        while self._waiting_bytes > MOST_WAITING:
            self._drop_oldest()
        if len(self._waiting) == 1 or self._waiting_bytes >= self._sink.pace.most_bytes:
            self._wake.set()

    def measure_behind(self) -> float:
        """The age of the oldest record that is not written, in seconds."""
        now = self._clock.monotonic()
        if self._over or self._term is None:
            return 0.0
        if not self._opened:
            return now - self._begun_at
        if self._sealed:
            return now - self._oldest_sealed
        return now - self._waiting[0].since if self._waiting else 0.0

    async def run(self) -> None:
        """Write until cancelled, or until the term is over; then once more what waits."""
        try:
            await self._begun.wait()
            while self._may_write():
                try:
                    await self._write_when_due()
                except DovetailError as error:
                    self._report_trouble(error)
                    await self._clock.sleep(self._pause)
                    self._pause = min(2 * self._pause, LAST_PAUSE)
        finally:
            await self._finish()

    async def read_back(self, keep: timedelta, most: int) -> list[DecisionRecord]:
        """The newest records of the log, oldest first; none when it cannot be read."""
        try:
            return await self._sink.read_back(self._clock.now() - keep, most)
        except DovetailError as error:
            self._log.warning("history cannot be read back from the log", to=self.to, error=error)
            return []

    async def _write_when_due(self) -> None:
        rest = 0.0 if not self._opened else await self._sink.keep_up()
        wait = self._find_wait()
        if self._opened and wait != 0:
            self._wake.clear()
            rests = [each for each in (rest, wait) if each is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(rests, default=None)):
                    await self._wake.wait()
            return
        # Not to be broken off: what was half done would be done twice.
        self._writing = asyncio.ensure_future(self._write_batch())
        await asyncio.shield(self._writing)
        self._report_recovery()

    def _find_wait(self) -> float | None:
        """Seconds until something is to be written; None when there is nothing."""
        if self._sealed or self._dropped:
            return 0.0
        if not self._waiting:
            return None
        if self._waiting_bytes >= self._sink.pace.most_bytes:
            return 0.0
        return max(0.0, self._waiting[0].since + self._sink.pace.every - self._clock.monotonic())

    async def _write_batch(self) -> None:
        """Open the log if that is still to be done, and hand the sink what waits."""
        assert self._term is not None
        self._drop_expired()
        if not self._opened:
            await self._open_log(self._term)
        self._drop_expired()
        if not self._sealed:
            batch, gap = self._take_batch(), self._take_gap()
            self._sealed = await self._in_thread(lambda: self._link_batch(batch, gap))
        if self._sealed and self._may_write():
            written = await self._sink.write_lines(self._sealed)
            self._sealed = []
            BYTES.labels(self._sink.to).inc(written)

    async def _open_log(self, term: LogTerm) -> None:
        try:
            end = await self._sink.open_term(term)
        except NotAuthorized as error:
            # Who may write and not read goes on without knowing what was written before.
            self._log.warning(
                "the decision log cannot be read back, so that this term does not follow on from the last",
                to=self._sink.to,
                error=error,
            )
            end = None
        self._sealed = [self._chain.begin_term(term.record, end)]
        self._oldest_sealed = self._clock.monotonic()
        self._opened = True

    def _take_batch(self) -> list[_WaitingLine]:
        batch, size = [], 0
        while self._waiting and size < self._sink.pace.most_bytes:
            taken = self._waiting.popleft()
            batch.append(taken)
            size += len(taken.line)
        self._waiting_bytes -= size
        self._oldest_sealed = batch[0].since if batch else self._clock.monotonic()
        return batch

    def _take_gap(self) -> tuple[int, DecisionRecord] | None:
        """How many records were dropped before the batch, and the record that says so.

        It has the id of the last record that was dropped, in whose place it stands: parts of a log are in the
        order of their ids.
        """
        assert self._term is not None
        count, self._dropped = self._dropped, 0
        if not count:
            return None
        term = self._term.record
        draft = RecordDraft(
            kind=RecordKind.LOG_GAP, subject=term.subject, message=f"the {self._sink.to} log was away or full"
        )
        return count, stamp_record(draft, self._last_dropped, self._clock.now(), term.by)

    def _link_batch(
        self, batch: Sequence[_WaitingLine], gap: tuple[int, DecisionRecord] | None
    ) -> list[bytes]:
        lines = []
        if gap is not None:
            count, record = gap
            lines.append(self._chain.declare_gap(record, *self._chain.skip_records(count)))
        lines += [self._chain.link_line(each.line) for each in batch]
        return lines

    def _drop_expired(self) -> None:
        """Records that waited for too long; a sink that works takes them long before."""
        before = self._clock.monotonic() - LONGEST_WAIT
        while self._waiting and self._waiting[0].since < before:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._waiting.popleft()
        self._waiting_bytes -= len(oldest.line)
        self._dropped += 1
        self._last_dropped = oldest.id

    def _may_write(self) -> bool:
        return self._term is not None and self._term.lasts()

    async def _finish(self) -> None:
        """The process stops: write what waits while this process still leads."""
        with suppress(DovetailError, TimeoutError):
            async with asyncio.timeout(LAST_WRITE):
                if self._writing is not None:
                    with suppress(DovetailError):
                        await asyncio.shield(self._writing)
                while self._may_write() and (self._sealed or self._waiting or not self._opened):
                    await asyncio.shield(asyncio.ensure_future(self._write_batch()))
        self._over = True
        with suppress(DovetailError):
            await self._sink.close()

    def _report_trouble(self, error: DovetailError) -> None:
        if not self._trouble:
            self._log.warning(
                "the decision log cannot be written; decisions go on, and records wait",
                to=self._sink.to,
                error=error,
            )
        self._trouble = str(error)

    def _report_recovery(self) -> None:
        self._pause = FIRST_PAUSE
        if self._trouble:
            self._trouble = ""
            self._log.info("the decision log is written again", to=self._sink.to)


class LogLines:
    """Writes each record as a line of the process's own log, at once. Nobody reads that back."""

    def __init__(self) -> None:
        self._chain = DecisionChain()

    def begin_term(self, record: DecisionRecord) -> None:
        self._write_line(self._chain.begin_term(record))

    def note_line(self, line: bytes) -> None:
        self._write_line(self._chain.link_line(line))

    def _write_line(self, line: bytes) -> None:
        DECISION({"record": msgspec.Raw(line)})
        BYTES.labels("log").inc(len(line))


class DecisionLog:
    """Every place the decisions of a leader are logged at.

    It listens to the recorder: a term begins with the record that says so, and lasts while `lasts` does.
    """

    def __init__(
        self,
        lanes: Sequence[LogLane],
        lines: LogLines | None = None,
        lasts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._lanes = tuple(lanes)
        self._lines = lines
        self._lasts = lasts

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What runs beside the controllers: a writer for each place."""
        return tuple(lane.run for lane in self._lanes)

    def note_record(self, record: DecisionRecord) -> None:
        """Log a decision. It is written later, elsewhere; nobody waits for it."""
        if record.kind.group is RecordGroup.LOG:
            self._note_own_record(record)
            return
        line = encode_record(record)
        if self._lines is not None:
            self._lines.note_line(line)
        for lane in self._lanes:
            lane.note_line(line, record.id)

    def _note_own_record(self, record: DecisionRecord) -> None:
        """A record about logs: it begins a term. Each log declares its gaps itself."""
        if record.kind is not RecordKind.TERM_BEGAN:
            return
        if self._lines is not None:
            self._lines.begin_term(record)
        for lane in self._lanes:
            lane.begin_term(LogTerm(record, self._lasts))

    async def read_back(self, keep: timedelta, most: int) -> list[DecisionRecord]:
        """The newest records of the first log that has some, oldest first."""
        for lane in self._lanes:
            found = await lane.read_back(keep, most)
            if found:
                return found
        return []

    def report(self) -> None:
        """Someone looks at the numbers: how far behind each log is."""
        for lane in self._lanes:
            BEHIND.labels(lane.to).set(lane.measure_behind())
