"""Greedy packing: the best node for its price at every turn, as often as the pods allow.

Several problems are packed side by side, turn by turn, and what they offer is filled in one go: the zones of
a batch each have a few dozen rows, and a step over all of them costs hardly more than a step over one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.scheduling.packing.fill import NodeFiller, Weights, tilt_worths
from dovetail.scheduling.packing.problem import (
    Bools,
    Floats,
    Ints,
    PackingProblem,
    PackingRow,
    RemainingPods,
    Rows,
)

__all__ = ["GreedyPacking", "pack_greedily", "pack_together"]

_HOST_SLACK = 1.25  # a node may cost this much more than the average worth behind one host
_NEARLY = 0.985  # of the best node's worth per dollar: others as good are taken in the same turn
_AT_ONCE = 6  # of these, where so many classes make every pattern fit only once or twice
_MANY_CLASSES = 40
_ALL_EVERY = 4  # turns: in between only the third of the options that did best is looked at


def pack_greedily(
    problem: PackingProblem, worth: Floats, weights: Weights, stock: RemainingPods | None = None
) -> Rows:
    """Pack everything in `stock` (all pods, if none is given)."""
    return pack_together([GreedyPacking(problem, worth, weights, stock)])[0]


class GreedyPacking:
    """One problem on its way to a greedy plan: the best node at every turn, as often as the pods allow."""

    def __init__(
        self, problem: PackingProblem, worth: Floats, weights: Weights, stock: RemainingPods | None = None
    ) -> None:
        self.problem, self.worth, self.weights = problem, worth, weights
        self.stock = RemainingPods(problem) if stock is None else stock
        self.rows: Rows = []
        self.options: Ints = np.zeros(0, np.int64)  # those offered this turn, once for each weighting
        self._fits = problem.compute_fits()
        self._at_once = _AT_ONCE if problem.classes > _MANY_CLASSES else 1
        self._favourites = np.zeros(len(problem.price), bool)
        self._turn = 0

    def offer_options(self) -> Ints:
        """The options to fill this turn."""
        useful = self._find_affordable()
        if self._turn % _ALL_EVERY and (useful & self._favourites).any():
            useful &= self._favourites
        offered = np.flatnonzero(useful)
        if not len(offered):
            raise ValueError("a pod fits none of the options")
        self.options = np.repeat(offered, len(self.weights))
        return self.options

    def take_best(self, counts: Floats) -> None:
        """The best node, as often as the pods allow, and others nearly as good while there are pods."""
        value = (counts @ self.worth) / self.problem.price[self.options]
        if not self._turn % _ALL_EVERY:
            self._note_favourites(value)
        self._turn += 1
        order = np.argsort(-value, kind="stable")[: self._at_once]
        stock, first = self.stock, len(self.rows)
        for at in order[value[order] >= _NEARLY * value[order[0]]].tolist():
            if len(self.rows) == first or (counts[at] <= stock.compute_cap()).all():
                held = counts[at].astype(np.int64)
                copies = stock.count_copies(held)
                stock.take_pods(held, copies)
                self.rows.append(PackingRow(int(self.options[at]), held, copies))

    def _note_favourites(self, value: Floats) -> None:
        """The third of the options that did best."""
        offered = self.options[:: len(self.weights)]
        best = value.reshape(len(offered), -1).max(axis=1)
        self._favourites = np.zeros(len(self.problem.price), bool)
        self._favourites[offered[np.argsort(-best, kind="stable")[: max(6, len(offered) // 3)]]] = True

    def _find_affordable(self) -> Bools:
        """Options worth offering now.

        Where many pods each want a node of their own, one giant node would swallow all the filler and
        leave them alone on small dear ones. So no option may cost much more than the worth there is per
        node still needed.
        """
        stock = self.stock
        useful = np.asarray(self._fits[stock.left > 0].any(axis=0))
        needed = stock.count_nodes_needed()
        if needed > 1:
            average = float(stock.left @ self.worth) / needed
            cheap = useful & (self.problem.price <= _HOST_SLACK * average)
            if cheap.any():
                return np.asarray(cheap)
        return useful


class _SharedClasses:
    """Problems over one list of classes: zones of a batch differ in who is where, and hardly in sizes."""

    def __init__(self, packings: Sequence[GreedyPacking]) -> None:
        known: dict[tuple[bytes, int], int] = {}
        self.place: list[Ints] = []  # problem: where its classes are in the list
        sizes: list[Floats] = []
        for packing in packings:
            seen: dict[bytes, int] = {}
            listed = []
            for size in packing.problem.request:
                key = size.tobytes()
                again = seen[key] = seen.get(key, -1) + 1
                at = known.setdefault((key, again), len(known))
                if at == len(sizes):
                    sizes.append(size)
                listed.append(at)
            self.place.append(np.array(listed, np.int64))
        many = len(sizes)
        family: Ints = np.full((len(packings), many), -1, np.int64)
        self.drive = []  # problem: option x class, what a pod is worth while filling
        for number, (packing, place) in enumerate(zip(packings, self.place, strict=True)):
            problem = packing.problem
            family[number, place] = problem.family
            drive = np.full((len(problem.price), many), -1.0)
            drive[:, place] = np.where(problem.allowed.T, tilt_worths(problem, packing.worth), -1.0)
            self.drive.append(drive)
        self.filler = NodeFiller(np.array(sizes), family)

    def fill(self, numbers: Sequence[int], packings: Sequence[GreedyPacking]) -> list[Floats]:
        """Counts of the problem's own classes for what each of these packings offers now."""
        options = [packings[number].offer_options() for number in numbers]
        rooms, weights, drives, caps = [], [], [], []
        for number, offered in zip(numbers, options, strict=True):
            packing, drive = packings[number], self.drive[number][offered]
            cap = np.zeros(drive.shape[1])
            cap[self.place[number]] = packing.stock.compute_cap()
            drive[:, cap < 1] = -1.0
            rooms.append(packing.problem.room[offered])
            ways = len(packing.weights)
            weights.append(np.tile(packing.weights, (len(offered) // ways, 1)))
            drives.append(drive)
            caps.append(np.broadcast_to(cap, drive.shape))
        sizes = [len(each) for each in options]
        counts = self.filler.fill(
            np.repeat(numbers, sizes),
            np.concatenate(rooms),
            np.concatenate(weights),
            np.concatenate(drives),
            np.concatenate(caps),
        )
        ends = np.cumsum(sizes)
        return [
            counts[end - size : end][:, self.place[number]]
            for number, size, end in zip(numbers, sizes, ends.tolist(), strict=True)
        ]


def pack_together(packings: Sequence[GreedyPacking]) -> list[Rows]:
    """All pods of every problem, turn by turn: what each offers is filled in one go."""
    waiting = [number for number, packing in enumerate(packings) if not packing.stock.empty]
    if waiting:
        shared = _SharedClasses(packings)
        while waiting:
            for number, counts in zip(waiting, shared.fill(waiting, packings), strict=True):
                packings[number].take_best(counts)
            waiting = [number for number in waiting if not packings[number].stock.empty]
    return [packing.rows for packing in packings]
