"""Whether a budget's schedule can be read, and whether it ever fires; when, is not asked here."""

from __future__ import annotations

import re

from dovetail.api.numbers import clamp_integer, parse_integer
from dovetail.settings.durations import parse_nanoseconds

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day of month", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:(\*|\?)|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)


def find_cron_problem(text: str) -> str | None:
    """Why a schedule cannot be read; None if it can."""
    if text.startswith("@every "):
        return _find_every_problem(text)
    if text.startswith("@"):
        return None if text in _MACROS else f"{text} is none of {', '.join(_MACROS)}"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"{text} has {len(fields)} fields, and five are needed"
    for field, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        if _parse_values(field, low, high, words) is None:
            return f"{field} is no {name}"
    return None


def never_fires(text: str) -> bool:
    """Whether a schedule that can be read names only days that do not exist, such as 30 February."""
    fields = text.split()
    if text.startswith("@") or find_cron_problem(text) or fields[4][0] not in "*?":
        return False
    days = _parse_values(fields[2], 1, 31, []) or set()
    months = _parse_values(fields[3], 1, 12, _MONTHS) or set()
    return all(min(days) > _LONGEST_MONTH[month - 1] for month in months)


def _find_every_problem(text: str) -> str | None:
    try:
        parse_nanoseconds(text.removeprefix("@every "))
    except ValueError as error:
        return str(error)
    return None


def _parse_values(field: str, low: int, high: int, words: list[str]) -> set[int] | None:
    """The numbers one field stands for, or None if it cannot be read."""
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return None
        star, first, last, step = match.groups()
        step_size = clamp_integer(step or "1") or 0
        start = low if star else _parse_number(first, low, words)
        end = high if star or (step and not last) else _parse_number(last or first, low, words)
        if start is None or end is None or not low <= start <= end <= high or step_size == 0:
            return None
        found.update(range(start, end + 1, step_size))
    return found


def _parse_number(text: str, low: int, words: list[str]) -> int | None:
    if text.lower() in words:
        return words.index(text.lower()) + low
    return parse_integer(text)
