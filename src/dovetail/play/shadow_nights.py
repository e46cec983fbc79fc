"""Twins at the end of each day, on the recording: for clusters too large to have twins beside them all day.

A day is replayed once it is over and what became of its last pods is known. Each begins from the real fleet
of its first look. What days came to is kept beside the recording, and replayed once more where it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context

import msgspec

from dovetail.app.recordings import open_recording
from dovetail.errors import BadInput, DovetailError
from dovetail.history.recording.reader import RecordingSegment
from dovetail.history.shadow import ShadowReport
from dovetail.history.shadow_claim import LEAST_HOURS, TwinBill
from dovetail.logs import get_logger
from dovetail.play.shadow_state import ShadowState, hash_rules, read_state, write_state
from dovetail.play.shadow_twins import (
    CALIBRATION,
    DIFFERENCES,
    LAG,
    TWIN,
    ShadowTwins,
    add_bills,
    replay_span,
    report_recording,
)
from dovetail.play.shadowing import find_span

__all__ = ["MANY_NODES", "NightBills", "list_due_days", "replay_day", "replay_days", "report_by_days"]

MANY_NODES = 1_000
"""Above so many nodes twins run at the end of each day, unless told otherwise."""
DAY = timedelta(days=1)
# The processor is for the cluster's own work first.
NICENESS = 10
NIGHTS = "nights"
_DayBills = dict[datetime, dict[str, TwinBill | None]]


def list_due_days(
    since: datetime, until: datetime, now: datetime, done: Collection[datetime]
) -> list[datetime]:
    """The days of a recording from one time to another that are over now, and not replayed yet."""
    day, found = _floor_day(since), []
    while day + DAY + LAG <= now and day < until:
        if day not in done:
            found.append(day)
        day += DAY
    return found


def replay_day(target: str, day: datetime, twins: ShadowTwins) -> dict[str, TwinBill | None]:
    """What both twins came to on a day, by their role. Runs in a process of its own."""
    os.nice(NICENESS)
    with open_recording(target) as reader:
        return {
            role: _replay(reader.segments, role, twins, day)
            for role in (TWIN, CALIBRATION)
            if role in twins.roles
        }


def _replay(
    segments: Sequence[RecordingSegment],
    role: str,
    twins: ShadowTwins,
    day: datetime,
    since: datetime | None = None,
) -> TwinBill | None:
    """One day; segments that are wholly of other days are not even read."""
    ends = [each.head.began for each in segments[1:]] + [None]
    kept = [
        each.source
        for each, end in zip(segments, ends, strict=True)
        if each.head.began < day + DAY and (end is None or end > day)
    ]
    return replay_span(kept, role, twins, max(day, since or day), day + DAY)


class NightBills:
    """The bills of days that were replayed, and what is still to be done."""

    def __init__(self, target: str, twins: ShadowTwins) -> None:
        self._target = target
        self._twins = twins
        self._bills: _DayBills | None = None

    def sum_bills(self, role: str) -> TwinBill | None:
        """What the twin of a role came to on all days; None before the first is over."""
        total: TwinBill | None = None
        for _, bills in sorted(dict(self._bills or {}).items()):
            bill = bills.get(role)
            if bill is not None:
                total = bill if total is None else total.add(bill)
        return total

    def replay_due(self, now: datetime) -> int:
        """Replay every day that is over; how many there were. It waits for them, so give it a thread."""
        if self._bills is None:
            self._bills = self._read_bills()
        due = list_due_days(*self._find_span(now), now, self._bills.keys())
        for day in due:
            self._bills[day] = _run_apart(self._target, day, self._twins)
            self._keep_bills(self._bills)
        return len(due)

    def _read_bills(self) -> _DayBills:
        try:
            state = read_state(self._target, NIGHTS, self._twins)
            return msgspec.json.decode(state.result, type=_DayBills) if state is not None else {}
        except (BadInput, msgspec.MsgspecError) as error:
            get_logger().warning("the days of a shadow are replayed once more", error=error)
            return {}

    def _keep_bills(self, bills: _DayBills) -> None:
        result = msgspec.Raw(msgspec.json.encode(bills))
        state = ShadowState(rules=hash_rules(NIGHTS, self._twins), segment="", result=result)
        try:
            write_state(self._target, NIGHTS, state)
        except (OSError, DovetailError) as error:
            get_logger().warning("the days of a shadow cannot be kept; a restart replays them", error=error)

    def _find_span(self, now: datetime) -> tuple[datetime, datetime]:
        try:
            with open_recording(self._target) as reader:
                return find_span(segment.head for segment in reader.segments) or (now, now)
        except BadInput:
            return now, now  # nothing is recorded yet


def _run_apart(target: str, day: datetime, twins: ShadowTwins) -> dict[str, TwinBill | None]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(replay_day, target, day, twins).result()


def report_by_days(
    segments: Sequence[RecordingSegment], twins: ShadowTwins, since: datetime | None = None
) -> ShadowReport:
    """The report of a recording, with twins that begin anew each day."""
    report = report_recording([each.source for each in segments], replace(twins, roles=(DIFFERENCES,)), since)
    if report.paid.watched_seconds < LEAST_HOURS * 3600:
        return report
    bills = replay_days(segments, twins, since)
    return add_bills(report, bills.get(TWIN), bills.get(CALIBRATION))


def replay_days(
    segments: Sequence[RecordingSegment], twins: ShadowTwins, since: datetime | None = None
) -> dict[str, TwinBill | None]:
    """What the twins came to over all of a recording, each day by itself and the last as far as it goes."""
    found: dict[str, TwinBill | None] = {}
    span = find_span(segment.head for segment in segments)
    day = _floor_day(max(span[0], since or span[0])) if span is not None else None
    while span is not None and day is not None and day <= span[1]:
        for role in (TWIN, CALIBRATION):
            if role in twins.roles:
                bill, before = _replay(segments, role, twins, day, since), found.get(role)
                found[role] = before if bill is None else bill if before is None else before.add(bill)
        day += DAY
    return found


def _floor_day(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
