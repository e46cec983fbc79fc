"""The pods still to be packed, and how often one pattern can be taken from them."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.problem import Ints, Problem, Rows

__all__ = ["Stock", "realisable", "twins_hold"]


class Stock:
    """What is left of every class; for twins also what is left of every service.

    Taking always from the services with most pods left is Ryser's construction: if the counts can
    be shared out at all, this shares them out.
    """

    def __init__(self, problem: Problem) -> None:
        self.left: Ints = problem.count.copy()
        self._fixed = problem.cap()
        self._each = problem.per_twin
        self._family, self._limit = problem.family, problem.limit
        self.twins = {
            i: np.sort(np.array(counts, np.int64))[::-1] for i, counts in enumerate(problem.twins) if counts
        }

    @property
    def empty(self) -> bool:
        return not self.left.any()

    def counts(self, classes: int) -> tuple[tuple[int, ...], ...]:
        """What is left of the twins, in the form a Problem takes."""
        empty = np.zeros(0, np.int64)
        return tuple(tuple(int(n) for n in self.twins.get(i, empty) if n) for i in range(classes))

    def cap(self) -> Ints:
        """The most pods of each class the next node may hold."""
        cap = np.minimum(self._fixed, self.left)
        for i, counts in self.twins.items():
            cap[i] = min(cap[i], np.minimum(counts, self._each[i]).sum())
        return np.asarray(cap)

    def nodes_needed(self) -> int:
        """How many nodes the host rules alone ask for."""
        most = 0
        for f, limit in enumerate(self._limit.tolist()):
            most = max(most, -(-int(self.left[self._family == f].sum()) // limit))
        for i, counts in self.twins.items():
            if len(counts):
                most = max(most, -(-int(counts[0]) // int(self._each[i])))
        return most

    def copies(self, counts: Ints) -> int:
        """How many nodes can each hold `counts` of what is left."""
        used = np.flatnonzero(counts)
        most = int((self.left[used] // counts[used]).min())
        for i, services in self.twins.items():
            wanted = int(counts[i])
            if wanted:
                each = int(self._each[i])
                while most > 1 and np.minimum(services, most * each).sum() < most * wanted:
                    most -= 1
        return most

    def take(self, counts: Ints, copies: int = 1) -> None:
        self.left = self.left - counts * copies
        for i in self.twins:
            for _ in range(copies if counts[i] else 0):
                self.twins[i] = _without(self.twins[i], int(counts[i]), int(self._each[i]))


def _without(services: Ints, wanted: int, each: int) -> Ints:
    """The services after one node took `wanted` pods, at most `each` of one, from the fullest first."""
    out = services.copy()
    given = np.zeros(len(out), np.int64)
    while wanted > 0:
        open_ = np.flatnonzero((given < each) & (out > 0))
        if not len(open_):
            raise ValueError("more twins asked of one node than there are services left")
        some = open_[np.argsort(-out[open_], kind="stable")][:wanted]
        out[some] -= 1
        given[some] += 1
        wanted -= len(some)
    return np.sort(out)[::-1]


def realisable(services: tuple[int, ...], each: int, per_node: Ints) -> bool:
    """Can nodes holding these numbers of twins be filled, with at most `each` of a service on one?"""
    counts = np.array(services, np.int64)
    wanted = np.cumsum(np.sort(per_node)[::-1])
    nodes = np.arange(1, len(wanted) + 1)
    offered = np.minimum(counts[None, :], (nodes * each)[:, None]).sum(axis=1)
    return bool((wanted <= offered).all())


def twins_hold(problem: Problem, rows: Rows) -> bool:
    """Can the twins still be shared out among these nodes?"""
    for i, services in enumerate(problem.twins):
        if services:
            per_node = np.repeat([row.counts[i] for row in rows], [row.copies for row in rows])
            if not realisable(services, int(problem.per_twin[i]), per_node):
                return False
    return True
