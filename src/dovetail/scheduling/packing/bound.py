"""What no plan can undercut.

Pods may be cut into pieces and nodes bought in fractions, but a piece goes only where a whole pod
would fit, and a node bought in part takes only its part of the whole pods it could hold. The prices
of that linear program are then made safe: whatever the solver's tolerance, dividing by the most any
option could be worth at those prices leaves a true bound.

Two things make it tighter. Whole pods never fill a node beyond what their requests can add up to, so that is
all the room it has. And pods that share no option with others are bounded by themselves: where they are all
alike, the least they can cost is counted out.

Zones are left out: which pods go to which zone is our own choice and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from dovetail.scheduling.packing.improve import split_components
from dovetail.scheduling.packing.lp import solve_interior_duals
from dovetail.scheduling.packing.problem import (
    Bools,
    Floats,
    Ints,
    PackingProblem,
    find_column_kinds,
    list_distinct,
)

__all__ = ["compute_certified_bound", "round_rooms"]

_ALL_ROWS = 2500  # below this many class-option pairs every whole-pod row is kept
_BITES = 0.02  # above, only those that take this much off what pieces would fill
_COUNTED_OUT = 4096  # pods of one class; of more of them, what is rounded off hardly matters
_REACHED = 4096  # units: nodes larger than that can be filled to the last unit


@dataclass(frozen=True, slots=True)
class _Free:
    """Room already paid for, summed over nodes that take the same classes."""

    room: Floats  # pool x resource
    allowed: Bools  # class x pool
    most: Ints  # class x pool: whole pods, node by node


def compute_certified_bound(
    problem: PackingProblem, free_room: Floats | None = None, free_allowed: Bools | None = None
) -> float:
    """Dollars an hour below which no plan can go, with nodes that already run given for nothing."""
    if not problem.count.any():
        return 0.0
    problem = replace(problem, room=round_rooms(problem))
    if free_room is None or not len(free_room):
        return sum(_bound_part(part.problem) for part in split_components(problem))
    return _solve_program(problem, _pool_free_room(problem, free_room, free_allowed))


def _bound_part(problem: PackingProblem) -> float:
    """The bound of pods that share their options with nobody else."""
    if problem.classes == 1 and problem.count[0] <= _COUNTED_OUT:
        return _count_out(problem)
    return _solve_program(problem, _pool_free_room(problem, None, None))


def _solve_program(problem: PackingProblem, free: _Free) -> float:
    program = _Program(problem, free)
    return program.prove_bound(program.compute_duals())


def _count_out(problem: PackingProblem) -> float:
    """The least that pods of one class cost, by what fewer of them cost."""
    whole = _count_whole_pods(problem.request, problem.room, problem.allowed)
    held = np.minimum(whole, problem.compute_cap()[:, None])[0]
    order = np.lexsort((problem.price, -held))
    # Of options that hold as many, the cheapest; none that holds nothing.
    first = order[np.flatnonzero(np.diff(held[order], prepend=-1))]
    first = first[held[first] > 0]
    sizes, prices = held[first], problem.price[first]
    cost = np.zeros(int(problem.count[0]) + 1)
    for pods in range(1, len(cost)):
        cost[pods] = (cost[np.maximum(pods - sizes, 0)] + prices).min(initial=np.inf)
    return float(cost[-1])


def round_rooms(problem: PackingProblem) -> Floats:
    """The room of each option, down to what requests of whole pods can add up to."""
    room = np.maximum(problem.room, 0.0)
    asked = problem.request[problem.count > 0]
    for k in range(room.shape[1]):
        amounts = set(asked[:, k].astype(np.int64).tolist()) - {0}
        step = gcd(*amounts)
        if step:
            units = np.floor(room[:, k] / step).astype(np.int64)
            reached = _list_reached([amount // step for amount in amounts])
            few = units < len(reached)
            units[few] = reached[units[few]]
            room[:, k] = units * float(step)
    return room


def _list_reached(amounts: list[int]) -> Ints:
    """For every number up to some thousands, the largest sum of amounts that is not above it."""
    sums = np.arange(_REACHED) == 0
    for amount in amounts:
        step = amount
        while step < _REACHED:  # once, twice, four times the amount, and so any number of times
            sums[step:] |= sums[:-step].copy()
            step *= 2
    return np.maximum.accumulate(np.where(sums, np.arange(_REACHED), 0))


def _pool_free_room(problem: PackingProblem, room: Floats | None, allowed: Bools | None) -> _Free:
    resources = problem.request.shape[1]
    if room is None or allowed is None or not len(room):
        none = np.zeros((problem.classes, 0))
        return _Free(np.zeros((0, resources)), none.astype(bool), none.astype(np.int64))
    _, kind = find_column_kinds(allowed)
    pools = int(kind.max()) + 1
    most = _count_whole_pods(problem.request, room, allowed)
    summed = np.zeros((pools, resources))
    np.add.at(summed, kind, np.maximum(room, 0.0))
    takes = np.zeros((problem.classes, pools), np.int64)
    np.add.at(takes.T, kind, most.T)
    return _Free(summed, takes > 0, np.minimum(takes, problem.count[:, None]))


def _count_whole_pods(request: Floats, room: Floats, allowed: Bools) -> Ints:
    """Whole pods of a class that one option holds: class x option."""
    most = np.full(allowed.shape, np.inf)
    for k in range(request.shape[1]):
        need = request[:, k, None]
        most = np.minimum(
            most, np.where(need > 0, np.maximum(room[None, :, k], 0) / np.maximum(need, 1e-9), np.inf)
        )
    return np.where(allowed, np.floor(np.minimum(most, 1e9) + 1e-9), 0).astype(np.int64)


class _Program:
    """The assignment program over options (y bought) and class-option pairs (x pods placed)."""

    def __init__(self, problem: PackingProblem, free: _Free) -> None:
        self.problem = problem
        self.scale = np.maximum(problem.room.max(axis=0), 1.0)
        whole = _count_whole_pods(problem.request, problem.room, problem.allowed)
        self.most = np.hstack([np.minimum(whole, problem.compute_cap()[:, None]), free.most])
        self.room = np.vstack([problem.room, free.room]) / self.scale
        self.need = problem.request / self.scale
        self.price = np.concatenate([problem.price, np.zeros(len(free.room))])
        self.bought = len(problem.price)
        self.families = [np.flatnonzero(problem.family == f) for f in range(len(problem.limit))]
        self.pairs = np.nonzero(self.most > 0)

    def compute_duals(self) -> tuple[Floats, Floats]:
        """(worth of a pod, price of a resource on an option): class, and option x resource."""
        classes, options = self.pairs
        resources = self.room.shape[1]
        n, o, pairs = self.problem.classes, len(self.price), len(classes)
        xs = np.arange(pairs) + o
        rows, cols, vals = [classes], [xs], [np.ones(pairs)]
        for k in range(resources):
            rows += [n + options * resources + k, n + np.arange(o) * resources + k]
            cols += [xs, np.arange(o)]
            vals += [-self.need[classes, k], self.room[:, k]]
        extra = self._add_whole_pod_rows(rows, cols, vals, n + o * resources)
        extra = self._add_family_rows(rows, cols, vals, extra)
        low = np.zeros(extra)
        low[:n] = self.problem.count
        upper = np.full(o + pairs, np.inf)
        upper[self.bought : o] = 1.0
        price = np.concatenate([self.price, np.zeros(pairs)])
        row, col, val = np.concatenate(rows), np.concatenate(cols), np.concatenate(vals)
        order = np.lexsort((row, col))
        start = np.searchsorted(col[order], np.arange(o + pairs + 1))
        dual = solve_interior_duals(price, upper, low, start, row[order], val[order])
        worth = np.maximum(dual[:n], 0.0)
        return worth, np.maximum(dual[n : n + o * resources], 0.0).reshape(o, resources)

    def _add_whole_pod_rows(self, rows: list[Ints], cols: list[Ints], vals: list[Floats], first: int) -> int:
        """x <= whole pods * y, where that says more than the resources do."""
        classes, options = self.pairs
        pieces = np.full(len(classes), np.inf)
        for k in range(self.room.shape[1]):
            need = self.need[classes, k]
            pieces = np.minimum(
                pieces, np.where(need > 0, self.room[options, k] / np.maximum(need, 1e-12), np.inf)
            )
        most = self.most[classes, options]
        least = 1e-6 if len(classes) <= _ALL_ROWS else _BITES
        bites = np.flatnonzero((pieces > most * (1 + least)) & (options < self.bought))
        at = first + np.arange(len(bites))
        rows += [at, at]
        cols += [bites + len(self.price), options[bites]]
        vals += [-np.ones(len(bites)), most[bites].astype(float)]
        return first + len(bites)

    def _add_family_rows(self, rows: list[Ints], cols: list[Ints], vals: list[Floats], first: int) -> int:
        """All of a family together <= limit * y."""
        classes, options = self.pairs
        for f in range(len(self.families)):
            related = self.problem.family == f
            inside = np.flatnonzero(related[classes] & (options < self.bought))
            touched = list_distinct(options[inside])
            rows += [first + np.searchsorted(touched, options[inside]), first + np.arange(len(touched))]
            cols += [inside + len(self.price), touched]
            vals += [-np.ones(len(inside)), np.full(len(touched), float(self.problem.limit[f]))]
            first += len(touched)
        return first

    def prove_bound(self, duals: tuple[Floats, Floats]) -> float:
        """The bound these prices prove, by how much any option could be worth at them."""
        worth, resource = duals
        gain = np.maximum(worth[:, None] - self.need @ resource.T, 0.0)  # class x option
        most = (resource * np.maximum(self.room, 0.0)).sum(axis=1)
        alone = self.problem.family < 0
        most = most + (gain[alone] * self.most[alone]).sum(axis=0)
        for f, members in enumerate(self.families):
            inside = np.where(self.most[members] > 0, gain[members], 0.0)
            bought = inside[:, : self.bought].max(axis=0, initial=0.0) * self.problem.limit[f]
            paid = (inside * self.most[members])[:, self.bought :].sum(axis=0)
            most = most + np.concatenate([bought, paid])
        dearest = max(1.0, float((most[: self.bought] / self.problem.price).max(initial=1.0)))
        value = float(self.problem.count @ worth) - float(most[self.bought :].sum())
        return max(0.0, value / dearest)
