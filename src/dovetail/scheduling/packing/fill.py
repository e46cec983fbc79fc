"""Fill many nodes at once: every row is a node to be, and each step adds pods to all of them.

A row takes next the class with most worth for the share it uses of what the row has left, and adds
half of what would fit, so that the last pods can still be chosen by what room remains.
"""

from __future__ import annotations

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
    most = np.minimum(left, problem.compute_cap() if cap is None else cap)
    wanted = drive > 0 if drive.ndim == 1 else (drive > 0).any(axis=0)
    classes = np.flatnonzero((most > 0) & wanted)
    out = np.zeros((len(options), problem.classes), np.int64)
    if len(classes) and len(options):
        filler = _Filler(problem, classes, options, most[classes])
        out[:, classes] = filler.fill(weight, drive[..., classes])
    return out


class _Filler:
    """All rows filled together, in arrays that are made once: new ones at every step would cost more."""

    def __init__(self, problem: PackingProblem, classes: Ints, options: Ints, most: Ints) -> None:
        self.request = request = problem.request[classes]
        self.columns = request.T.copy()
        self.inverse = np.where(request > 0, 1.0 / np.maximum(request, _TINY), 0.0)
        # Who asks for none of a resource does not mind that there is none.
        self.free = np.where(request > 0, 0.0, MANY) if (request <= 0).any() else None
        equal = (request == request[0]).all(axis=0)
        self.alike = np.flatnonzero(equal & (request[0] > 0)).tolist()  # resources all ask as much of
        self.unlike = np.flatnonzero(~equal).tolist()
        family = problem.family[classes]
        related = (family[:, None] == family[None, :]) & (family >= 0)[:, None]
        self.related = related.astype(float) if related.any() else None
        self.kin = family >= 0
        rows, many = len(options), len(classes)
        self.many = many
        self.starts = np.arange(rows) * many
        self.at = self.starts  # where in the counts each row begins
        self.left = problem.room[options]
        self.cap = np.repeat(most[None, :].astype(float), rows, axis=0)
        self.allowed = problem.allowed[classes][:, options].T
        self.score = np.empty((rows, many))
        self.unfit, self.more = np.empty((rows, many), bool), np.empty((rows, many), bool)
        self.weight = self.drive = self.score
        self.places: list[Ints] = []
        self.taken: list[Floats] = []

    def fill(self, weight: Weights, drive: Floats) -> Ints:
        """Pods of each class in each row: row x class."""
        rows = len(self.starts)
        self.weight = weight
        # A class that has no place in a row, or no longer, is worth less than nothing there.
        self.drive = np.where(self.allowed, drive, -1.0)
        self._close_unfit()
        while len(self.at):
            self._fill_step()
        found = np.bincount(np.concatenate(self.places), np.concatenate(self.taken), rows * self.many)
        return found.astype(np.int64).reshape(rows, self.many)

    def _fill_step(self) -> None:
        best, going = self._choose_classes()
        # Rows that are full drop out, but not one by one: copying the others costs more than idling.
        stopped = len(best) - int(np.count_nonzero(going))
        if stopped * 4 > len(best):
            self._keep_rows(going)
            best, stopped = best[going], 0
        here = self.starts[: len(best)] + best
        cap = self.cap.ravel()
        held = cap.take(here)
        take = np.floor((self._count_fitting(best, held) + _SLACK) * 0.5)
        np.maximum(take, 1.0, out=take)
        if stopped:
            take *= going
        self.places.append(self.at + best)
        self.taken.append(take)
        self.left -= take[:, None] * self.request.take(best, axis=0)
        held -= take
        cap[here] = held
        self.drive.ravel()[here[held < 1.0]] = -1.0
        if self.related is not None:
            self._share_family(best, take)
        self._close_unfit()

    def _choose_classes(self) -> tuple[Ints, Bools]:
        """The class each row takes next, and whether it takes any."""
        score = self.score[: len(self.at)]
        np.matmul(self.weight / np.maximum(self.left, _TINY), self.columns, out=score)
        np.maximum(score, _LEAST, out=score)
        np.divide(self.drive, score, out=score)
        best = score.argmax(axis=1)
        going = score.ravel().take(self.starts[: len(best)] + best) > 0
        for k in self.alike:
            going &= self.left[:, k] >= self.columns[k, 0]
        return best, going

    def _count_fitting(self, best: Ints, cap: Floats) -> Floats:
        """How many pods of the chosen class each row could still take."""
        holds = self.left * self.inverse.take(best, axis=0)
        if self.free is not None:
            holds += self.free.take(best, axis=0)
        fit = cap
        for k in range(holds.shape[1]):
            fit = np.minimum(fit, holds[:, k])
        return fit

    def _close_unfit(self) -> None:
        """What does not fit now never will again: rows only get fuller."""
        many = len(self.at)
        unfit, more = self.unfit[:many], self.more[:many]
        for number, k in enumerate(self.unlike):
            np.less(self.left[:, k, None], self.columns[k], out=more if number else unfit)
            if number:
                unfit |= more
        if self.unlike:
            np.copyto(self.drive, -1.0, where=unfit)

    def _keep_rows(self, kept: Bools) -> None:
        self.at, self.left, self.weight = self.at[kept], self.left[kept], self.weight[kept]
        self.cap, self.drive = self.cap[kept], self.drive[kept]

    def _share_family(self, best: Ints, take: Floats) -> None:
        """A pod of a family takes the place of its relatives too."""
        assert self.related is not None
        rows = np.flatnonzero(self.kin[best] & (take > 0))
        if len(rows):
            used = self.related[best[rows]]
            used[self.starts[: len(rows)] // self.many, best[rows]] = 0.0
            cap = self.cap[rows] - take[rows, None] * used
            self.cap[rows] = cap
            self.drive[rows] = np.where(cap < 1.0, -1.0, self.drive[rows])


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
