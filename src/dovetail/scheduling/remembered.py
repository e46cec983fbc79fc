"""What was worked out for frozen values, found again for as long as the very same values keep coming.

Between two looks at a cluster hardly anything changes, and simulations ask about the same nodes over and
over. Values are told apart by identity, which is cheap, and held on to, so that an identity stays theirs;
what two runs in a row did not ask about is let go.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Remembered", "new_run"]

T = TypeVar("T")

_ALL: list[Remembered[Any]] = []


class Remembered(Generic[T]):
    """Results by the values they came from."""

    def __init__(self) -> None:
        self._lately: dict[tuple[int, ...], tuple[T, tuple[object, ...]]] = {}
        self._before: dict[tuple[int, ...], tuple[T, tuple[object, ...]]] = {}
        _ALL.append(self)

    def get(self, *values: object) -> T | None:
        key = tuple(map(id, values))
        found = self._lately.get(key)
        if found is None:
            found = self._before.get(key)
            if found is None:
                return None
            self._lately[key] = found
        return found[0]

    def put(self, result: T, *values: object) -> T:
        self._lately[tuple(map(id, values))] = result, values
        return result

    def turn(self) -> None:
        self._before, self._lately = self._lately, {}


def new_run() -> None:
    """Let go of what neither the last run nor the one before has asked about."""
    for each in _ALL:
        each.turn()
