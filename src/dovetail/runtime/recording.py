"""RecordingWriter: writes what decisions saw to a recording, without ever holding up a decision.

    note_plan, note_choice, note_look ─► what waits (references) ─► encoded in a thread ─► place

Noting takes references and nothing else: Situations never change. When more than two looks wait, those that
nothing was decided on are dropped and counted. A place that cannot be written to costs the segment: it ends
where it is, and a new one is begun once writing works again, so that what is missing shows as a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from dovetail import __version__
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command
from dovetail.disruption.situation import Situation, digest_situation
from dovetail.errors import DovetailError, note_contained
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.answers import (
    PLAN,
    RecordedDecision,
    answer_of_commands,
    answer_of_plan,
)
from dovetail.history.recording.segment import (
    FORMAT,
    DroppedLooks,
    RenameLine,
    SegmentHead,
    SegmentLine,
    SegmentWriter,
)
from dovetail.logs import get_logger
from dovetail.metrics import counter, gauge
from dovetail.ports import Clock, RecordingPlace, RunBlocking
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan

__all__ = ["RecordingOptions", "RecordingWriter", "name_segment", "parse_segment_time"]

# Looks that may wait before those without a decision are dropped; and those with one, before the oldest are.
MOST_WAITING, MOST_DECIDED = 2, 64
MOST_RECORDS = 10_000
# How long a process that stops waits for its last write. Seconds.
LAST_WRITE = 10.0
# How long a place that failed is left alone: doubling from the first to the last. Seconds.
FIRST_PAUSE, LAST_PAUSE = 5.0, 300.0
LOOKS = counter(
    "dovetail_recording_looks_total",
    "Looks of the recording: written, same (nothing differed), dropped (writing fell behind) or failed.",
    ("result",),
)
BYTES = counter("dovetail_recording_bytes_total", "Bytes written to the recording, gzipped.")
BEHIND = gauge(
    "dovetail_recording_behind_seconds", "Age of the oldest look that is not written to the recording yet."
)
TakeSituation = Callable[[], Awaitable[Situation]]
Answer = Plan | tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How often a look is taken at most, how long a segment lasts, and how long segments are kept.

    A look that differs in nothing from the last is written only once that is `confirm` old: a recorder that
    is killed then leaves a gap no longer than that. `rename` changes every line before it is written, to hide
    names.
    """

    every: timedelta = timedelta(seconds=10)
    confirm: timedelta | None = None
    keyframe: timedelta = timedelta(hours=1)
    keep: timedelta | None = None
    names: str = "keep"
    settings: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    rename: RenameLine | None = None


@dataclass(slots=True)
class _NotedDecision:
    """A question that was asked about a look, and its answer."""

    question: str
    answer: Answer
    timed_out: bool


@dataclass(slots=True)
class _NotedLook:
    """A look that waits to be written."""

    situation: Situation
    at: datetime
    since: float
    decisions: list[_NotedDecision] = field(default_factory=list)


class _SegmentEncoder:
    """One segment on its way to bytes. Used by one thread at a time."""

    def __init__(self, head: SegmentHead, cache: DecisionCache, options: RecordingOptions) -> None:
        self.head = head
        self._writer = SegmentWriter(head, options.rename)
        self._cache = cache
        self._last: Situation | None = None
        self._confirm = options.confirm
        self._confirmed = head.began

    def encode_look(self, look: _NotedLook) -> tuple[bytes, bool]:
        """The bytes of a look and what was decided on it, and whether there are any.

        Nothing is written of a look that differs in nothing from the last one, unless it was decided on or
        the last one is to be confirmed.
        """
        written = True
        if look.situation is not self._last:
            digest = digest_situation(look.situation, self._cache) if look.decisions else ""
            due = self._confirm is not None and look.at - self._confirmed >= self._confirm
            always = bool(look.decisions) or due
            written = self._writer.write_look(look.situation, look.at, digest, always=always)
            if written:
                self._last, self._confirmed = look.situation, look.at
        for each in look.decisions:
            self._writer.write_line(SegmentLine(decision=self._build_decision(each)))
        return (self._writer.flush() if written else b""), written

    def encode_lines(self, lines: Iterable[SegmentLine]) -> bytes:
        for line in lines:
            self._writer.write_line(line)
        return self._writer.flush()

    def encode_end(self, ended: datetime) -> bytes:
        return self._writer.end_segment(ended)

    def _build_decision(self, noted: _NotedDecision) -> RecordedDecision:
        made = noted.answer
        answer = answer_of_plan(made) if isinstance(made, Plan) else answer_of_commands(made)
        return RecordedDecision(
            look=self._writer.looks, question=noted.question, answer=answer, timed_out=noted.timed_out
        )


