"""A complete plan in milliseconds: the node with most worth per dollar, again and again."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.fill import Weights, fill, tilted
from dovetail.scheduling.packing.problem import Floats, Ints, Problem, Row, Rows
from dovetail.scheduling.packing.stock import Stock

__all__ = ["greedy"]

_SEAT_SLACK = 1.25  # a node may cost this much more than the average worth behind one seat


def greedy(problem: Problem, worth: Floats, weights: Weights, stock: Stock | None = None) -> Rows:
    """Pack everything in `stock` (all pods, if none is given)."""
    stock = Stock(problem) if stock is None else stock
    drive = tilted(problem, worth)
    rows: Rows = []
    favourites: Ints | None = None
    turn = 0
    while not stock.empty:
        offered = _affordable(problem, worth, stock)
        if favourites is not None and turn % 4:
            few = favourites[np.isin(favourites, offered)]
            offered = few if len(few) and _all_served(problem, few, stock) else offered
        if not len(offered):
            raise ValueError("a pod fits none of the options")
        options = np.repeat(offered, len(weights))
        counts = fill(problem, options, np.tile(weights, (len(offered), 1)), drive, stock.left, stock.cap())
        value = (counts @ worth) / problem.price[options]
        best = int(value.argmax())
        if not turn % 4:
            each = value.reshape(len(offered), -1).max(axis=1)
            favourites = np.sort(offered[np.argsort(-each, kind="stable")[: max(6, len(offered) // 3)]])
        turn += 1
        copies = stock.copies(counts[best])
        stock.take(counts[best], copies)
        rows.append(Row(int(options[best]), counts[best], copies))
    return rows


def _all_served(problem: Problem, options: Ints, stock: Stock) -> bool:
    """Does some pod left fit one of these options?"""
    left = np.flatnonzero(stock.left)
    return bool((problem.request[left][:, None, :] <= problem.room[options][None, :, :]).all(axis=2).any())


def _affordable(problem: Problem, worth: Floats, stock: Stock) -> Ints:
    """Options worth offering now.

    Where many pods each want a node of their own, one giant node would swallow all the filler and
    leave them alone on small dear ones. So no option may cost much more than the worth there is per
    node still needed.
    """
    live = np.flatnonzero(stock.left)
    fits = (problem.request[live][:, None, :] <= problem.room[None, :, :]).all(axis=2)
    useful = (fits & problem.allowed[live]).any(axis=0)
    needed = stock.nodes_needed()
    if needed > 1:
        average = float(stock.left @ worth) / needed
        cheap = useful & (problem.price <= _SEAT_SLACK * average)
        if cheap.any():
            useful = cheap
    return np.flatnonzero(useful)
