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
)

__all__ = [
    "TILT",
    "NodeFiller",
    "Weights",
    "build_weights",
    "fill_nodes",
    "tilt_worths",
]

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
        filler = NodeFiller(problem.request[classes], problem.family[classes][None, :])
        # A class that has no place in a row is worth less than nothing there.
        worth = np.where(problem.allowed[classes][:, options].T, drive[..., classes], -1.0)
        which = np.zeros(len(options), np.int64)
        out[:, classes] = filler.fill(which, problem.room[options], weight, worth, most[classes])
    return out


class NodeFiller:
    """Fills rows of nodes to be. Rows may belong to several problems that speak of the same classes."""

    def __init__(self, request: Floats, family: Ints) -> None:
        self.request = request  # class x resource
        self.columns = request.T.copy()
        self.inverse = np.where(request > 0, 1.0 / np.maximum(request, _TINY), 0.0)
        # Who asks for none of a resource does not mind that there is none.
        self.free = np.where(request > 0, 0.0, MANY) if (request <= 0).any() else None
        equal = (request == request[0]).all(axis=0)
        self.alike = np.flatnonzero(equal & (request[0] > 0)).tolist()  # resources all ask as much of
        self.unlike = np.flatnonzero(~equal).tolist()
        self.family = family if (family >= 0).any() else None  # problem x class

    def fill(self, which: Ints, room: Floats, weight: Weights, drive: Floats, cap: Ints) -> Floats:
        """Pods of each class in each row: row x class.

        `which` is the problem of each row, `room` what its node holds, `drive` (row x class) what a pod is
        worth to it, and `cap` how many it may take at most, for all rows or for each.
        """
        rows = _Rows(self, which, room, weight, drive, cap)
        rows.close_unfit()
        while len(rows.at):
            rows.fill_step()
        found = np.bincount(np.concatenate(rows.places), np.concatenate(rows.taken), drive.size)
        return np.asarray(found, float).reshape(drive.shape)


class _Rows:
    """All rows filled together, in arrays that are made once: new ones at every step would cost more."""

    def __init__(
        self, filler: NodeFiller, which: Ints, room: Floats, weight: Weights, drive: Floats, cap: Ints
    ) -> None:
        self.filler, self.which, self.weight = filler, which, weight
        self.left = room.copy()
        self.drive = drive
        self.cap = np.empty(drive.shape)
        self.cap[:] = cap
        self.starts = np.arange(len(drive)) * drive.shape[1]
        self.at = self.starts  # where in the counts each row begins
        self.score = np.empty(drive.shape)
        self.unfit, self.more = np.empty(drive.shape, bool), np.empty(drive.shape, bool)
        self.places: list[Ints] = []
        self.taken: list[Floats] = []

    def fill_step(self) -> None:
        filler = self.filler
        best, here, going = self._choose_classes()
        # Rows that are full drop out, but not one by one: copying the others costs more than idling.
        stopped = len(best) - int(np.count_nonzero(going))
        if stopped * 4 > len(best):
            self._keep_rows(going)
            best, stopped = best[going], 0
            here = self.starts[: len(best)] + best
        cap = self.cap.ravel()
        held = cap.take(here)
        take = self._count_fitting(best, held)
        take += _SLACK
        take *= 0.5
        np.floor(take, out=take)
        np.maximum(take, 1.0, out=take)
        if stopped:
            take *= going
        self.places.append(self.at + best)
        self.taken.append(take)
        self.left -= take[:, None] * filler.request.take(best, axis=0)
        held -= take
        cap[here] = held
        self.drive.ravel()[here[held < 1.0]] = -1.0
        if filler.family is not None:
            self._share_family(filler.family, best, take)
        self.close_unfit()

    def _choose_classes(self) -> tuple[Ints, Ints, Bools]:
        """The class each row takes next, where in the arrays that is, and whether the row takes any."""
        score, filler = self.score[: len(self.at)], self.filler
        share = np.maximum(self.left, _TINY)
        np.divide(self.weight, share, out=share)
        np.matmul(share, filler.columns, out=score)
        np.maximum(score, _LEAST, out=score)
        np.divide(self.drive, score, out=score)
        best = score.argmax(axis=1)
        here = self.starts[: len(best)] + best
        going = score.ravel().take(here) > 0
        for k in filler.alike:
            going &= self.left[:, k] >= filler.columns[k, 0]
        return best, here, going

    def _count_fitting(self, best: Ints, cap: Floats) -> Floats:
        """How many pods of the chosen class each row could still take."""
        holds = self.left * self.filler.inverse.take(best, axis=0)
        if self.filler.free is not None:
            holds += self.filler.free.take(best, axis=0)
        fit = np.minimum(cap, holds[:, 0])
        for k in range(1, holds.shape[1]):
            np.minimum(fit, holds[:, k], out=fit)
        return fit

    def close_unfit(self) -> None:
        """What does not fit now never will again: rows only get fuller."""
        many, columns = len(self.at), self.filler.columns
        unfit, more = self.unfit[:many], self.more[:many]
        for number, k in enumerate(self.filler.unlike):
            np.less(self.left[:, k, None], columns[k], out=more if number else unfit)
            if number:
                unfit |= more
        if self.filler.unlike:
            np.copyto(self.drive, -1.0, where=unfit)

    def _keep_rows(self, kept: Bools) -> None:
        self.at, self.left, self.weight = self.at[kept], self.left[kept], self.weight[kept]
        self.cap, self.drive, self.which = self.cap[kept], self.drive[kept], self.which[kept]

    def _share_family(self, family: Ints, best: Ints, take: Floats) -> None:
        """A pod of a family takes the place of its relatives too."""
        own = family[self.which, best]
        rows = np.flatnonzero((own >= 0) & (take > 0))
        if len(rows):
            related = family[self.which[rows]] == own[rows, None]
            related[np.arange(len(rows)), best[rows]] = False
            cap = self.cap[rows] - take[rows, None] * related
            self.cap[rows] = cap
            self.drive[rows] = np.where(cap < 1.0, -1.0, self.drive[rows])