class RecordingWriter:
    """Takes what decisions saw, and writes it down from the moment this process leads."""

    def __init__(
        self,
        place: RecordingPlace,
        clock: Clock,
        in_thread: RunBlocking,
        options: RecordingOptions = RecordingOptions(),  # noqa: B008 (frozen)
    ) -> None:
        self._place = place
        self._clock = clock
        self._in_thread = in_thread
        self._options = options
        self._log = get_logger()
        self._cache = DecisionCache()
        self._waiting: deque[_NotedLook] = deque()
        self._records: list[DecisionRecord] = []
        self._dropped: DroppedLooks | None = None
        self._noted_at = float("-inf")
        self._last_time: datetime | None = None
        self._begun, self._wake = asyncio.Event(), asyncio.Event()
        self._cluster = ""
        self._segment: _SegmentEncoder | None = None
        self._ends: datetime | None = None
        self._follows = ""
        self._pause = FIRST_PAUSE
        self._trouble = ""
        self._oldest: float | None = None
        # How many looks are in the recording.
        self.written = 0

    @property
    def recording(self) -> bool:
        """Whether a note comes to anything: this process leads."""
        return self._begun.is_set()

    def begin_term(self, cluster: str) -> None:
        """This process leads from now on: it begins a segment of its own."""
        self._cluster = cluster
        self._begun.set()

    def note_plan(self, situation: Situation, plan: Plan) -> None:
        """A plan that was made of this Situation."""
        self._note_decision(situation, _NotedDecision(PLAN, plan, plan.timed_out))

    def note_choice(
        self, situation: Situation, question: str, choice: DisruptionChoice, timed_out: bool
    ) -> None:
        """What a disruption method chose in this Situation; what becomes of the choice later is not seen."""
        self._note_decision(situation, _NotedDecision(question, tuple(choice.commands), timed_out))

    def note_look(self, situation: Situation) -> None:
        """A Situation that nothing was decided on."""
        self._note(situation)

    def note_record(self, record: DecisionRecord) -> None:
        """A record of what was decided or done; it is written with the next look."""
        if self.recording and len(self._records) < MOST_RECORDS:
            self._records.append(record)

    def measure_behind(self) -> float:
        """The age of the oldest look that is not written, in seconds."""
        since = self._waiting[0].since if self._waiting else None
        known = [each for each in (self._oldest, since) if each is not None]
        return self._clock.monotonic() - min(known) if known else 0.0

    def report(self) -> None:
        """Someone looks at the metrics."""
        BEHIND.set(self.measure_behind())

    async def run(self) -> None:
        """Write until cancelled; then what waits, and the segment's end."""
        await self._begun.wait()
        writing: asyncio.Task[bool] | None = None
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # Not cancelled with this: bytes that were made and not written would tear the segment.
                writing = asyncio.create_task(self._write_waiting())
                if not await asyncio.shield(writing):
                    self._wake.set()
                    await self._clock.sleep(self._pause)
                    self._pause = min(2 * self._pause, LAST_PAUSE)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITE):
                    if writing is not None:
                        await writing
                    await self._finish()

    async def take_looks(self, take: TakeSituation) -> None:
        """Look at the cluster for as long as nothing is decided, once in a while."""
        await self._begun.wait()
        every = self._options.every.total_seconds()
        while True:
            due = self._noted_at + every - self._clock.monotonic()
            if due > 0:
                await self._clock.sleep(due)
                continue
            self._noted_at = self._clock.monotonic()
            try:
                self.note_look(await take())
            except DovetailError as error:
                self._log.warning("the recording misses a look", error=error)

    def _note_decision(self, situation: Situation, decision: _NotedDecision) -> None:
        known = next((each for each in self._waiting if each.situation is situation), None)
        look = self._note(situation) if known is None else known
        if look is not None:
            look.decisions.append(decision)

    def _note(self, situation: Situation) -> _NotedLook | None:
        if not self.recording:
            return None
        now = self._clock.now()
        # A wall's clock may be set back; looks stand in the order in which they were noted.
        self._last_time = now = now if self._last_time is None else max(now, self._last_time)
        self._noted_at = self._clock.monotonic()
        look = _NotedLook(situation, now, self._noted_at)
        self._waiting.append(look)
        self._drop_overdue()
        self._wake.set()
        return look

    def _drop_overdue(self) -> None:
        """Let go of looks when too many wait: those without a decision first."""
        while len(self._waiting) > MOST_WAITING:
            idle = next((each for each in self._waiting if not each.decisions), None)
            if idle is None or idle is self._waiting[-1]:
                break
            self._drop(idle)
        while len(self._waiting) > MOST_DECIDED:
            self._drop(self._waiting[0])

    def _drop(self, look: _NotedLook) -> None:
        self._waiting.remove(look)
        LOOKS.labels("dropped").inc()
        before, decisions = self._dropped, len(look.decisions)
        self._dropped = DroppedLooks(
            looks=1 + (before.looks if before else 0),
            first=before.first if before else look.at,
            last=look.at,
            decisions=decisions + (before.decisions if before else 0),
        )

    async def _write_waiting(self) -> bool:
        """Write all that waits; a failure, which is False, costs the segment and what was taken for it."""
        while self._waiting:
            looks = list(self._waiting)
            self._waiting.clear()
            try:
                while looks:
                    self._oldest = looks[0].since
                    await self._write_look(looks[0])
                    del looks[0]
                await self._write_beside()
                self._report_recovery()
            except Exception as error:  # noqa: BLE001 (whatever it is, decisions go on)
                note_contained(error)
                LOOKS.labels("failed").inc(len(looks))
                self._abandon_segment(error)
                return False
            finally:
                self._oldest = None
        return True

    async def _write_look(self, look: _NotedLook) -> None:
        if self._segment is None or self._ends is None or look.at >= self._ends:
            await self._begin_segment(look.at)
        segment = self._segment
        assert segment is not None
        data, written = await self._in_thread(lambda: segment.encode_look(look))
        await self._append(data)
        self.written += written
        LOOKS.labels("written" if written else "same").inc()

    async def _write_beside(self) -> None:
        """The records that were made meanwhile, and what was dropped."""
        segment, lines = self._segment, [SegmentLine(record=each) for each in self._records]
        if self._dropped is not None:
            lines.append(SegmentLine(dropped=self._dropped))
        self._records, self._dropped = [], None
        if segment is not None and lines:
            await self._append(await self._in_thread(lambda: segment.encode_lines(lines)))

    async def _append(self, data: bytes) -> None:
        if data:
            await self._place.append_bytes(data)
            BYTES.inc(len(data))

    async def _begin_segment(self, began: datetime) -> None:
        await self._end_segment(began)
        options = self._options
        name = name_segment(began, f"{options.identity}\0{self._cluster}")
        head = SegmentHead(
            format=FORMAT,
            name=name,
            began=began,
            by=options.identity,
            cluster=self._cluster,
            version=__version__,
            follows=self._follows,
            names=options.names,
            settings=options.settings,
        )
        await self._place.begin_segment(name)
        self._segment = _SegmentEncoder(head, self._cache, options)
        self._ends = began + options.keyframe
        if options.keep is not None:
            await self._place.forget_before(began - options.keep)

    async def _end_segment(self, ended: datetime) -> None:
        """End the segment as it should be; the next one follows it without a gap."""
        segment, self._segment = self._segment, None
        if segment is not None:
            await self._append(await self._in_thread(lambda: segment.encode_end(ended)))
            await self._place.end_segment()
            self._follows = segment.head.name

    def _abandon_segment(self, error: Exception) -> None:
        """Leave the segment where it ends; what comes next does not follow it."""
        self._segment, self._follows = None, ""
        if not self._trouble:
            self._log.warning("the recording cannot be written; decisions go on", error=error)
        self._trouble = str(error) or type(error).__name__

    def _report_recovery(self) -> None:
        if self._trouble:
            self._log.info("the recording is written again", trouble=self._trouble)
        self._trouble, self._pause = "", FIRST_PAUSE

    async def _finish(self) -> None:
        try:
            for look in tuple(self._waiting):
                await self._write_look(look)
            self._waiting.clear()
            await self._write_beside()
            await self._end_segment(self._clock.now())
        except Exception as error:  # noqa: BLE001 (it must not keep the process from ending)
            note_contained(error)
            self._abandon_segment(error)


def name_segment(began: datetime, writer: str) -> str:
    """A name that sorts by time, and that no other leader gives."""
    return f"{began:%Y%m%dT%H%M%S}.{began.microsecond // 1000:03d}Z-{sha256(writer.encode()).hexdigest()[:8]}"


def parse_segment_time(name: str) -> datetime | None:
    """When a segment of this name began; None for any other name."""
    try:
        return datetime.strptime(name[:19], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None
