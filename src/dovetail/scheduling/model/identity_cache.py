"""What was worked out for frozen values, found again for as long as the very same values keep coming.

Between two looks at a cluster hardly anything changes, and simulations ask about the same nodes over and
over. Values are told apart by identity, which is cheap, and held on to, so that an identity stays theirs;
what no run asked about in two worlds in a row is let go.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["IdentityCache", "age_caches", "build_shared_cache"]

T = TypeVar("T")

_ALL: list[IdentityCache[Any]] = []


class IdentityCache(Generic[T]):
    """Results by the values they came from."""

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

    def limit_entries(self, most: int) -> None:
        """Let go of what was not asked for lately, once there are more results than this."""
        if len(self._lately) > most:
            self.age_entries()

    def age_entries(self) -> None:
        self._before, self._lately = self._lately, {}


def build_shared_cache() -> IdentityCache[Any]:
    """A cache that ages with every run of the process."""
    cache: IdentityCache[Any] = IdentityCache()
    _ALL.append(cache)
    return cache


_world: list[tuple[object, ...]] = [()]


def age_caches(nodes: tuple[object, ...]) -> None:
    """A run over these nodes begins: what was of no use to the last world and this one so far is let go.

    Runs over the very same nodes are of one world; without nodes, every run is a world of its own.
    """
    if nodes and nodes is _world[0]:
        return
    _world[0] = nodes
    for each in _ALL:
        each.age_entries()
