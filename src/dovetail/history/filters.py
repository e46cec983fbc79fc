"""Which sinks want a record, and when each is told: at once, in a digest, or when its quiet hours are over.

A SinkQueue holds what one sink is still to be told. It is handed the time; whoever sends asks it what is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from dovetail.api.cron import parse_schedule
from dovetail.history.notify import Notify, NotifyRule, NotifySink, QuietHours
from dovetail.history.record import DecisionRecord, RecordSeverity
from dovetail.settings.durations import parse_duration

__all__ = ["DueBatch", "SinkQueue", "find_quiet_end", "find_sinks", "wants_record"]

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


def is_exempt(windows: Iterable[QuietHours], record: DecisionRecord, now: datetime) -> bool:
    """Whether all quiet hours that are on now make an exception of this kind."""
    active = [quiet for quiet in windows if any(_list_window_ends(quiet, now))]
    return all(record.kind in quiet.except_kinds for quiet in active)


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


class SinkQueue:
    """What one sink is to be told, and when. What is too much is dropped, oldest first, and counted."""

    def __init__(self, sink: NotifySink, most: int = MOST_QUEUED) -> None:
        self.sink = sink
        self.dropped = 0
        self._most = most
        self._window = sink.digest_window
        self._at_once: deque[DecisionRecord] = deque()
        self._waiting: deque[DecisionRecord] = deque()
        self._due: datetime | None = None

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
        quiet = find_quiet_end(self.sink.quiet, now)
        exempt = quiet is not None and is_exempt(self.sink.quiet, record, now)
        if exempt or (quiet is None and not self._window):
            self._at_once.append(record)
        else:
            self._waiting.append(record)
            if self._due is None:
                self._due = max(now + self._window, quiet or now)
        if len(self) > self._most:
            (self._waiting or self._at_once).popleft()
            self.dropped += 1
        return True

    def take_due(self, now: datetime) -> list[DueBatch]:
        """The messages to send now."""
        batches = [DueBatch((record,)) for record in self._at_once]
        self._at_once.clear()
        if self._due is None or now < self._due:
            return batches
        quiet = find_quiet_end(self.sink.quiet, now)
        if quiet is not None:
            self._due = quiet
            return batches
        waiting = tuple(self._waiting)
        self._waiting.clear()
        self._due = None
        if self._window and waiting:
            return [*batches, DueBatch(waiting, digest=True)]
        return [*batches, *(DueBatch((record,)) for record in waiting)]
