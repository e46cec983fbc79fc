"""From fractions to whole nodes: keep what is whole, choose one node, solve again, repeat."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.columns import Columns, cheapest_holding, price_rest, wild_fills
from dovetail.scheduling.packing.fill import lean
from dovetail.scheduling.packing.greedy import greedy
from dovetail.scheduling.packing.problem import Floats, Problem, Row, Rows, cost
from dovetail.scheduling.packing.stock import Stock

__all__ = ["best_greedy", "dive", "snug"]

_AGAIN = 2
_FILLS = 2
_LAST_PART = 0.93  # of the value: what is left after that is better packed by many small greedies


def dive(
    columns: Columns, tries: int, rng: np.random.Generator, beat: float, stock: Stock | None = None
) -> Rows | None:
    """A whole plan near the fractional one, for what is in `stock` (all pods, if none is given).

    None as soon as it is clear that the plan would not be cheaper than `beat`.
    """
    problem = columns.problem
    stock = Stock(problem) if stock is None else stock
    rows: Rows = []
    columns.master.demand(stock.left)
    value, amounts, duals = columns.master.solve()
    while not stock.empty and float(stock.left @ duals) > (1 - _LAST_PART) * value:
        taken = _take_whole(columns, amounts, stock, rows)
        if not taken:
            rows.append(_take_one(columns, amounts, duals, stock, rng))
        columns.master.demand(stock.left)
        rest, amounts, duals = columns.master.solve()
        # Patterns found for all the pods are too big for the last of them.
        for _ in range(_AGAIN):
            if not price_rest(columns, duals, np.maximum(duals, 1e-9), stock.left, stock.cap(), _FILLS, rng):
                break
            rest, amounts, duals = columns.master.solve()
        if cost(problem, rows) + rest >= beat:
            return None
    if not stock.empty:
        rows += best_greedy(problem, np.maximum(duals, 1e-9), stock, tries, rng)
    return rows


def _take_whole(columns: Columns, amounts: Floats, stock: Stock, rows: Rows) -> bool:
    taken = False
    for index in np.flatnonzero(amounts >= 1 - 1e-6).tolist():
        counts = columns.counts[index]
        copies = min(int(amounts[index] + 1e-6), stock.copies(counts)) if (counts <= stock.cap()).all() else 0
        if copies:
            stock.take(counts, copies)
            rows.append(Row(columns.options[index], counts, copies))
            taken = True
    return taken


def _take_one(
    columns: Columns, amounts: Floats, duals: Floats, stock: Stock, rng: np.random.Generator
) -> Row:
    """The pattern with most worth per dollar among the program's own, cut to what is left, and new ones."""
    problem = columns.problem
    used = np.flatnonzero(amounts > 1e-6)
    worth = np.maximum(duals, 1e-9)
    cap = stock.cap()
    options = np.unique(np.array(columns.options, np.int64)[used])
    _, fresh = wild_fills(problem, worth, options, 8, stock.left, cap, rng)
    known = np.minimum(np.array([columns.counts[i] for i in used.tolist()], np.int64), cap)
    candidates = np.unique(np.vstack([known.reshape(-1, problem.classes), fresh]), axis=0)
    candidates = candidates[candidates.any(axis=1)]
    option = cheapest_holding(problem, candidates)
    best = int((candidates @ worth / problem.price[option]).argmax())
    row = Row(int(option[best]), candidates[best], 1)
    stock.take(row.counts)
    return row


def best_greedy(problem: Problem, worth: Floats, stock: Stock, tries: int, rng: np.random.Generator) -> Rows:
    """The cheapest of several greedies over what is left, each with worths shaken a little."""
    rest = problem.with_counts(stock.left, stock.counts(problem.classes) if problem.twins else None)
    weights = lean(problem.request.shape[1])
    best: Rows = []
    for turn in range(max(1, tries)):
        shaken = worth * np.exp(rng.normal(0.0, 0.12, problem.classes)) if turn else worth
        rows = snug(rest, greedy(rest, shaken, weights[turn % len(weights)][None, :]))
        if not best or cost(rest, rows) < cost(rest, best) - 1e-9:
            best = rows
    return best


def snug(problem: Problem, rows: Rows) -> Rows:
    """Every row on the cheapest option that holds it."""
    if not rows:
        return rows
    options = cheapest_holding(problem, np.array([row.counts for row in rows]))
    return [Row(int(option), row.counts, row.copies) for option, row in zip(options, rows, strict=True)]
