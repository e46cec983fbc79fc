"""Ruin and repack: empty a few nodes, pack their pods again, keep what is cheaper."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.dive import snug
from dovetail.scheduling.packing.fill import Weights
from dovetail.scheduling.packing.greedy import greedy
from dovetail.scheduling.packing.problem import Floats, Ints, Problem, Row, Rows, cost
from dovetail.scheduling.packing.stock import realisable

__all__ = ["repack"]


def repack(
    problem: Problem,
    rows: Rows,
    worth: Floats,
    weights: Weights,
    tries: int,
    rng: np.random.Generator,
    enough: float,
) -> Rows:
    """The rows after `tries` attempts, never dearer than before."""
    price = problem.price
    total = cost(problem, rows)
    for turn in range(tries):
        if total <= enough or len(rows) == 0:
            break
        waste = np.array([row.copies * (price[row.option] - row.counts @ worth * 0.98) for row in rows])
        chance = np.maximum(waste, 1e-9) + 0.02 * np.array([row.copies * price[row.option] for row in rows])
        few = int(rng.integers(2, 10))
        order = rng.random(len(rows)) ** (1.0 / (chance / chance.max()))
        picked = np.argsort(-order, kind="stable")[:few].tolist()
        ruined = sum((rows[i].counts for i in picked), np.zeros(problem.classes, np.int64))
        rest = problem.with_counts(ruined, _loose(problem, ruined))
        shaken = worth * np.exp(rng.normal(0.0, 0.15, problem.classes))
        fresh = snug(rest, greedy(rest, shaken, weights[turn % len(weights)][None, :]))
        saved = sum(float(price[rows[i].option]) for i in picked) - cost(rest, fresh)
        if saved > 1e-9:
            changed = _replaced(rows, picked, fresh)
            if _twins_hold(problem, changed):
                rows, total = changed, total - saved
    return rows


def _loose(problem: Problem, count: Ints) -> tuple[tuple[int, ...], ...] | None:
    """Twins of the ruined nodes; who they are is settled at the end, so only the cap matters here."""
    if not problem.twins:
        return None
    return tuple(
        (1,) * int(n) if twins and n else () for twins, n in zip(problem.twins, count.tolist(), strict=True)
    )


def _replaced(rows: Rows, picked: list[int], fresh: Rows) -> Rows:
    out = []
    for i, row in enumerate(rows):
        copies = row.copies - (1 if i in picked else 0)
        if copies:
            out.append(Row(row.option, row.counts, copies))
    return out + fresh


def _twins_hold(problem: Problem, rows: Rows) -> bool:
    """Can the twins still be shared out among these nodes?"""
    for i, services in enumerate(problem.twins):
        if services:
            per_node = np.repeat([row.counts[i] for row in rows], [row.copies for row in rows])
            if not realisable(services, int(problem.per_twin[i]), per_node):
                return False
    return True
