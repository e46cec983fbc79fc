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

__all__ = [
    "MANY",
    "Bools",
    "Floats",
    "Ints",
    "PackingProblem",
    "PackingRow",
    "RemainingPods",
    "Rows",
    "can_share_out",
    "can_share_twins",
    "find_column_kinds",
    "find_undominated",
    "index_distinct",
    "list_distinct",
    "list_distinct_rows",
    "sum_cost",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MANY = 1 << 30  # more pods than any node or batch holds


@dataclass(frozen=True, slots=True)
class PackingRow:
    """`copies` nodes of one option, each holding `counts` pods of every class."""

    option: int
    counts: Ints
    copies: int = 1


Rows = list[PackingRow]


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
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

    def compute_cap(self) -> Ints:
        """The most pods of each class that host rules let one node hold."""
        cap = np.full(self.classes, MANY, np.int64)
        held = self.family >= 0
        cap[held] = self.limit[self.family[held]]
        for index, counts in enumerate(self.twins):
            if counts:
                each = int(self.per_twin[index])
                cap[index] = min(int(cap[index]), sum(min(each, n) for n in counts))
        return np.minimum(cap, self.count)

    def list_host_demands(self) -> list[tuple[Ints, int]]:
        """Sets of classes that ask for a number of nodes whatever their size: (classes, pods a node)."""
        out = [(np.flatnonzero(self.family == f), int(limit)) for f, limit in enumerate(self.limit)]
        cap = self.compute_cap()
        out += [(np.array([i]), int(cap[i])) for i, counts in enumerate(self.twins) if counts]
        return [(members, limit) for members, limit in out if len(members)]

    def with_counts(self, count: Ints, twins: tuple[tuple[int, ...], ...] | None = None) -> PackingProblem:
        return replace(self, count=count, twins=self.twins if twins is None else twins)

    def compute_fits(self) -> Bools:
        """Which option takes at least one pod of which class: class x option."""
        out = self.allowed.copy()
        for k in range(self.room.shape[1]):
            out &= self.request[:, k, None] <= self.room[None, :, k]
        return out


def sum_cost(problem: PackingProblem, rows: Rows) -> float:
    return float(sum(problem.price[row.option] * row.copies for row in rows))


def find_undominated(room: Floats, price: Floats) -> Ints:
    """Indices of options that no other beats in every resource for no more money, in price order."""
    order = np.lexsort((-room.sum(axis=1), price))
    room = room[order]
    # Earlier in price order, so never dearer: as much room in everything makes the later one useless.
    beaten = np.ones((len(order), len(order)), bool)
    for k in range(room.shape[1]):
        beaten &= room[:, k, None] >= room[None, :, k]
    beaten &= np.tri(len(order), k=-1, dtype=bool).T
    return np.asarray(order[~beaten.any(axis=0)], np.int64)


def list_distinct(values: Ints) -> Ints:
    """The different values, lowest first. For the few there are here quicker than numpy's own way."""
    return np.array(sorted(set(values.tolist())), np.int64)


def index_distinct(values: Ints) -> tuple[Ints, Ints]:
    """The different values, lowest first, and which of them each is."""
    distinct = list_distinct(values)
    return distinct, np.searchsorted(distinct, values)


def list_distinct_rows(rows: Ints) -> Ints:
    """The different rows of counts, each once, in rising order."""
    # Written with the highest byte first, rows of whole numbers compare as their bytes do.
    keys = sorted(set(_cut_into_rows(rows.astype(">i8"))))
    found = np.frombuffer(b"".join(keys), ">i8").astype(np.int64)
    return found.reshape(len(keys), rows.shape[1])


def find_column_kinds(flags: Bools) -> tuple[Ints, Ints]:
    """Columns that are alike: where each kind comes first, and which kind each column is."""
    keys = _cut_into_rows(np.packbits(flags, axis=0).T)
    first: dict[bytes, int] = {}
    for at, key in enumerate(keys):
        first.setdefault(key, at)
    number = {key: kind for kind, key in enumerate(sorted(first))}
    return (
        np.array([first[key] for key in number], np.int64),
        np.array([number[key] for key in keys], np.int64),
    )


def _cut_into_rows(table: np.ndarray) -> list[bytes]:
    raw, width = np.ascontiguousarray(table).tobytes(), table.shape[1] * table.itemsize
    return [raw[at : at + width] for at in range(0, len(raw), width)] if width else [b""] * len(table)


class RemainingPods:
    """What is left of every class; for twins also what is left of every service.

    Taking always from the services with most pods left is Ryser's construction: if the counts can
    be shared out at all, this shares them out.
    """

    def __init__(self, problem: PackingProblem) -> None:
        self.left: Ints = problem.count.copy()
        self._fixed = problem.compute_cap()
        self._each: list[int] = problem.per_twin.tolist()
        self._limit: list[int] = problem.limit.tolist()
        self._members = [np.flatnonzero(problem.family == f) for f in range(len(self._limit))]
        self.twins = {i: sorted(counts, reverse=True) for i, counts in enumerate(problem.twins) if counts}
        self._together: dict[int, int] = {}  # twins: the most one node may hold of all services together
        for i in self.twins:
            self._note_twins(i)

    def _note_twins(self, index: int) -> None:
        each = self._each[index]
        self._together[index] = sum([min(each, pods) for pods in self.twins[index]])

    @property
    def empty(self) -> bool:
        return not self.left.any()

    def list_twin_counts(self, classes: int) -> tuple[tuple[int, ...], ...]:
        """What is left of the twins, in the form a Problem takes."""
        return tuple(tuple([n for n in self.twins.get(i, ()) if n]) for i in range(classes))

    def compute_cap(self) -> Ints:
        """The most pods of each class the next node may hold."""
        cap: Ints = np.minimum(self._fixed, self.left)
        for i, pods in self._together.items():
            if pods < cap[i]:
                cap[i] = pods
        return cap

    def count_nodes_needed(self) -> int:
        """How many nodes the host rules alone ask for."""
        most = 0
        for members, limit in zip(self._members, self._limit, strict=True):
            most = max(most, -(-int(self.left[members].sum()) // limit))
        for i, counts in self.twins.items():
            most = max(most, -(-counts[0] // self._each[i]))
        return most

    def count_copies(self, counts: Ints) -> int:
        """How many nodes can each hold `counts` of what is left."""
        used = np.flatnonzero(counts)
        most = int((self.left[used] // counts[used]).min())
        if self.twins:
            for i, wanted in zip(used.tolist(), counts[used].tolist(), strict=True):
                services, each = self.twins.get(i, ()), self._each[i]
                while services and most > 1 and sum([min(n, most * each) for n in services]) < most * wanted:
                    most -= 1
        return most

    def take_pods(self, counts: Ints, copies: int = 1) -> None:
        self.left = self.left - counts * copies
        for i in self.twins:
            wanted = int(counts[i])
            if wanted:
                for _ in range(copies):
                    self.twins[i] = _take_twins(self.twins[i], wanted, self._each[i])
                self._note_twins(i)


def _take_twins(services: list[int], wanted: int, each: int) -> list[int]:
    """The services after one node took `wanted` pods, at most `each` of one, from the fullest first."""
    out, given = list(services), [0] * len(services)
    while wanted > 0:
        open_ = [at for at, pods in enumerate(out) if pods > 0 and given[at] < each]
        if not open_:
            raise ValueError("more twins asked of one node than there are services left")
        open_.sort(key=lambda at: -out[at])
        for at in open_[:wanted]:
            out[at] -= 1
            given[at] += 1
        wanted -= len(open_)
    return sorted(out, reverse=True)


def can_share_out(services: tuple[int, ...], each: int, per_node: Ints) -> bool:
    """Can nodes holding these numbers of twins be filled, with at most `each` of a service on one?"""
    counts = np.array(services, np.int64)
    wanted = np.cumsum(np.sort(per_node)[::-1])
    nodes = np.arange(1, len(wanted) + 1)
    offered = np.minimum(counts[None, :], (nodes * each)[:, None]).sum(axis=1)
    return bool((wanted <= offered).all())


def can_share_twins(problem: PackingProblem, rows: Rows) -> bool:
    """Can the twins still be shared out among these nodes?"""
    for i, services in enumerate(problem.twins):
        if services:
            per_node = np.repeat([row.counts[i] for row in rows], [row.copies for row in rows])
            if not can_share_out(services, int(problem.per_twin[i]), per_node):
                return False
    return True
