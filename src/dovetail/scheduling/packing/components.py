"""Cut a problem into parts that share no option, and put the answers together again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.problem import Ints, Problem, Row, Rows

__all__ = ["Component", "components"]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a problem, and where its classes and options are in the whole."""

    problem: Problem
    classes: Ints
    options: Ints

    def widened(self, rows: Rows, total: int) -> Rows:
        """The part's rows, written for the whole problem of `total` classes."""
        out = []
        for row in rows:
            counts = np.zeros(total, np.int64)
            counts[self.classes] = row.counts
            out.append(Row(int(self.options[row.option]), counts, row.copies))
        return out


def components(problem: Problem) -> list[Component]:
    """The independent parts, in order of their first class."""
    label = _labels(problem)
    out = []
    for each in dict.fromkeys(label.tolist()):
        classes = np.flatnonzero(label == each)
        options = np.flatnonzero(problem.allowed[classes].any(axis=0))
        out.append(Component(_part(problem, classes, options), classes, options))
    return out


def _labels(problem: Problem) -> Ints:
    """Classes that accept a common option get the same number."""
    label = np.arange(problem.classes)
    _, kinds = np.unique(np.packbits(problem.allowed, axis=0), axis=1, return_index=True)
    columns = problem.allowed[:, kinds]
    while True:
        before = label.copy()
        for j in range(columns.shape[1]):
            inside = columns[:, j]
            if inside.any():
                label[inside] = label[inside].min()
        if (label == before).all():
            return label


def _part(problem: Problem, classes: Ints, options: Ints) -> Problem:
    families, family = np.unique(problem.family[classes], return_inverse=True)
    lowest = int(len(families) > 0 and families[0] == -1)
    return Problem(
        request=problem.request[classes],
        count=problem.count[classes],
        room=problem.room[options],
        price=problem.price[options],
        allowed=problem.allowed[np.ix_(classes, options)],
        family=family.astype(np.int64) - lowest,
        limit=problem.limit[families[families >= 0]],
        twins=tuple(problem.twins[c] for c in classes.tolist()) if problem.twins else (),
        per_twin=problem.per_twin[classes] if len(problem.per_twin) else problem.per_twin,
    )
