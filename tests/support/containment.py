"""Bugs that containment would hide: where one object fails and the others are served, tests look at why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What Python raises when code is wrong, rather than a value absurd.
BUGS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    NotImplementedError,
    TypeError,
    ZeroDivisionError,
)
_contained: list[Exception] = []


def _audit(event: str, told: tuple[Any, ...]) -> None:
    if event == "dovetail.contained":
        _contained.append(told[0])


sys.addaudithook(_audit)


@contextmanager
def bugs_contained() -> Iterator[list[Exception]]:
    """The bugs that are contained while the block lasts."""
    begun = len(_contained)
    found: list[Exception] = []
    try:
        yield found
    finally:
        found += [each for each in _contained[begun:] if isinstance(each, BUGS)]
        del _contained[begun:]
