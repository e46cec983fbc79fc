"""SpendLimit: the most that NodePools may cost, in dollars, nodes or resources (dovetail.sh/v1alpha1).

Dollars are strings, as NodeOverlay has them. What is in force at a moment follows from the numbers of the
spec and from the last of its windows that is active, in the limit's own time zone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import ClassVar
from zoneinfo import ZoneInfo, available_timezones

from dovetail.api import cron
from dovetail.api.meta import Amounts, Condition, Kind, LabelSelectorTerm, Object, Record
from dovetail.settings.durations import parse_duration

__all__ = [
    "ENFORCE",
    "WARN",
    "BadSpendLimit",
    "CoveredPools",
    "HourlySpend",
    "MonthSpend",
    "SpendLimit",
    "SpendLimitSpec",
    "SpendLimitStatus",
    "SpendWindow",
    "find_month",
    "find_spend_problems",
    "find_window",
    "is_window_active",
    "parse_dollars",
    "read_dollars",
    "read_overlap",
    "read_time_zone",
]

ENFORCE, WARN = "Enforce", "Warn"
EFFECTIVE, LISTED = "Effective", "Listed"
# Clocks are changed by two hours at most; a schedule is looked for this much further back.
_CLOCK_CHANGE = timedelta(hours=2)


class BadSpendLimit(ValueError):
    """A SpendLimit that cannot be read."""


class CoveredPools(Record, frozen=True):
    """Which NodePools a limit is about: by labels or by names. Neither means all of them."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorTerm, ...] = ()
    names: tuple[str, ...] = ()


class SpendWindow(Record, frozen=True):
    """Other numbers for some hours; what it leaves out stays what the limit says."""

    schedule: str = ""
    duration: str = ""
    hourly: str | None = None
    monthly: str | None = None
    nodes: int | None = None
    resources: Amounts | None = None
    mode: str | None = None

    def __str__(self) -> str:
        return f"{self.schedule} for {self.duration}"


class SpendLimitSpec(Record, frozen=True):
    """What the NodePools may cost, and when."""

    node_pools: CoveredPools = CoveredPools()
    # Nodes of no NodePool count, too.
    include_unmanaged: bool = False
    hourly: str | None = None
    monthly: str | None = None
    nodes: int | None = None
    resources: Amounts | None = None
    # What is left to pay after commitments, or what the price list says.
    basis: str = EFFECTIVE
    mode: str = ENFORCE
    # How far replacements of drifted nodes may stand beside what they replace, in per cent of the limit.
    overlap: str = "10%"
    windows: tuple[SpendWindow, ...] = ()
    time_zone: str = "UTC"
    # Pods of this priority are not held.
    priority_at_least: int | None = None


class HourlySpend(Record, frozen=True):
    """Dollars an hour: what is allowed, what nodes cost, and what those cost at most that are ordered."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("spent", "inFlight")

    limit: str = ""
    spent: str = "0.00"
    in_flight: str = "0.00"


class MonthSpend(Record, frozen=True):
    """Dollars of a calendar month: spent so far, and at its end if the last day's rate goes on."""

    of: str = ""
    spent: str = ""
    projected: str = ""
    # Until when `spent` counts, and the dollars an hour of the last 24 hours.
    until: datetime | None = None
    rate: str = ""
    # For so many seconds of it no controller looked.
    unseen_seconds: int = 0


class SpendLimitStatus(Record, frozen=True):
    """What the NodePools cost now and this month, and who waits because of it."""

    observed_generation: int = 0
    hourly: HourlySpend | None = None
    month: MonthSpend | None = None
    last_month: MonthSpend | None = None
    held_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class SpendLimit(Object, frozen=True):
    """The most that some NodePools may cost."""

    KIND: ClassVar[Kind] = Kind("dovetail.sh", "v1alpha1", "SpendLimit", "spendlimits", namespaced=False)

    spec: SpendLimitSpec = SpendLimitSpec()
    status: SpendLimitStatus = SpendLimitStatus()


def parse_dollars(text: str) -> float:
    """Dollars as objects spell them: digits, and perhaps a point and digits."""
    whole, _, part = text.partition(".")
    if not (whole + part).isascii() or not whole.isdigit() or (part and not part.isdigit()):
        raise BadSpendLimit(f'"{text}" is no amount; write dollars such as "40.00"')
    return float(text)


def read_dollars(text: str | None) -> float | None:
    """Dollars of a status; None where there are none, or somebody wrote something else there."""
    try:
        return None if text is None else parse_dollars(text)
    except BadSpendLimit:
        return None


