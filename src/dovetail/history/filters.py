"""Which sinks want a record, and when each is told: at once, in a digest, or when its quiet hours are over.

A SinkQueue holds what one sink is still to be told. It is handed the time; whoever sends asks it what is due.
`plan_messages` asks the same queues about records of the past, and so says what would have been sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from heapq import merge
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dovetail.api.cron import parse_schedule
from dovetail.history.notify import Notify, NotifyRule, NotifySink, QuietHours
from dovetail.history.record import DecisionRecord, RecordSeverity
from dovetail.settings.durations import parse_duration

__all__ = [
    "DueBatch",
    "PlannedMessage",
    "SinkQueue",
    "find_quiet_end",
    "find_sinks",
    "plan_messages",
    "wants_record",
]

MOST_QUEUED = 1_000
# Of a saving: prices are sums of floats.
DUST = 1e-9
# Clocks are moved by less than this.
CLOCK_CHANGE = timedelta(hours=3)
# Quiet hours that never end are looked at again after this long.
FARTHEST = timedelta(days=8)


def find_sinks(notify: Notify, record: DecisionRecord) -> list[NotifySink]:
    """The sinks that want to know of a record."""
    return [sink for sink in notify.sinks if wants_record(sink, record)]


def wants_record(sink: NotifySink, record: DecisionRecord) -> bool:
    """Whether any rule of a sink lets a record through; a sink without rules wants everything."""
    return not sink.when or any(_matches_rule(rule, record) for rule in sink.when)


def _matches_rule(rule: NotifyRule, record: DecisionRecord) -> bool:
    if rule.kinds and record.kind not in rule.kinds:
        return False
    if rule.reasons and record.reason not in rule.reasons:
        return False
    if rule.pools and not any(fnmatchcase(pool, glob) for pool in record.pools for glob in rule.pools):
        return False
    if rule.min_saving and record.saving < float(rule.min_saving) - DUST:
        return False
    return rule.severity != RecordSeverity.WARNING or record.kind.severity is RecordSeverity.WARNING


def find_quiet_end(windows: Iterable[QuietHours], now: datetime) -> datetime | None:
    """When the quiet hours that a sink is in are over; None when it is in none.

    Hours that follow on each other are one. Those that do not end within eight days end there, to be asked
    about again.
    """
    end, horizon, known = now, now + FARTHEST, tuple(windows)
    while end < horizon:
        ends = [each for quiet in known for each in _list_window_ends(quiet, end)]
        if not ends:
            break
        end = max(ends)
    return None if end == now else min(end, horizon)


class QuietState(NamedTuple):
    """The quiet hours of a sink at one time: when they end, and which kinds are told of all the same.

    It holds from one time until another: until the next minute, when others may begin, or until some end.
    """

    end: datetime | None
    exempt: frozenset[str]
    since: datetime
    until: datetime


def find_quiet_state(windows: Iterable[QuietHours], now: datetime) -> QuietState:
    """Whether a sink is in quiet hours. A kind is exempt if all hours that are on make an exception of it."""
    known = tuple(windows)
    active = [(quiet, ends) for quiet in known if (ends := list(_list_window_ends(quiet, now)))]
    exceptions = [frozenset(quiet.except_kinds) for quiet, _ in active]
    exempt = frozenset.intersection(*exceptions) if exceptions else frozenset[str]()
    next_minute = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    until = min((end for _, ends in active for end in ends), default=next_minute)
    return QuietState(find_quiet_end(known, now), exempt, now, min(until, next_minute))


def _list_window_ends(quiet: QuietHours, now: datetime) -> Iterator[datetime]:
    """When the windows end that are open now: those that began less than their duration ago."""
    length = parse_duration(quiet.duration)
    for start in _list_starts(quiet, now - length, now):
        yield start + length


def _list_starts(quiet: QuietHours, after: datetime, until: datetime) -> Iterator[datetime]:
    """The starts of a schedule after one time and up to another, as the clocks on the wall have it.

    Times that a clock change leaves out count as if the clock had not been changed, and times that it brings
    twice count the first time. The search begins a few hours early: a time that was left out comes later.
    """
    schedule, zone = parse_schedule(quiet.schedule), ZoneInfo(quiet.time_zone)
    wall = (after - CLOCK_CHANGE).astimezone(zone).replace(tzinfo=UTC, fold=0)
    last = (until + CLOCK_CHANGE).astimezone(zone).replace(tzinfo=UTC, fold=0)
    while (found := schedule.find_next(wall)) is not None and found <= last:
        start = found.replace(tzinfo=zone).astimezone(UTC)
        if after < start <= until:
            yield start
        wall = found


@dataclass(frozen=True, slots=True)
class DueBatch:
    """Records that make one message: one record, or all of a digest."""

    records: tuple[DecisionRecord, ...]
    digest: bool = False
    # Since when it could have been sent; what waits for too long is given up.
    due: datetime | None = field(default=None, compare=False)


class SinkQueue:
    """What one sink is to be told, and when. What is too much is dropped, oldest first, and counted."""

    def __init__(self, sink: NotifySink, most: int = MOST_QUEUED) -> None:
        self.sink = sink
        self.dropped = 0
        self._most = most
        self._window = sink.digest_window
        self._at_once: deque[DueBatch] = deque()
        self._waiting: deque[DecisionRecord] = deque()
        self._due: datetime | None = None
        self._quiet: QuietState | None = None

    def __len__(self) -> int:
        return len(self._at_once) + len(self._waiting)

    @property
    def due(self) -> datetime | None:
        """When to ask for what waits; what is to be sent at once does not wait."""
        return self._due

    def add_record(self, record: DecisionRecord, now: datetime) -> bool:
        """Take a record that the sink wants; false when it does not want it."""
        if not wants_record(self.sink, record):
            return False
        quiet = self._look_at_quiet(now)
        exempt = record.kind in quiet.exempt
        if exempt or (quiet.end is None and not self._window):
            self._at_once.append(DueBatch((record,), due=now))
        else:
            self._waiting.append(record)
            if self._due is None:
                self._due = max(now + self._window, quiet.end or now)
        if len(self) > self._most:
            (self._waiting or self._at_once).popleft()
            self.dropped += 1
        return True

    def take_due(self, now: datetime) -> list[DueBatch]:
        """The messages to send now."""
        return list(iter(lambda: self.take_next(now), None))

    def take_next(self, now: datetime) -> DueBatch | None:
        """The next message to send now; what is behind it stays in the queue and counts towards its limit."""
        if self._at_once:
            return self._at_once.popleft()
        if self._due is None or now < self._due:
            return None
        quiet = self._look_at_quiet(now).end
        if quiet is not None:
            self._due = quiet
            return None
        waiting, due = tuple(self._waiting), self._due
        self._waiting.clear()
        self._due = None
        if self._window:
            return DueBatch(waiting, digest=True, due=due) if waiting else None
        self._at_once.extend(DueBatch((record,), due=due) for record in waiting)
        return self._at_once.popleft() if self._at_once else None

    def _look_at_quiet(self, now: datetime) -> QuietState:
        """The quiet hours at a time. Schedules are read once a minute: records may come by the hundred."""
        if self._quiet is None or not self._quiet.since <= now < self._quiet.until:
            self._quiet = find_quiet_state(self.sink.quiet, now)
        return self._quiet

    def take_rest(self, now: datetime) -> list[DueBatch]:
        """What can be sent now, and a digest before its time: for a process that ends."""
        if self._waiting and self._look_at_quiet(now).end is None:
            self._due = now
        return self.take_due(now)

    def drop_overdue(self, since: datetime) -> int:
        """Let go of messages that could have been sent since before then; how many there were."""
        count = 0
        while self._at_once and self._at_once[0].due is not None and self._at_once[0].due <= since:
            self._at_once.popleft()
            count += 1
        return count

    def list_records(self) -> list[DecisionRecord]:
        """What is queued, oldest first: for the queue of a sink that was changed."""
        queued = [record for batch in self._at_once for record in batch.records]
        return sorted((*queued, *self._waiting), key=lambda record: record.id)


class PlannedMessage(NamedTuple):
    """A message that would have been sent: when, to which sink, and what."""

    time: datetime
    sink: NotifySink
    batch: DueBatch


def plan_messages(
    sinks: Iterable[NotifySink], records: Iterable[DecisionRecord], until: datetime
) -> list[PlannedMessage]:
    """What would have been sent up to a time, had these sinks been told of these records as they came."""
    ordered = sorted(records, key=lambda record: (record.time, record.id))
    planned = merge(*(_plan_sink(sink, ordered, until) for sink in sinks), key=lambda each: each.time)
    return list(planned)


def _plan_sink(
    sink: NotifySink, records: Iterable[DecisionRecord], until: datetime
) -> Iterator[PlannedMessage]:
    queue = SinkQueue(sink)
    for record in records:
        yield from _take_until(queue, record.time)
        queue.add_record(record, record.time)
        yield from (PlannedMessage(record.time, sink, batch) for batch in queue.take_due(record.time))
    yield from _take_until(queue, until)


def _take_until(queue: SinkQueue, until: datetime) -> Iterator[PlannedMessage]:
    """What becomes due up to a time, each at its own."""
    while (due := queue.due) is not None and due <= until:
        yield from (PlannedMessage(due, queue.sink, batch) for batch in queue.take_due(due))
