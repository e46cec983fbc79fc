"""Ruin and repack: empty a few nodes, dive again for their pods, keep what is cheaper."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.columns import Columns
from dovetail.scheduling.packing.dive import dive, snug
from dovetail.scheduling.packing.problem import Floats, Ints, Problem, Row, Rows, cost
from dovetail.scheduling.packing.stock import Stock, twins_hold

__all__ = ["repack"]

_FEW = 10  # nodes emptied at once, at most
_GREEDIES = 4


def repack(
    columns: Columns, rows: Rows, worth: Floats, tries: int, rng: np.random.Generator, enough: float
) -> Rows:
    """The rows after `tries` attempts, never dearer than before."""
    problem = columns.problem
    price = problem.price
    total = cost(problem, rows)
    for _ in range(tries):
        if total <= enough or len(rows) < 2:
            break
        picked = _ruined(problem, rows, worth, rng)
        ruined = np.sum([rows[i].counts for i in picked], axis=0)
        rest = problem.with_counts(ruined, _loose(problem, ruined))
        before = sum(float(price[rows[i].option]) for i in picked)
        found = dive(columns, _GREEDIES, rng, before, Stock(rest))
        fresh = [] if found is None else snug(problem, found)
        saved = before - cost(rest, fresh) if fresh else 0.0
        if saved > 1e-9:
            changed = _replaced(rows, picked, fresh)
            if twins_hold(problem, changed):
                rows, total = changed, total - saved
    return rows


def _ruined(problem: Problem, rows: Rows, worth: Floats, rng: np.random.Generator) -> list[int]:
    """Some rows to lose a node, those that cost more than they hold the likeliest."""
    price = problem.price[[row.option for row in rows]]
    copies = np.array([row.copies for row in rows])
    held = np.array([row.counts for row in rows]) @ worth
    chance = np.maximum(price - 0.98 * held, 0.0) + 0.05 * price
    weight = chance * np.sqrt(copies)
    order = rng.random(len(rows)) ** (weight.max() / np.maximum(weight, 1e-12))
    few = int(rng.integers(2, 3 + min(_FEW, len(rows) // 2)))
    return sorted(np.argsort(-order, kind="stable")[:few].tolist())


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
