"""The kinds of value a setting may have: how each is read, shown and described.

A reader takes text and gives a value, or raises ValueError; the message may add a detail to the
kind's own description of what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from dovetail.settings import durations

__all__ = ["RATE", "Rate", "parse_rate"]

T = TypeVar("T")

# The spellings Go's strconv.ParseBool takes, and no others.
BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
_INT64 = range(-(1 << 63), 1 << 63)


def _no_remarks(_: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """How values of one kind are read and shown.

    ``blank`` says whether an empty variable is a value; where it is not, an empty variable is
    the same as none, as it is upstream. ``remarks`` says what a person should know about a text
    that is accepted all the same.
    """

    allowed: str
    read: Callable[[str], T]
    show: Callable[[T], str] = str
    read_flag: Callable[[str], T] | None = None
    blank: bool = False
    remarks: Callable[[str], tuple[str, ...]] = _no_remarks


def parse_boolean(text: str) -> bool:
    """A truth value as Go's ParseBool reads it."""
    if text not in BOOLEANS:
        raise ValueError
    return BOOLEANS[text]


def _parse_strict_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("as a flag, exactly true or false")
    return text == "true"


def parse_integer(text: str) -> int:
    """A whole number in plain digits that fits in 64 bits."""
    # int() would also take "1_0", " 7" and the digits of other scripts.
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) not in _INT64:
        raise ValueError
    return int(text)


def _integer_between(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = parse_integer(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _parse_fraction(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", text):
        raise ValueError
    value = float(text)
    if value < 0 or not math.isfinite(value):
        raise ValueError
    return value


def _duration_from(low: timedelta) -> Callable[[str], timedelta]:
    def read(text: str) -> timedelta:
        value = durations.parse_duration(text)
        if value < low:
            raise ValueError
        return value

    return read


def _parse_url(text: str) -> str:
    if text:
        parts = urlsplit(text)
        if not parts.scheme or not parts.hostname:
            raise ValueError
    return text


def _parse_millicores(text: str) -> int:
    value = parse_integer(text)
    return value if value > 0 else 1000


def _millicores_remarks(text: str) -> tuple[str, ...]:
    return () if parse_integer(text) > 0 else (f"{text} is not positive, so 1000 is used",)


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def one_of(*options: str, blank: bool = False) -> SettingKind[str]:
    """One of a few words; their case matters, as it does upstream."""

    def read(text: str) -> str:
        if text not in options and not (blank and text == ""):
            raise ValueError
        return text

    words = " or ".join([", ".join(options[:-1]), options[-1]])
    return SettingKind(f"{words} (or empty)" if blank else words, read, blank=True)


BOOLEAN = SettingKind("true or false", parse_boolean, _show_boolean, read_flag=_parse_strict_boolean)
INTEGER = SettingKind("a whole number", parse_integer)
COUNT = SettingKind("a whole number that is 0 or more", _integer_between(0, _INT64[-1]))
POSITIVE = SettingKind("a whole number that is 1 or more", _integer_between(1, _INT64[-1]))
PORT = SettingKind("a port number from 0 to 65535, 0 for any free port", _integer_between(0, 65535))
MILLICORES = SettingKind("a whole number of millicores", _parse_millicores, remarks=_millicores_remarks)
FRACTION = SettingKind("a number that is 0 or more, such as 0.075", _parse_fraction)
WINDOW = SettingKind(
    "a duration such as 10s or 1m30s", _duration_from(timedelta(0)), durations.render_duration
)
INTERVAL = SettingKind(
    "a duration of 1m or longer", _duration_from(timedelta(minutes=1)), durations.render_duration
)
HOURS = SettingKind(
    "a duration of 1h or longer", _duration_from(timedelta(hours=1)), durations.render_duration
)
TEXT: SettingKind[str] = SettingKind("any text", str, blank=True)
LIST = SettingKind("a list with commas between its items", _parse_list, ",".join, blank=True)
URL = SettingKind("an absolute URL with a host, such as https://10.0.0.1:443", _parse_url, blank=True)


_RATE = re.compile(r"([0-9]{1,9})/(.+)")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many nodes within any span of this length."""

    nodes: int
    per: timedelta

    def __str__(self) -> str:
        return f"{self.nodes}/{durations.render_duration(self.per)}"


def parse_rate(text: str) -> Rate:
    """The rate a text spells; a ValueError when it spells none."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid rate {text!r}: write a number of nodes and a duration, such as 10/1h")
    per = durations.parse_duration(found[2])
    if per <= timedelta():
        raise ValueError(f"invalid rate {text!r}: its duration must be longer than nothing")
    return Rate(int(found[1]), per)


def _read_rate(text: str) -> Rate | None:
    return parse_rate(text) if text else None


def _show_rate(rate: Rate | None) -> str:
    return "" if rate is None else str(rate)


RATE: SettingKind[Rate | None] = SettingKind(
    "a number of nodes per duration such as 10/1h, or empty", _read_rate, _show_rate, blank=True
)
