"""Cron schedules as Kubernetes and Karpenter read them: five fields, macros, `@every`, in UTC.

A day matches when both day fields do, unless both are restricted: then either is enough, as cron
has always had it. A schedule that can never fire (`0 0 30 2 *`) has no next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from dovetail.api.numbers import parse_integer
from dovetail.errors import shorten_text
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = ["Schedule", "parse_schedule"]

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = {name: n for n, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
DAYS = {name: n for n, name in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905
NO_NAMES: dict[str, int] = {}
FIELDS = (
    ("minute", 0, 59, NO_NAMES),
    ("hour", 0, 23, NO_NAMES),
    ("day of month", 1, 31, NO_NAMES),
    ("month", 1, 12, MONTHS),
    ("day of week", 0, 6, DAYS),
)
# Beyond this the calendar holds no surprise: what has not fired in five years never will.
HORIZON_YEARS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """When something recurs."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    any_weekday: bool = True
    every: timedelta | None = None

    def find_next(self, after: datetime) -> datetime | None:
        """The first time strictly after the given one; None if there is none."""
        after = after.astimezone(UTC)
        if self.every is not None:
            return after.replace(microsecond=0) + self.every
        moment = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
        last_year = moment.year + HORIZON_YEARS
        while moment.year <= last_year:
            if moment.month not in self.months:
                moment = (moment.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._on_day(moment):
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
            elif moment.hour not in self.hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in self.minutes:
                moment += timedelta(minutes=1)
            else:
                return moment
        return None

    def _on_day(self, moment: datetime) -> bool:
        by_date = moment.day in self.days
        by_weekday = moment.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_date and by_weekday
        return by_date or by_weekday


@lru_cache(maxsize=256)
def parse_schedule(text: str) -> Schedule:
    """Read a schedule; ValueError says what is wrong with it."""
    text = text.strip()
    if text.startswith("@every "):
        every = parse_duration(text.removeprefix("@every "))
        # Shorter than a second would never advance; whole seconds are what cron keeps.
        return Schedule(every=max(timedelta(seconds=int(every.total_seconds())), timedelta(seconds=1)))
    if text.startswith("@"):
        if text not in MACROS:
            raise ValueError(f"unrecognized descriptor: {text}")
        text = MACROS[text]
    parts = text.split()
    if len(parts) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(parts)}: {text!r}")
    sets = [_parse_field(part, *FIELDS[i]) for i, part in enumerate(parts)]
    return Schedule(
        minutes=sets[0],
        hours=sets[1],
        days=sets[2],
        months=sets[3],
        weekdays=sets[4],
        any_day=_is_any(parts[2]),
        any_weekday=_is_any(parts[4]),
    )


def _is_any(part: str) -> bool:
    # robfig/cron: a star with a step greater than one restricts the field like any list of days.
    return any(one in ("*", "?", "*/1", "?/1") for one in part.split(","))


def _parse_field(part: str, what: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for one in filter(None, part.split(",")):  # robfig/cron does not mind "1,,2"
        values |= _parse_range(one, what, low, high, names)
    return frozenset(values)


def _parse_range(text: str, what: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    span, _, step_text = text.partition("/")
    if "/" in text and "/" in step_text:
        raise ValueError(f"too many slashes: {text}")
    step = _parse_number(step_text, {}) if step_text or "/" in text else 1
    if step <= 0:
        raise ValueError(f"step of range should be a positive number: {text}")
    if span in ("*", "?"):
        first, last = low, high
    else:
        start, dash, end = span.partition("-")
        if "-" in end:
            raise ValueError(f"too many hyphens: {text}")
        first = _parse_number(start, names)
        # "5/15" means from 5 to the end, "5" means 5 alone.
        last = _parse_number(end, names) if dash else (high if "/" in text else first)
    if first < low or last > high or first > last:
        raise ValueError(f"{what} {text!r} is outside {low}-{high} or runs backwards")
    return set(range(first, last + 1, step))


def _parse_number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    number = parse_integer(text)
    if number is None or text.startswith("-"):
        raise ValueError(f"failed to parse int from {shorten_text(text)!r}")
    return number
