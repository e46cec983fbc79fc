"""The one home of the RE2 library: patterns as Kubernetes reads them, matched in time linear in the text.

A pattern comes from a CustomResourceDefinition or a CEL rule, so from anybody who may write one. Python's own
engine takes exponential time for `^(a+)+$`; RE2, which Go's engine follows, does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

# How much one pattern may hold, compiled and while it runs, and how many are kept.
_MEMORY = 4 * 1024 * 1024
_KEPT = 256
# A byte of any encoding: C++ has it, Go and so Kubernetes have not.
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")


class PatternError(ValueError):
    """A pattern that Kubernetes would not accept."""


class Pattern:
    """One compiled pattern. It is unanchored: it matches wherever in a text it is found."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled

    def has_match(self, text: str) -> bool:
        """Whether the text holds a match."""
        return self._compiled.search(_encode_text(text)) is not None

    def find_first(self, text: str) -> str:
        """The first match, or the empty string."""
        found = self._compiled.search(_encode_text(text))
        return "" if found is None else _decode_text(found.group())

    def find_all(self, text: str) -> Iterator[str]:
        """Every match in turn; an empty one right after another is none."""
        end = -1
        for match in self._compiled.finditer(_encode_text(text)):
            if match.group() or match.start() != end:
                yield _decode_text(match.group())
            end = match.end()


@lru_cache(maxsize=_KEPT)
def compile_pattern(text: str) -> Pattern:
    """The pattern, compiled, or PatternError saying what is wrong with it."""
    if _ANY_BYTE.search(text):
        raise PatternError(f"error parsing regexp {text!r}: invalid escape sequence: \\C")
    try:
        return Pattern(text, re2.compile(_encode_text(text), _build_options()))
    except re2.error as error:
        detail = error.args[0]
        said = _decode_text(detail) if isinstance(detail, bytes) else str(detail)
        raise PatternError(f"error parsing regexp {text!r}: {said}") from error


def _build_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    return options


def _encode_text(text: str) -> bytes:
    # Half a surrogate pair is no character: no pattern matches its bytes.
    return text.encode("utf-8", "surrogatepass")


def _decode_text(text: bytes) -> str:
    return text.decode("utf-8", "replace")
