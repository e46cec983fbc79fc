"""Durations as Go spells them: ``1h30m``, ``90s``, ``1.5h``.

The rules and the wording of complaints are those of Go's ``time.ParseDuration``, because every
duration in a manifest or a setting was first written for a program that used it. Go counts
nanoseconds in 64 bits; ``nanoseconds`` does too, and ``parse`` keeps what a timedelta can hold,
which is whole microseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
NEVER = "Never"
_LIMIT = 1 << 63
# Only plain digits count: \d and int() would also take the digits of other scripts.
_PART = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")


def parse_duration(text: str) -> timedelta:
    """The duration a text spells; a ValueError says what is wrong with it, as Go would."""
    return _to_timedelta(parse_nanoseconds(text))


def parse_or_never(text: str) -> timedelta | None:
    """A duration, or None for the literal ``Never``; no other spelling of the word will do."""
    return None if text == NEVER else parse_duration(text)


def render_duration(duration: timedelta) -> str:
    """A duration as Go prints it: ``1m30s``, ``1h0m0s``, ``500ms``, ``0s``."""
    return render_nanoseconds(duration // timedelta(microseconds=1) * 1_000)


@lru_cache(maxsize=1024)
def parse_nanoseconds(text: str) -> int:
    """The duration a text spells, in nanoseconds, exactly."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    if not body:
        raise ValueError(f"time: invalid duration {_quote_text(text)}")
    total, position = 0, 0
    while position < len(body):
        part = _PART.match(body, position)
        assert part is not None  # every group may be empty, so the pattern always matches
        total += _parse_part(part, text)
        position = part.end()
        if total > _LIMIT:
            raise ValueError(f"time: invalid duration {_quote_text(text)}")
    negative = text[0] == "-"
    if total == _LIMIT and not negative:
        raise ValueError(f"time: invalid duration {_quote_text(text)}")
    return -total if negative else total


def _parse_part(part: re.Match[str], text: str) -> int:
    """One number with its unit, such as the ``30m`` of ``1h30m``."""
    whole, fraction, unit = part[1], (part[2] or ".")[1:], part[3]
    if not whole and not fraction:
        raise ValueError(f"time: invalid duration {_quote_text(text)}")
    if not unit:
        raise ValueError(f"time: missing unit in duration {_quote_text(text)}")
    if unit not in UNITS:
        raise ValueError(f"time: unknown unit {_quote_text(unit)} in duration {_quote_text(text)}")
    size = UNITS[unit]
    digits = whole.lstrip("0")
    value = int(digits[:20] or "0") * size  # twenty digits are past the limit in any unit
    if value > _LIMIT:
        raise ValueError(f"time: invalid duration {_quote_text(text)}")
    return value + _parse_fraction(fraction, size)


def _parse_fraction(digits: str, size: int) -> int:
    """A fraction of a unit; Go computes it in floating point and drops what is left over."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > (_LIMIT - 1) // 10 or number * 10 + int(digit) > _LIMIT:
            break
        number = number * 10 + int(digit)
        scale *= 10
    return int(number * (size / scale))


def render_nanoseconds(count: int) -> str:
    """A count of nanoseconds as Go prints it."""
    if count == 0:
        return "0s"
    sign, size = ("-", -count) if count < 0 else ("", count)
    if size < UNITS["s"]:
        unit = next(unit for unit in ("ms", "µs", "ns") if size >= UNITS[unit])
        return sign + _render_decimal(size, UNITS[unit]) + unit
    minutes, rest = divmod(size, UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = _render_decimal(rest, UNITS["s"]) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _render_decimal(count: int, size: int) -> str:
    whole, rest = divmod(count, size)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(size)) - 1).rstrip('0')}"


def _to_timedelta(count: int) -> timedelta:
    """Towards zero, so that a time limit is never made longer by being read."""
    whole = timedelta(microseconds=abs(count) // 1_000)
    return -whole if count < 0 else whole


def _quote_text(text: str) -> str:
    """Go's quoting in these messages: bytes outside plain ASCII are spelled out."""
    escaped = "".join(
        f"\\x{byte:02x}" if byte >= 0x80 or byte < 0x20 else {0x22: '\\"', 0x5C: "\\\\"}.get(byte, chr(byte))
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{escaped}"'
