"""From fractions to whole nodes: keep what is whole, choose one node, solve again, repeat."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.columns import Columns, fill_randomly, find_cheapest_fitting, price_remaining
from dovetail.scheduling.packing.fill import build_weights
from dovetail.scheduling.packing.greedy import pack_greedily
from dovetail.scheduling.packing.problem import (
    Floats,
    Ints,
    PackingProblem,
    PackingRow,
    RemainingPods,
    Rows,
    can_share_twins,
    list_distinct,
    list_distinct_rows,
    sum_cost,
)

__all__ = ["dive_for_plan", "find_best_greedy", "repack_nodes", "shrink_options"]

_AGAIN = 2
_FILLS = 2
_LAST_PART = 0.93  # of the value: what is left after that is better packed by many small greedies


def dive_for_plan(
    columns: Columns, tries: int, rng: np.random.Generator, beat: float, stock: RemainingPods | None = None
) -> Rows | None:
    """A whole plan near the fractional one, for what is in `stock` (all pods, if none is given).

    None as soon as it is clear that the plan would not be cheaper than `beat`.
    """
    problem = columns.problem
    stock = RemainingPods(problem) if stock is None else stock
    rows: Rows = []
    columns.master.set_demand(stock.left)
    value, amounts, duals = columns.master.solve()
    while not stock.empty and float(stock.left @ duals) > (1 - _LAST_PART) * value:
        taken = _take_whole(columns, amounts, stock, rows)
        if not taken:
            rows.append(_take_one(columns, amounts, duals, stock, rng))
        columns.master.set_demand(stock.left)
        rest, amounts, duals = columns.master.solve()
        # Patterns found for all the pods are too big for the last of them.
        for _ in range(_AGAIN):
            if not price_remaining(
                columns, duals, np.maximum(duals, 1e-9), stock.left, stock.compute_cap(), _FILLS, rng
            ):
                break
            rest, amounts, duals = columns.master.solve()
        if sum_cost(problem, rows) + rest >= beat:
            return None
    if not stock.empty:
        rows += find_best_greedy(problem, np.maximum(duals, 1e-9), stock, tries, rng)
    return rows


def _take_whole(columns: Columns, amounts: Floats, stock: RemainingPods, rows: Rows) -> bool:
    taken = False
    for index in np.flatnonzero(amounts >= 1 - 1e-6).tolist():
        counts = columns.counts[index]
        copies = (
            min(int(amounts[index] + 1e-6), stock.count_copies(counts))
            if (counts <= stock.compute_cap()).all()
            else 0
        )
        if copies:
            stock.take_pods(counts, copies)
            rows.append(PackingRow(columns.options[index], counts, copies))
            taken = True
    return taken


def _take_one(
    columns: Columns, amounts: Floats, duals: Floats, stock: RemainingPods, rng: np.random.Generator
) -> PackingRow:
    """The pattern with most worth per dollar among the program's own, cut to what is left, and new ones."""
    problem = columns.problem
    used = np.flatnonzero(amounts > 1e-6)
    worth = np.maximum(duals, 1e-9)
    cap = stock.compute_cap()
    options = list_distinct(np.array(columns.options, np.int64)[used])
    _, fresh = fill_randomly(problem, worth, options, 8, stock.left, cap, rng)
    known = np.minimum(np.array([columns.counts[i] for i in used.tolist()], np.int64), cap)
    candidates = list_distinct_rows(np.vstack([known.reshape(-1, problem.classes), fresh]))
    candidates = candidates[candidates.any(axis=1)]
    option = find_cheapest_fitting(problem, candidates)
    best = int((candidates @ worth / problem.price[option]).argmax())
    row = PackingRow(int(option[best]), candidates[best], 1)
    stock.take_pods(row.counts)
    return row


def find_best_greedy(
    problem: PackingProblem, worth: Floats, stock: RemainingPods, tries: int, rng: np.random.Generator
) -> Rows:
    """The cheapest of several greedies over what is left, each with worths shaken a little."""
    rest = problem.with_counts(stock.left, stock.list_twin_counts(problem.classes) if problem.twins else None)
    weights = build_weights(problem.request.shape[1])
    best: Rows = []
    for turn in range(max(1, tries)):
        shaken = worth * np.exp(rng.normal(0.0, 0.12, problem.classes)) if turn else worth
        rows = shrink_options(rest, pack_greedily(rest, shaken, weights[turn % len(weights)][None, :]))
        if not best or sum_cost(rest, rows) < sum_cost(rest, best) - 1e-9:
            best = rows
    return best


def shrink_options(problem: PackingProblem, rows: Rows) -> Rows:
    """Every row on the cheapest option that holds it."""
    if not rows:
        return rows
    options = find_cheapest_fitting(problem, np.array([row.counts for row in rows]))
    return [
        PackingRow(int(option), row.counts, row.copies) for option, row in zip(options, rows, strict=True)
    ]


_FEW = 10  # nodes emptied at once, at most
_GREEDIES = 4


def repack_nodes(
    columns: Columns, rows: Rows, worth: Floats, tries: int, rng: np.random.Generator, enough: float
) -> Rows:
    """The rows after `tries` attempts, never dearer than before."""
    problem = columns.problem
    price = problem.price
    total = sum_cost(problem, rows)
    for _ in range(tries):
        if total <= enough or len(rows) < 2:
            break
        picked = _choose_ruined(problem, rows, worth, rng)
        ruined = np.sum([rows[i].counts for i in picked], axis=0)
        rest = problem.with_counts(ruined, _loosen_twins(problem, ruined))
        before = sum(float(price[rows[i].option]) for i in picked)
        found = dive_for_plan(columns, _GREEDIES, rng, before, RemainingPods(rest))
        fresh = [] if found is None else shrink_options(problem, found)
        saved = before - sum_cost(rest, fresh) if fresh else 0.0
        if saved > 1e-9:
            changed = _replace_rows(rows, picked, fresh)
            if can_share_twins(problem, changed):
                rows, total = changed, total - saved
    return rows


def _choose_ruined(problem: PackingProblem, rows: Rows, worth: Floats, rng: np.random.Generator) -> list[int]:
    """Some rows to lose a node, those that cost more than they hold the likeliest."""
    price = problem.price[[row.option for row in rows]]
    copies = np.array([row.copies for row in rows])
    held = np.array([row.counts for row in rows]) @ worth
    chance = np.maximum(price - 0.98 * held, 0.0) + 0.05 * price
    weight = chance * np.sqrt(copies)
    order = rng.random(len(rows)) ** (weight.max() / np.maximum(weight, 1e-12))
    few = int(rng.integers(2, 3 + min(_FEW, len(rows) // 2)))
    return sorted(np.argsort(-order, kind="stable")[:few].tolist())


def _loosen_twins(problem: PackingProblem, count: Ints) -> tuple[tuple[int, ...], ...] | None:
    """Twins of the ruined nodes; who they are is settled at the end, so only the cap matters here."""
    if not problem.twins:
        return None
    return tuple(
        (1,) * int(n) if twins and n else () for twins, n in zip(problem.twins, count.tolist(), strict=True)
    )


def _replace_rows(rows: Rows, picked: list[int], fresh: Rows) -> Rows:
    out = []
    for i, row in enumerate(rows):
        copies = row.copies - (1 if i in picked else 0)
        if copies:
            out.append(PackingRow(row.option, row.counts, copies))
    return out + fresh
