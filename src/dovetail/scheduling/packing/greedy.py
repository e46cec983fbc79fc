"""A complete plan in milliseconds: the nodes with most worth per dollar, again and again."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.fill import Weights, fill, tilted
from dovetail.scheduling.packing.problem import Bools, Floats, Ints, Problem, Row, Rows
from dovetail.scheduling.packing.stock import Stock

__all__ = ["greedy"]

_SEAT_SLACK = 1.25  # a node may cost this much more than the average worth behind one seat
_NEARLY = 0.985  # of the best node's worth per dollar: others as good are taken in the same turn
_AT_ONCE = 6  # of these, where so many classes make every pattern fit only once or twice
_MANY_CLASSES = 40
_ALL_EVERY = 4  # turns: in between only the third of the options that did best is looked at


def greedy(problem: Problem, worth: Floats, weights: Weights, stock: Stock | None = None) -> Rows:
    """Pack everything in `stock` (all pods, if none is given)."""
    stock = Stock(problem) if stock is None else stock
    drive = tilted(problem, worth)
    fits = problem.fits()
    at_once = _AT_ONCE if problem.classes > _MANY_CLASSES else 1
    rows: Rows = []
    favourites = np.zeros(len(problem.price), bool)
    turn = 0
    while not stock.empty:
        useful = _affordable(problem, fits, worth, stock)
        if turn % _ALL_EVERY and (useful & favourites).any():
            useful &= favourites
        offered = np.flatnonzero(useful)
        if not len(offered):
            raise ValueError("a pod fits none of the options")
        options = np.repeat(offered, len(weights))
        counts = fill(problem, options, np.tile(weights, (len(offered), 1)), drive, stock.left, stock.cap())
        value = (counts @ worth) / problem.price[options]
        if not turn % _ALL_EVERY:
            favourites = _favourites(problem, offered, value.reshape(len(offered), -1).max(axis=1))
        rows += _taken(options, counts, value, stock, at_once)
        turn += 1
    return rows


def _taken(options: Ints, counts: Ints, value: Floats, stock: Stock, at_once: int) -> Rows:
    """The best node, as often as the pods allow, and others nearly as good while there are pods for them."""
    rows: Rows = []
    order = np.argsort(-value, kind="stable")[:at_once]
    for at in order[value[order] >= _NEARLY * value[order[0]]].tolist():
        if not rows or (counts[at] <= stock.cap()).all():
            copies = stock.copies(counts[at])
            stock.take(counts[at], copies)
            rows.append(Row(int(options[at]), counts[at], copies))
    return rows


def _favourites(problem: Problem, offered: Ints, value: Floats) -> Bools:
    out = np.zeros(len(problem.price), bool)
    out[offered[np.argsort(-value, kind="stable")[: max(6, len(offered) // 3)]]] = True
    return out


def _affordable(problem: Problem, fits: Bools, worth: Floats, stock: Stock) -> Bools:
    """Options worth offering now.

    Where many pods each want a node of their own, one giant node would swallow all the filler and
    leave them alone on small dear ones. So no option may cost much more than the worth there is per
    node still needed.
    """
    useful = fits[stock.left > 0].any(axis=0)
    needed = stock.nodes_needed()
    if needed > 1:
        average = float(stock.left @ worth) / needed
        cheap = useful & (problem.price <= _SEAT_SLACK * average)
        if cheap.any():
            return np.asarray(cheap)
    return np.asarray(useful)
