"""The packing problem as arrays, and a plan as rows of counts.

Amounts are whole numbers kept in floats, each below 2**33 (cpu in thousandths, memory in KiB), so
that sums and quotients are exact. The resources come in the same order everywhere: cpu, memory, any
others, and last the number of pods a node takes.

Two host rules reach the packing. A *family* is a set of classes of which one node takes at most so
many pods together (an anti-affinity shared by many shapes). A class of *twins* merges pods of equal
shape from many services, of which one node takes at most so many of each service; the class lists
how many pods each service has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["MANY", "Bools", "Floats", "Ints", "Problem", "Row", "Rows", "cost", "counts_of", "undominated"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MANY = 1 << 30  # more pods than any node or batch holds


@dataclass(frozen=True, slots=True)
class Row:
    """`copies` nodes of one option, each holding `counts` pods of every class."""

    option: int
    counts: Ints
    copies: int = 1


Rows = list[Row]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Classes of pods, options to buy, and which option takes which class."""

    request: Floats  # class x resource
    count: Ints  # pods of each class
    room: Floats  # option x resource
    price: Floats  # option
    allowed: Bools  # class x option
    family: Ints  # class: index into limit, or -1
    limit: Ints  # family: most pods of it on one node
    twins: tuple[tuple[int, ...], ...] = ()  # class: pods of each service, () where it does not matter
    per_twin: Ints = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # class: most pods of one service a node

    @property
    def classes(self) -> int:
        return len(self.count)

    def twin_counts(self, index: int) -> tuple[int, ...]:
        return self.twins[index] if self.twins else ()

    def cap(self) -> Ints:
        """The most pods of each class that host rules let one node hold."""
        cap = np.full(self.classes, MANY, np.int64)
        held = self.family >= 0
        cap[held] = self.limit[self.family[held]]
        for index, counts in enumerate(self.twins):
            if counts:
                each = int(self.per_twin[index])
                cap[index] = min(int(cap[index]), sum(min(each, n) for n in counts))
        return np.minimum(cap, self.count)

    def seats(self) -> list[tuple[Ints, int]]:
        """Sets of classes that ask for a number of nodes whatever their size: (classes, pods a node)."""
        out = [(np.flatnonzero(self.family == f), int(limit)) for f, limit in enumerate(self.limit)]
        cap = self.cap()
        out += [(np.array([i]), int(cap[i])) for i, counts in enumerate(self.twins) if counts]
        return [(members, limit) for members, limit in out if len(members)]

    def with_counts(self, count: Ints, twins: tuple[tuple[int, ...], ...] | None = None) -> Problem:
        return replace(self, count=count, twins=self.twins if twins is None else twins)

    def fits(self) -> Bools:
        """Which option takes at least one pod of which class: class x option."""
        out = self.allowed.copy()
        for k in range(self.room.shape[1]):
            out &= self.request[:, k, None] <= self.room[None, :, k]
        return out


def cost(problem: Problem, rows: Rows) -> float:
    return float(sum(problem.price[row.option] * row.copies for row in rows))


def counts_of(problem: Problem, rows: Rows) -> Ints:
    """How many pods of each class the rows hold."""
    total = np.zeros(problem.classes, np.int64)
    for row in rows:
        total += row.counts * row.copies
    return total


def undominated(room: Floats, price: Floats) -> Ints:
    """Indices of options that no other beats in every resource for no more money, in price order."""
    order = np.lexsort((-room.sum(axis=1), price))
    room = room[order]
    # Earlier in price order, so never dearer: as much room in everything makes the later one useless.
    beaten = np.ones((len(order), len(order)), bool)
    for k in range(room.shape[1]):
        beaten &= room[:, k, None] >= room[None, :, k]
    beaten &= np.tri(len(order), k=-1, dtype=bool).T
    return np.asarray(order[~beaten.any(axis=0)], np.int64)
