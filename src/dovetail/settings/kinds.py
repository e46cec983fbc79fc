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

T = TypeVar("T")

# The spellings Go's strconv.ParseBool takes, and no others.
BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
_INT64 = range(-(1 << 63), 1 << 63)


def _no_remarks(_: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
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


def boolean(text: str) -> bool:
    """A truth value as Go's ParseBool reads it."""
    if text not in BOOLEANS:
        raise ValueError
    return BOOLEANS[text]


def _strict_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("as a flag, exactly true or false")
    return text == "true"


def integer(text: str) -> int:
    """A whole number in plain digits that fits in 64 bits."""
    # int() would also take "1_0", " 7" and the digits of other scripts.
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) not in _INT64:
        raise ValueError
    return int(text)


def _bounded(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = integer(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _fraction(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", text):
        raise ValueError
    value = float(text)
    if value < 0 or not math.isfinite(value):
        raise ValueError
    return value


def _duration_from(low: timedelta) -> Callable[[str], timedelta]:
    def read(text: str) -> timedelta:
        value = durations.parse(text)
        if value < low:
            raise ValueError
        return value

    return read


def _url(text: str) -> str:
    if text:
        parts = urlsplit(text)
        if not parts.scheme or not parts.hostname:
            raise ValueError
    return text


def _millicores(text: str) -> int:
    value = integer(text)
    return value if value > 0 else 1000


def _millicores_remarks(text: str) -> tuple[str, ...]:
    return () if integer(text) > 0 else (f"{text} is not positive, so 1000 is used",)


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def choice(*options: str, blank: bool = False) -> Kind[str]:
    """One of a few words; their case matters, as it does upstream."""

    def read(text: str) -> str:
        if text not in options and not (blank and text == ""):
            raise ValueError
        return text

    words = " or ".join([", ".join(options[:-1]), options[-1]])
    return Kind(f"{words} (or empty)" if blank else words, read, blank=True)


BOOLEAN = Kind("true or false", boolean, _show_boolean, read_flag=_strict_boolean)
INTEGER = Kind("a whole number", integer)
COUNT = Kind("a whole number that is 0 or more", _bounded(0, _INT64[-1]))
PORT = Kind("a port number from 0 to 65535, 0 for any free port", _bounded(0, 65535))
MILLICORES = Kind("a whole number of millicores", _millicores, remarks=_millicores_remarks)
FRACTION = Kind("a number that is 0 or more, such as 0.075", _fraction)
WINDOW = Kind("a duration such as 10s or 1m30s", _duration_from(timedelta(0)), durations.render)
INTERVAL = Kind("a duration of 1m or longer", _duration_from(timedelta(minutes=1)), durations.render)
TEXT: Kind[str] = Kind("any text", str, blank=True)
LIST = Kind("a list with commas between its items", _list, ",".join, blank=True)
URL = Kind("an absolute URL with a host, such as https://10.0.0.1:443", _url, blank=True)
