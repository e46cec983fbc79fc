"""The one cache of decisions about a cluster, created by whoever decides again and again, and handed in.

Between two looks at a cluster hardly anything changes, and simulations ask about the same nodes over and
over. Each module that remembers something has a part of its own in the cache, found by the part's type. A
process that is asked by another one has a cache of its own: what was worked out there stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["DecisionCache", "IdentityCache", "SentOnce"]

T = TypeVar("T")


class SentOnce:
    """An answer that a worker gives again and again as the very same object: it is sent once, then named."""

    __slots__ = ()


class IdentityCache(Generic[T]):
    """Results by the frozen objects they were computed from, such as the StateNodes of a cluster.

    Objects are told apart by identity, which is cheap, and held on to, so that an identity stays theirs.
    """

    def __init__(self) -> None:
        self._lately: dict[tuple[int, ...], tuple[T, tuple[object, ...]]] = {}
        self._before: dict[tuple[int, ...], tuple[T, tuple[object, ...]]] = {}

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

    def __bool__(self) -> bool:
        return bool(self._lately or self._before)

    def age_entries(self) -> None:
        """Let go of what was not asked for since the last time."""
        self._before, self._lately = self._lately, {}


class DecisionCache:
    """What decisions left for the next one. Answers are the same with it and without it."""

    def __init__(self) -> None:
        self._parts: dict[object, Any] = {}
        self._nodes: tuple[object, ...] = ()

    def get_part(self, kind: Callable[[], T]) -> T:
        """The part of this type, empty at first."""
        found: T | None = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind()
        return found

    def begin_run(self, nodes: tuple[object, ...]) -> None:
        """A run over these nodes begins: what neither the last nodes nor these so far needed is let go.

        Runs over the very same nodes let go of nothing; without nodes, every run is one over others.
        """
        if nodes and nodes is self._nodes:
            return
        self._nodes = nodes
        for part in tuple(self._parts.values()):
            if isinstance(part, IdentityCache):
                part.age_entries()

    def __reduce__(self) -> tuple[type[DecisionCache], tuple[()]]:
        # It is of use where it is: elsewhere, it begins anew.
        return DecisionCache, ()
