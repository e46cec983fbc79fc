"""Fewer nodes for the same money: two that fit into one which costs no more than both become that one."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.columns import cheapest_holding
from dovetail.scheduling.packing.problem import Bools, Ints, Problem, Row, Rows
from dovetail.scheduling.packing.stock import twins_hold

__all__ = ["merged"]

_ROWS = 48  # rows looked at in pairs, the cheapest first: small nodes gain most
_TURNS = 6
_SAME = 1e-9


def merged(problem: Problem, rows: Rows) -> Rows:
    """The same pods on no more nodes, for no more money."""
    larger = [part for row in rows for part in _with_itself(problem, row)]
    larger.sort(key=lambda row: float(problem.price[row.option]))
    few, rest = larger[:_ROWS], larger[_ROWS:]
    for _ in range(_TURNS):
        pairs = _pairs(problem, few)
        if not pairs:
            break
        few = _joined(few, pairs)
    out = few + rest
    return out if twins_hold(problem, out) else rows


def _with_itself(problem: Problem, row: Row) -> Rows:
    """Copies of one row, as few larger nodes as the price allows."""
    for times in (8, 6, 4, 3, 2):
        many, left = divmod(row.copies, times)
        if not many:
            continue
        option = _option_for(problem, row.counts[None, :] * times, problem.price[[row.option]] * times)
        if option[0] >= 0:
            larger = _with_itself(problem, Row(int(option[0]), row.counts * times, many))
            return larger + ([Row(row.option, row.counts, left)] if left else [])
    return [row]


def _pairs(problem: Problem, rows: Rows) -> list[tuple[int, int, int]]:
    """Rows that are better off together and the option that holds both, each row at most once."""
    counts = np.array([row.counts for row in rows]).reshape(len(rows), problem.classes)
    price = problem.price[[row.option for row in rows]]
    first, second = np.triu_indices(len(rows), 1)
    paid = price[first] + price[second]
    option = _option_for(problem, counts[first] + counts[second], paid)
    good = np.flatnonzero(option >= 0)
    saved = paid[good] - problem.price[option[good]]
    chosen: list[tuple[int, int, int]] = []
    used: set[int] = set()
    for at in good[np.argsort(-saved, kind="stable")].tolist():
        a, b = int(first[at]), int(second[at])
        if a not in used and b not in used:
            used |= {a, b}
            chosen.append((a, b, int(option[at])))
    return chosen


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


def _joined(rows: Rows, pairs: list[tuple[int, int, int]]) -> Rows:
    paired = {at for first, second, _ in pairs for at in (first, second)}
    out = [row for at, row in enumerate(rows) if at not in paired]
    for first, second, option in pairs:
        a, b = rows[first], rows[second]
        copies = min(a.copies, b.copies)
        out.append(Row(option, a.counts + b.counts, copies))
        out += [Row(row.option, row.counts, row.copies - copies) for row in (a, b) if row.copies > copies]
    return out
