"""What an unquoted YAML word means, by the rules kubectl follows.

kubectl reads YAML 1.1 through Go: `on`, `yes` and even `y` are booleans, a leading zero means octal,
and `0o17`, `0b11` and `1_000` are numbers. Base-60 numbers and dates stay text. The table in the unit
test was recorded from kubectl itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from math import isinf

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INTEGER = re.compile(r"([-+]?)(?:0[bB]([01]+)|0[xX]([0-9a-fA-F]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES = (2, 16, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMERIC_START = frozenset("0123456789+-.")
# Longer digit runs cannot be 64-bit numbers, and Python refuses to parse the longest of them.
_LONGEST_NUMBER = 400

TAG = "tag:yaml.org,2002:"


class BadScalar(ValueError):
    """A word that contradicts its own tag, or has no counterpart in JSON."""


def parse_plain(text: str) -> Scalar:
    """The value of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if _INFINITE.fullmatch(text):
        raise BadScalar(f"{text} has no counterpart in JSON; write a finite number")
    number = _parse_number(text.replace("_", ""))
    return text if number is None else number


def parse_tagged(text: str, tag: str) -> Scalar:
    """The value of a word whose type is spelled out, as in `!!int "4"`."""
    match tag.removeprefix(TAG):
        case "binary":
            return _decode_binary(text)
        case "int" | "bool" | "null" | "float" as kind:
            return _check_kind(parse_plain(text), kind, text)
        case _:
            return text


def as_key(value: Scalar) -> str:
    """A mapping key as JSON spells it: `on: 1` becomes the key "true", as it does in kubectl."""
    if value is None:
        raise BadScalar("a key is null; give it a name or quote it")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.17g}" if isinstance(value, float) else str(value)


def integer_or_float(value: int) -> int | float:
    """Kubernetes keeps 64-bit integers; anything wider is a float there, and so it is here."""
    return value if -(2**63) <= value < 2**63 else float(value)


def _parse_number(text: str) -> int | float | None:
    if len(text) > _LONGEST_NUMBER:
        return None
    found = _INTEGER.fullmatch(text)
    if found:
        sign, *bases = found.groups()
        digits, base = next((d, b) for d, b in zip(bases, _BASES, strict=True) if d is not None)
        value = int(sign + digits, base)
        if -(2**63) <= value < 2**64:
            return integer_or_float(value)
    if not _FLOAT.fullmatch(text):
        return None
    real = float(text)
    if isinf(real):
        return None
    return int(real) if real.is_integer() and abs(real) < 2**63 else real


def _decode_binary(text: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise BadScalar("!!binary holds text that is not base64") from None


def _check_kind(value: Scalar, kind: str, text: str) -> Scalar:
    fits = {
        "int": _INTEGER.fullmatch(text.replace("_", "")) is not None,
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "null": value is None,
    }
    if not fits[kind]:
        raise BadScalar(f"{text!r} is tagged !!{kind} but is not one")
    return value
