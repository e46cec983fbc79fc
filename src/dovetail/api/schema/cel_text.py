"""CEL functions over strings: regular expressions, slicing, formatting, and values as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from dovetail.api.patterns import Pattern, PatternError, compile_pattern

_READ_LIMIT = 100_000_000
_MOST_DIGITS = 1_000


class FunctionError(Exception):
    """A function that has no answer for its arguments."""


def require_type(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    # bool is an int to Python but never to CEL
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, (int, float))):
        raise FunctionError(f"no such overload: {name}")


def _takes_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose receiver must be a string."""

    def call(text: Any, *rest: Any) -> Any:
        require_type(function.__name__.strip("_"), text, str)
        return function(text, *rest)

    return call


def _compile_regex(pattern: Any) -> Pattern:
    require_type("find", pattern, str)
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise FunctionError(str(error)) from error


@_takes_text
def find(text: str, pattern: str) -> str:
    """The first match, or the empty string."""
    return _compile_regex(pattern).find_first(text)


@_takes_text
def matches(text: str, pattern: str) -> bool:
    return _compile_regex(pattern).has_match(text)


@_takes_text
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    for match in _compile_regex(pattern).find_all(text):
        # Each match may have read the text to its end.
        if len(found) * len(text) > _READ_LIMIT:
            raise FunctionError("actual cost limit exceeded")
        if 0 <= limit <= len(found):
            break
        found.append(match)
    return found


@_takes_text
def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        parts = list(text)
        return (
            parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
        )
    return text.split(separator, limit - 1 if limit > 0 else -1)


def join(items: Any, separator: str = "") -> str:
    require_type("join", items, list)
    for item in items:
        require_type("join", item, str)
    return separator.join(items)


@_takes_text
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise FunctionError(f"index out of range: {index}")
    return text[index : index + 1]


def index_of(target: Any, wanted: Any, start: int = 0) -> int:
    if isinstance(target, list):
        return next((i for i, item in enumerate(target) if item == wanted), -1)
    require_type("indexOf", target, str)
    if start < 0:
        raise FunctionError(f"index out of range: {start}")
    found: int = target.find(wanted, start)
    return found


def last_index_of(target: Any, wanted: Any, end: int | None = None) -> int:
    if isinstance(target, list):
        return next((i for i in range(len(target) - 1, -1, -1) if target[i] == wanted), -1)
    require_type("lastIndexOf", target, str)
    if end is not None and not 0 <= end <= len(target):
        raise FunctionError(f"index out of range: {end}")
    found: int = target.rfind(wanted, 0, len(target) if end is None else end + len(wanted))
    return found


@_takes_text
def substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise FunctionError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


@_takes_text
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


@_takes_text
def trim(text: str) -> str:
    return text.strip()


@_takes_text
def lower_ascii(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


@_takes_text
def upper_ascii(text: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in text)


@_takes_text
def quote(text: str) -> str:
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


@_takes_text
def format_(template: str, arguments: list[Any]) -> str:
    """The verbs %s %d %f %e %x %X %o %b and %%."""
    left = list(arguments)

    def verb(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        if not left:
            raise FunctionError(f"index {len(arguments)} out of range")
        return _format_verb(match, left.pop(0))

    return re.sub(r"%(?:\.(\d+))?(.)", verb, template, flags=re.DOTALL)


def _format_verb(match: re.Match[str], value: Any) -> str:
    digits, verb = match.groups()
    if verb == "s":
        return to_string(value)
    if verb in "fe":
        require_type("format", value, (int, float))
        if digits and (len(digits) > len(str(_MOST_DIGITS)) or int(digits) > _MOST_DIGITS):
            raise FunctionError(f"precision {digits[:20]} is more than {_MOST_DIGITS}")
        return f"{value:.{digits or 6}{verb}}"
    if verb in "xX" and isinstance(value, str):
        return format(value.encode().hex(), "s").upper() if verb == "X" else value.encode().hex()
    if verb in "dxXob":
        require_type("format", value, int)
        return format(value, verb)
    raise FunctionError(f"unrecognized formatting clause {verb!r}")


def to_string(value: Any) -> str:
    """A value as string() and %s write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_string, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_string(k)}: {to_string(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, float):
        return _format_number(value)
    if isinstance(value, timedelta):
        return f"{_format_number(value.total_seconds())}s"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.decode() if isinstance(value, bytes) else str(value)


def _format_number(value: float) -> str:
    """The shortest text of a number, with an exponent from a million on, as Go writes it."""
    if value != value or value in (math.inf, -math.inf):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    if value and not -4 <= power < 6:
        mantissa = "".join(map(str, digits))
        fraction = f".{mantissa[1:]}" if mantissa[1:] else ""
        return f"{'-' * sign}{mantissa[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return format(Decimal(repr(value)).normalize(), "f") if value else "0"


def to_bool(value: Any) -> bool:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    folded = value.lower() if value in ("TRUE", "True", "FALSE", "False", "T", "F") else value
    if folded not in known:
        raise FunctionError(f"type conversion error from {value!r} to bool")
    return known[folded]


def to_int(value: Any) -> int:
    """int() of a timestamp, which the library lacks."""
    if isinstance(value, datetime):
        return int(value.timestamp())
    raise FunctionError("no such overload: int")
