"""Fewer nodes for the same money: two that fit into one which costs no more than both become that one."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.columns import cheapest_holding
from dovetail.scheduling.packing.problem import Bools, Ints, Problem, Row, Rows
from dovetail.scheduling.packing.stock import twins_hold

__all__ = ["merged"]

_ROWS = 48  # rows looked at in pairs, the cheapest first: small nodes gain most
_SAME = 1e-9


def merged(problem: Problem, rows: Rows) -> Rows:
    """The same pods on no more nodes, for no more money."""
    larger = [part for row in rows for part in _with_itself(problem, row)]
    larger.sort(key=lambda row: float(problem.price[row.option]))
    few, rest = larger[:_ROWS], larger[_ROWS:]
    for _ in range(_ROWS):
        pair = _best_pair(problem, few)
        if pair is None:
            break
        few = _joined(few, *pair)
    out = few + rest
    return out if twins_hold(problem, out) else rows


def _with_itself(problem: Problem, row: Row) -> Rows:
    """Copies of one row, as few larger nodes as the price allows."""
    for times in (8, 6, 4, 3, 2):
        many, left = divmod(row.copies, times)
        option = _option_for(problem, row.counts[None, :] * times, problem.price[[row.option]] * times)
        if many and option[0] >= 0:
            larger = _with_itself(problem, Row(int(option[0]), row.counts * times, many))
            return larger + ([Row(row.option, row.counts, left)] if left else [])
    return [row]


def _best_pair(problem: Problem, rows: Rows) -> tuple[int, int, int] | None:
    """Two rows and the option that holds both for least; None when no two are better off together."""
    if len(rows) < 2:
        return None
    counts = np.array([row.counts for row in rows])
    price = problem.price[[row.option for row in rows]]
    first, second = np.triu_indices(len(rows), 1)
    both, paid = counts[first] + counts[second], price[first] + price[second]
    option = _option_for(problem, both, paid)
    good = np.flatnonzero(option >= 0)
    if not len(good):
        return None
    saved = paid[good] - problem.price[option[good]]
    best = good[int(saved.argmax())]
    return int(first[best]), int(second[best]), int(option[best])


def _option_for(problem: Problem, counts: Ints, most: np.ndarray) -> Ints:
    """For each row of counts an option that holds them for no more than `most`; -1 for none."""
    out: Ints = np.full(len(counts), -1, np.int64)
    allowed = np.flatnonzero(_hosts_hold(problem, counts))
    if len(allowed):
        option = cheapest_holding(problem, counts[allowed])
        cheap = (option >= 0) & (problem.price[option] <= most[allowed] + _SAME)
        out[allowed[cheap]] = option[cheap]
    return out


def _hosts_hold(problem: Problem, counts: Ints) -> Bools:
    held = (counts <= problem.cap()).all(axis=1)
    for family, limit in enumerate(problem.limit.tolist()):
        held &= counts[:, problem.family == family].sum(axis=1) <= limit
    return np.asarray(held)


def _joined(rows: Rows, first: int, second: int, option: int) -> Rows:
    a, b = rows[first], rows[second]
    copies = min(a.copies, b.copies)
    out = [row for i, row in enumerate(rows) if i not in (first, second)]
    out += [Row(row.option, row.counts, row.copies - copies) for row in (a, b) if row.copies > copies]
    return [*out, Row(option, a.counts + b.counts, copies)]