def read_time_zone(name: str) -> tzinfo:
    """The time zone of this IANA name."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        near = difflib.get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else "write a name such as America/New_York"
        raise BadSpendLimit(f'there is no time zone "{name}"; {hint}') from error


def find_window(spec: SpendLimitSpec, now: datetime) -> SpendWindow | None:
    """The last of the windows that are active now."""
    zone = read_time_zone(spec.time_zone)
    return next((each for each in reversed(spec.windows) if is_window_active(each, now, zone)), None)


def is_window_active(window: SpendWindow, now: datetime, zone: tzinfo) -> bool:
    """Whether the window was opened no longer ago than it lasts.

    Its schedule is read off the clocks of the zone. Of an hour that these strike twice the first counts.
    """
    return _is_open(window.schedule, window.duration, now, zone)


# Limits mostly have the same hours, and all of them are looked at together.
@lru_cache(maxsize=256)
def _is_open(cron_fields: str, duration: str, now: datetime, zone: tzinfo) -> bool:
    try:
        schedule, lasts = cron.parse_schedule(cron_fields), parse_duration(duration)
    except ValueError as error:
        raise BadSpendLimit(str(error)) from error
    return any(opened <= now < opened + lasts for opened in _list_openings(schedule, now, lasts, zone))


def _list_openings(
    schedule: cron.Schedule, now: datetime, lasts: timedelta, zone: tzinfo
) -> Iterator[datetime]:
    # Schedules know UTC alone: they are shown the zone's clock as if it were that.
    last = now.astimezone(zone).replace(tzinfo=UTC) + _CLOCK_CHANGE
    shown = schedule.find_next((now - lasts).astimezone(zone).replace(tzinfo=UTC) - _CLOCK_CHANGE)
    while shown is not None and shown <= last:
        yield shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
        shown = schedule.find_next(shown)


def find_month(now: datetime, zone: tzinfo) -> tuple[str, datetime, datetime]:
    """The calendar month in the zone, such as 2026-11, and when it begins and ends."""
    local = now.astimezone(zone)
    begins = datetime(local.year, local.month, 1, tzinfo=zone)
    ends = datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=zone)
    return f"{local.year}-{local.month:02d}", begins.astimezone(UTC), ends.astimezone(UTC)


def find_spend_problems(spec: SpendLimitSpec) -> Iterator[tuple[str, str]]:
    """What is wrong with a limit that a schema cannot see: the path and a sentence of each."""
    yield from _find_amount_problems("spec", spec)
    if _read_percent(spec.overlap) is None:
        yield "spec.overlap", f'is "{spec.overlap}"; write a percentage such as "10%"'
    try:
        read_time_zone(spec.time_zone)
    except BadSpendLimit as error:
        yield "spec.timeZone", str(error)
    for index, window in enumerate(spec.windows):
        path = f"spec.windows[{index}]"
        yield from _find_amount_problems(path, window)
        try:
            if not _names_a_day(window.schedule):
                yield (
                    f"{path}.schedule",
                    "names no day that exists; write five cron fields, such as 0 19 * * 1-5",
                )
        except ValueError as error:
            yield f"{path}.schedule", f"{error}; write five cron fields, such as 0 19 * * 1-5"
        yield from _find_duration_problems(f"{path}.duration", window.duration)


@lru_cache(maxsize=256)
def _names_a_day(schedule: str) -> bool:
    return cron.parse_schedule(schedule).find_next(datetime(2026, 1, 1, tzinfo=UTC)) is not None


def _find_duration_problems(path: str, text: str) -> Iterator[tuple[str, str]]:
    try:
        lasts = parse_duration(text)
    except (ValueError, OverflowError):
        yield path, f'is "{text}", which is no duration; write one such as 12h'
        return
    if not timedelta() < lasts <= timedelta(days=366):
        yield path, f"is {text}; write more than 0s and no more than a year, such as 12h"


def _find_amount_problems(path: str, given: SpendLimitSpec | SpendWindow) -> Iterator[tuple[str, str]]:
    for name in ("hourly", "monthly"):
        text = getattr(given, name)
        try:
            if text is not None:
                parse_dollars(text)
        except BadSpendLimit:
            yield f"{path}.{name}", f'is "{text}"; write dollars such as "40.00"'
    if given.nodes is not None and given.nodes < 0:
        yield f"{path}.nodes", f"is {given.nodes}; write 0 or more"


def _read_percent(text: str) -> float | None:
    number = text.removesuffix("%")
    return float(number) if text.endswith("%") and number.isascii() and number.isdigit() else None


def read_overlap(spec: SpendLimitSpec) -> float:
    """The share of the limit by which replacements may exceed it; none where it cannot be read."""
    return (_read_percent(spec.overlap) or 0.0) / 100
