"""Decision logs as tests write them: records by the hundred, terms in turn, and sinks that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.ports import Clock, LogSink, RunBlocking
from dovetail.runtime.decision_log import DecisionLog, LogLane, run_inline
from dovetail.runtime.file_log import FileLog
from dovetail.sim.clock import run_virtual
from support.decision_records import CLUSTER

KEEP = timedelta(hours=720)
P = ParamSpec("P")


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that plays in virtual time."""

    @wraps(test)
    def play(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return play


class LogWriter:
    """A leader that writes a decision log: notes records with ids that follow from its clock."""

    def __init__(self, log: DecisionLog, clock: Clock, leader: str) -> None:
        self.log = log
        self._clock = clock
        self._leader = leader
        self._ids = RecordIds(CLUSTER)

    def stamp(self, kind: RecordKind, subject: str, message: str = "") -> DecisionRecord:
        now = self._clock.now()
        draft = RecordDraft(kind=kind, subject=subject, message=message)
        return stamp_record(draft, self._ids.make_id(now), now, self._leader)

    def begin(self) -> None:
        self.log.note_record(self.stamp(RecordKind.TERM_BEGAN, f"log/{self._leader}"))

    def note(self, count: int = 1, message: str = "lived 4h12m, cost $0.81") -> None:
        for number in range(count):
            self.log.note_record(self.stamp(RecordKind.NODE_GONE, f"node/n-{number}", message))


def build_lane(sink: LogSink, clock: Clock, in_thread: RunBlocking = run_inline) -> LogLane:
    return LogLane(sink, clock, in_thread)


def build_file_lane(folder: Path, clock: Clock, keep: timedelta = KEEP) -> LogLane:
    return build_lane(FileLog(folder, keep, clock, run_inline), clock)


@asynccontextmanager
async def lead(
    lanes: Sequence[LogLane], clock: Clock, leader: str = "a", lasts: Callable[[], bool] = lambda: True
) -> AsyncIterator[LogWriter]:
    """A term: it begins here, and ends with the block as a process does that is told to stop."""
    writer = LogWriter(DecisionLog(lanes, lasts=lasts), clock, leader)
    services = [asyncio.ensure_future(run()) for run in writer.log.services]
    try:
        writer.begin()
        await asyncio.sleep(0)
        yield writer
    finally:
        for service in services:
            service.cancel()
        for service in services:
            with suppress(asyncio.CancelledError):
                await service
