"""Regular expressions with RE2's meaning, on Python's engine.

`$` ends the text and not the line before it, and what RE2 lacks (look-around, backreferences, possessive
repeats) is refused, so that a pattern accepted here is accepted by a real server.
"""

from __future__ import annotations

import re
from functools import lru_cache

_POSIX = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "0-9A-Za-z",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t\n\v\f\r ",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": "0-9A-Za-z_",
    "cntrl": r"\x00-\x1f\x7f",
    "print": " -~",
    "graph": "!-~",
    "blank": r"\t ",
    "ascii": r"\x00-\x7f",
}
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\x\{[0-9A-Fa-f]+\}|\\[pP](?:\{\^?\w+\}|\w)|\\."
    r"|\(\?P?[^:)>]*[:)>]?|\[:\^?\w+:\]|\{\d+(?:,\d*)?\}[*+]?|[*+?][*+]|.",
    re.DOTALL,
)
_ASSERTIONS = frozenset({"^", "$", r"\A", r"\z", r"\b", r"\B"})
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_REPEAT_LIMIT = 1000


class PatternError(ValueError):
    """A pattern that RE2 would not accept."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled; `search` it, since patterns are unanchored."""
    for low, high in _REPEAT.findall(pattern):
        if int(low) > _REPEAT_LIMIT or (high and int(high) > _REPEAT_LIMIT):
            raise PatternError(f"invalid repeat count in {pattern!r}")
    try:
        # RE2's \d \w \s and \b know only ASCII.
        return re.compile(_translated(pattern), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"error parsing regexp {pattern!r}: {error}") from error


def _translated(pattern: str) -> str:
    out: list[str] = []
    in_class = False
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        assert match is not None  # the last alternative takes any character
        token = match.group()
        if in_class and len(token) > 1 and token[0] not in "\\[":
            token = token[0]  # a class holds single characters
        position += len(token)
        if in_class:
            # Doubled signs would be set operations to Python.
            doubled = token == "-" and out[-1] == "-"
            out.append("\\-" if doubled else _inside_class(token, pattern))
            in_class = token != "]"
        elif token.startswith("["):
            opening = re.match(r"\[\^?\]?", pattern[position - len(token) :])
            assert opening is not None  # the token is a bracket
            position += len(opening.group()) - len(token)
            out.append(opening.group().replace("]", "\\]"))
            in_class = True
        else:
            piece = _outside_class(token, pattern)
            # Python repeats no bare assertion.
            repeated = token in _ASSERTIONS and pattern[position : position + 1] in ("*", "+", "?", "{")
            out.append(f"(?:{piece})" if repeated else piece)
    return "".join(out)


def _outside_class(token: str, pattern: str) -> str:
    if token == "$":
        return "$" if re.search(r"\(\?[ims]*m", pattern) else r"\Z"
    if token.startswith("(?"):
        return _group(token, pattern)
    if len(token) > 1 and token[0] in "*+?{" and token[-1] in "*+":
        raise PatternError(f"invalid nested repetition operator {token!r} in {pattern!r}")
    if token in "{}":
        return f"\\{token}"
    if token.startswith("\\Q"):
        return re.escape(token[2:].removesuffix("\\E"))
    return _escape(token, pattern)


def _group(token: str, pattern: str) -> str:
    if re.match(r"\(\?(?:=|!|<=|<!|#|P=|P>|\()", token) or token.startswith("(?>"):
        raise PatternError(f"invalid or unsupported Perl syntax: {token!r} in {pattern!r}")
    if re.match(r"\(\?<[A-Za-z_]", token):
        return "(?P" + token[2:]
    flags = re.match(r"\(\?([imsU]*)(?:-([imsU]*))?([:)])\Z", token)
    if flags and "U" in token:
        raise PatternError(f"the ungreedy flag in {pattern!r} is not supported here")
    return token


def _inside_class(token: str, pattern: str) -> str:
    if token.startswith("[:"):
        return _posix_class(token, pattern)
    if token.startswith(("\\p", "\\P")):
        raise PatternError(f"the Unicode class {token!r} inside a class in {pattern!r} is not supported here")
    if token in "[&~|":
        return f"\\{token}"
    return _escape(token, pattern)


def _posix_class(token: str, pattern: str) -> str:
    name = token.strip("[:]")
    if name.startswith("^") or name not in _POSIX:
        raise PatternError(f"invalid character class range {token!r} in {pattern!r}")
    return _POSIX[name]


def _escape(token: str, pattern: str) -> str:
    if not token.startswith("\\") or len(token) < 2:
        return token
    if token[1] in "123456789":
        raise PatternError(f"invalid escape sequence {token!r} in {pattern!r}")
    if token == "\\z":
        return r"\Z"
    if token.startswith("\\x{"):
        return f"\\U{int(token[3:-1], 16):08x}"
    if token[1] in "pP":
        return _unicode_class(token, pattern)
    if token[1].isalpha() and token[1] not in "AbBdDsSwWafnrtvxzC":
        raise PatternError(f"invalid escape sequence {token!r} in {pattern!r}")
    return token


def _unicode_class(token: str, pattern: str) -> str:
    """The few Unicode classes that have a spelling in Python's engine."""
    known = {"L": r"(?u:[^\W\d_])", "Nd": r"(?u:\d)"}
    name = token[2:].strip("{}")
    if token[1] == "P" or name not in known:
        raise PatternError(f"the Unicode class {token!r} in {pattern!r} is not supported here")
    return known[name]
