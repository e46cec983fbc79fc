"""Integers that people write as text, bounded where they are read.

Kubernetes counts in 64 bits. Python counts without end, and then refuses to convert more than 4,300 digits:
a label requirement or a budget of 5,000 digits must not reach int().
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LARGEST", "SMALLEST", "clamp_integer", "parse_integer"]

LARGEST: Final = (1 << 63) - 1
SMALLEST: Final = -LARGEST - 1
_MOST_DIGITS: Final = 19
# Possessive, or a long text that is no number would be tried once for each way to cut it in two.
# Only plain digits count, as in Go: int() would also take "1_0", " 7" and the digits of other scripts.
_INTEGER = re.compile(r"([+-]?)0*+([0-9]*+)")


def parse_integer(text: str) -> int | None:
    """The 64-bit integer a text spells; None for any other text, as in Go's ParseInt."""
    number = clamp_integer(text)
    if number is None or SMALLEST < number < LARGEST:
        return number
    spelled = _INTEGER.fullmatch(text)
    assert spelled is not None  # or it would not have been clamped
    return number if spelled[2] == str(abs(number)) else None


def clamp_integer(text: str) -> int | None:
    """The integer a text spells, or the 64-bit integer next to it; None for a text that is no integer."""
    spelled = _INTEGER.fullmatch(text)
    if spelled is None or not text[-1:].isdigit():
        return None
    sign, digits = spelled.groups()
    if len(digits) > _MOST_DIGITS:
        return SMALLEST if sign == "-" else LARGEST
    number = int(digits or "0")
    return max(-number, SMALLEST) if sign == "-" else min(number, LARGEST)
