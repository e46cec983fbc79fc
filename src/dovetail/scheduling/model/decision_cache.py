"""The one cache of decisions about a cluster, created by whoever decides again and again, and handed in.

Each module that remembers something has a part of its own in it, found by the part's type. A process that is
asked by another one has a cache of its own: what was worked out there stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dovetail.scheduling.model.identity_cache import IdentityCache

__all__ = ["DecisionCache"]

T = TypeVar("T")


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
        """A run over these nodes begins: what neither the last nodes nor these so far needed is let go."""
        if nodes is self._nodes:
            return
        self._nodes = nodes
        for part in self._parts.values():
            if isinstance(part, IdentityCache):
                part.age_entries()

    def __reduce__(self) -> tuple[type[DecisionCache], tuple[()]]:
        # It is of use where it is: elsewhere, it begins anew.
        return DecisionCache, ()
