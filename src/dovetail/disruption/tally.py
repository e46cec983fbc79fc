"""Pods by domain, where most domains have none: a rule about hosts knows thousands, and counts in a few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

__all__ = ["Tally"]


class Tally(dict[str, int]):
    """A dict in which every domain that is known and not gone has none until something is counted there.

    What is known is shared by all rules that look at the same nodes, and is not copied.
    """

    __slots__ = ("_gone", "_known")

    def __init__(
        self, known: Mapping[str, object], counted: Mapping[str, int], gone: AbstractSet[str] = frozenset()
    ) -> None:
        super().__init__(counted)
        self._known = known
        self._gone = gone

    def __missing__(self, domain: str) -> int:
        if domain in self:
            return 0
        raise KeyError(domain)

    def __contains__(self, domain: object) -> bool:
        return super().__contains__(domain) or (domain in self._known and domain not in self._gone)

    def get(self, domain: str, default: Any = None) -> Any:
        found = super().get(domain)
        return found if found is not None else 0 if domain in self else default

    def setdefault(self, domain: str, default: int = 0) -> int:
        if domain not in self:
            self[domain] = default
        return self[domain]

    def _empty(self) -> Iterator[str]:
        counted = super().__contains__
        return (each for each in self._known if each not in self._gone and not counted(each))

    def __iter__(self) -> Iterator[str]:
        return chain(super().__iter__(), self._empty())

    def __len__(self) -> int:
        listed = sum(1 for each in self._gone if each in self._known)
        more = sum(1 for each in super().__iter__() if each not in self._known or each in self._gone)
        return len(self._known) - listed + more

    def keys(self) -> Any:
        return dict.fromkeys(self).keys()

    def values(self) -> Any:
        return dict(self).values()

    def items(self) -> Any:
        return ((each, self[each]) for each in self)
