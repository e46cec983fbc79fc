"""Fill many nodes at once: every row is a node to be, and each step adds pods to all of them.

A row takes next the class with most worth for the share it uses of what the row has left, and adds
half of what would fit, so that the last pods can still be chosen by what room remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.problem import (
    MANY,
    Bools,
    Floats,
    Ints,
    PackingProblem,
    PackingRow,
    RemainingPods,
    Rows,
)

__all__ = ["TILT", "Weights", "build_weights", "fill_nodes", "pack_greedily", "tilt_worths"]

Weights = Floats  # weighting x resource
TILT = 0.15  # big pods first by a little, or they are left over for nodes of their own
_SLACK = 1e-10  # quotients of whole numbers below 2**33 are never this close under a whole number
_TINY = 1e-9
_LEAST = 1e-300


def build_weights(resources: int) -> Weights:
    """Six ways to weigh the resources against each other; no single one wins everywhere."""
    pods = resources - 1
    base = np.ones((6, resources))
    base[:, pods] = 0.25
    first, second = 0, min(1, pods)
    base[1, first] = 3.0
    base[2, second] = 3.0
    base[3, pods] = 1.0
    base[4, first], base[4, pods] = 1.7, 0.05
    base[5, second], base[5, pods] = 1.7, 0.05
    return base


def tilt_worths(problem: PackingProblem, worth: Floats, tilt: Floats | float = TILT) -> Floats:
    """Worths with a small bonus for size; one row for each tilt, if there are several."""
    scale = problem.room.max(axis=0)
    size = (problem.request / np.where(scale > 0, scale, 1.0)).max(axis=1)
    power = np.maximum(size, _TINY) ** (tilt[:, None] if isinstance(tilt, np.ndarray) else tilt)
    return np.asarray(worth * power)


@dataclass(slots=True)
class _Nodes:
    """The rows still being filled; rows that can take no more drop out as we go."""

    at: Ints
    left: Floats
    weight: Floats
    cap: Floats
    drive: Floats

    def keep_rows(self, kept: Bools) -> _Nodes:
        return _Nodes(self.at[kept], self.left[kept], self.weight[kept], self.cap[kept], self.drive[kept])


def fill_nodes(
    problem: PackingProblem,
    options: Ints,
    weight: Weights,
    drive: Floats,
    left: Ints,
    cap: Ints | None = None,
) -> Ints:
    """Counts for one node per (option, weight) row: row x class.

    `drive` is what a pod of each class is worth while filling, for all rows or for each (row x class),
    `left` how many there are, `cap` how many host rules allow on one node.
    """
    drive = np.broadcast_to(drive, (len(options), problem.classes))
    most = np.minimum(left, problem.compute_cap() if cap is None else cap)
    classes = np.flatnonzero((most > 0) & (drive > 0).any(axis=0))
    request = problem.request[classes]
    filler = _Filler(request, problem.family[classes], len(options))
    nodes = _Nodes(
        np.arange(len(options)),
        problem.room[options].copy(),
        weight,
        np.where(problem.allowed[np.ix_(classes, options)].T, most[classes].astype(float), 0.0),
        drive[:, classes],
    )
    counts = np.zeros((len(options), len(classes)), np.int64)
    while len(nodes.at) and len(classes):
        nodes = filler.fill_step(nodes, counts)
    out = np.zeros((len(options), problem.classes), np.int64)
    out[:, classes] = counts
    return out


class _Filler:
    """One step over all rows; the arrays that every step needs are made once."""

    def __init__(self, request: Floats, family: Ints, rows: int) -> None:
        self.request = request
        self.rows = np.arange(rows)
        self.inverse = [np.where(column > 0, 1.0 / np.maximum(column, _TINY), 0.0) for column in request.T]
        # Who asks for none of a resource does not mind that there is none.
        self.free = [np.where(column > 0, 0.0, MANY) if (column <= 0).any() else None for column in request.T]
        self.columns = request.T.copy()
        related = (family[:, None] == family[None, :]) & (family >= 0)[:, None]
        self.related = related.astype(float) if related.any() else None

    def fill_step(self, nodes: _Nodes, counts: Ints) -> _Nodes:
        fit = nodes.cap.copy()
        for k, (inverse, free) in enumerate(zip(self.inverse, self.free, strict=True)):
            holds = nodes.left[:, k : k + 1] * inverse
            np.minimum(fit, holds if free is None else holds + free, out=fit)
        share = (nodes.weight / np.maximum(nodes.left, _TINY)) @ self.columns
        score = nodes.drive / np.maximum(share, _LEAST, out=share)
        score[fit < 1.0 - _SLACK] = -1.0
        best = score.argmax(axis=1)
        here = self.rows[: len(best)]
        going = score[here, best] > 0
        stopped = len(best) - int(np.count_nonzero(going))
        # Rows that are full drop out, but not one by one: copying the others costs more than idling.
        if stopped * 4 > len(best):
            nodes = nodes.keep_rows(going)
            best, fit, going = best[going], fit[going], going[going]
            here = self.rows[: len(best)]
        take = np.floor((fit[here, best] + _SLACK) * 0.5)
        np.maximum(take, 1.0, out=take)
        if stopped:
            take *= going
        counts[nodes.at, best] += take.astype(np.int64)
        nodes.left -= take[:, None] * self.request[best]
        nodes.cap[here, best] -= take
        if self.related is not None:
            self._share_family(nodes, best, take)
        return nodes

    def _share_family(self, nodes: _Nodes, best: Ints, take: Floats) -> None:
        """A pod of a family takes the place of its relatives too."""
        assert self.related is not None
        used = self.related[best]
        used[self.rows[: len(best)], best] = 0.0
        nodes.cap -= take[:, None] * used


_HOST_SLACK = 1.25  # a node may cost this much more than the average worth behind one host
_NEARLY = 0.985  # of the best node's worth per dollar: others as good are taken in the same turn
_AT_ONCE = 6  # of these, where so many classes make every pattern fit only once or twice
_MANY_CLASSES = 40
_ALL_EVERY = 4  # turns: in between only the third of the options that did best is looked at


def pack_greedily(
    problem: PackingProblem, worth: Floats, weights: Weights, stock: RemainingPods | None = None
) -> Rows:
    """Pack everything in `stock` (all pods, if none is given)."""
    stock = RemainingPods(problem) if stock is None else stock
    drive = tilt_worths(problem, worth)
    fits = problem.compute_fits()
    at_once = _AT_ONCE if problem.classes > _MANY_CLASSES else 1
    rows: Rows = []
    favourites = np.zeros(len(problem.price), bool)
    turn = 0
    while not stock.empty:
        useful = _find_affordable(problem, fits, worth, stock)
        if turn % _ALL_EVERY and (useful & favourites).any():
            useful &= favourites
        offered = np.flatnonzero(useful)
        if not len(offered):
            raise ValueError("a pod fits none of the options")
        options = np.repeat(offered, len(weights))
        counts = fill_nodes(
            problem, options, np.tile(weights, (len(offered), 1)), drive, stock.left, stock.compute_cap()
        )
        value = (counts @ worth) / problem.price[options]
        if not turn % _ALL_EVERY:
            favourites = _find_favourites(problem, offered, value.reshape(len(offered), -1).max(axis=1))
        rows += _take_best(options, counts, value, stock, at_once)
        turn += 1
    return rows


def _take_best(options: Ints, counts: Ints, value: Floats, stock: RemainingPods, at_once: int) -> Rows:
    """The best node, as often as the pods allow, and others nearly as good while there are pods for them."""
    rows: Rows = []
    order = np.argsort(-value, kind="stable")[:at_once]
    for at in order[value[order] >= _NEARLY * value[order[0]]].tolist():
        if not rows or (counts[at] <= stock.compute_cap()).all():
            copies = stock.count_copies(counts[at])
            stock.take_pods(counts[at], copies)
            rows.append(PackingRow(int(options[at]), counts[at], copies))
    return rows


def _find_favourites(problem: PackingProblem, offered: Ints, value: Floats) -> Bools:
    out = np.zeros(len(problem.price), bool)
    out[offered[np.argsort(-value, kind="stable")[: max(6, len(offered) // 3)]]] = True
    return out


def _find_affordable(problem: PackingProblem, fits: Bools, worth: Floats, stock: RemainingPods) -> Bools:
    """Options worth offering now.

    Where many pods each want a node of their own, one giant node would swallow all the filler and
    leave them alone on small dear ones. So no option may cost much more than the worth there is per
    node still needed.
    """
    useful = fits[stock.left > 0].any(axis=0)
    needed = stock.count_nodes_needed()
    if needed > 1:
        average = float(stock.left @ worth) / needed
        cheap = useful & (problem.price <= _HOST_SLACK * average)
        if cheap.any():
            return np.asarray(cheap)
    return np.asarray(useful)
