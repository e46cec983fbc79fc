"""What a pod is worth: a price for each resource, and one for each seat, from a small linear program.

Cover all demand with fractions of nodes, resource by resource, as cheaply as can be. The prices of
that cover say how much cpu, memory, a pod slot or a seat on a node of its own adds to the bill.
"""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.lp import solve_lp
from dovetail.scheduling.packing.problem import Floats, Problem

__all__ = ["worths"]


def worths(problem: Problem) -> Floats:
    """Dollars an hour that each pod of a class is worth."""
    groups = _signatures(problem)
    needed = problem.request * problem.count[:, None]
    resources = problem.request.shape[1]
    scale = np.maximum(problem.room.max(axis=0), 1.0)
    rows, demand = [], []
    for options, covered in groups:
        for k in range(resources):
            rows.append(np.where(options, problem.room[:, k] / scale[k], 0.0))
            demand.append(needed[covered, k].sum() / scale[k])
    seats = problem.seats()
    fits = problem.fits() if seats else problem.allowed
    for members, limit in seats:
        rows.append(np.where(fits[members].any(axis=0), float(limit), 0.0))
        demand.append(float(problem.count[members].sum()))
    dual = solve_lp(problem.price, np.array(rows), np.array(demand))
    worth = np.zeros(problem.classes)
    for g, (_, covered) in enumerate(groups):
        worth[covered] += (problem.request[covered] / scale) @ dual[g * resources : (g + 1) * resources]
    for s, (members, _) in enumerate(seats):
        worth[members] += dual[len(groups) * resources + s]
    return _at_least_something(problem, worth)


def _signatures(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each distinct set of options some class accepts, with every class that needs one of just those."""
    packed = np.packbits(problem.allowed, axis=1)
    _, first = np.unique(packed, axis=0, return_index=True)
    out = []
    for index in sorted(first.tolist()):
        options = problem.allowed[index]
        inside = ~(problem.allowed & ~options[None, :]).any(axis=1)
        out.append((options, np.flatnonzero(inside)))
    return out


def _at_least_something(problem: Problem, worth: Floats) -> Floats:
    """A pod the cover found free still has to go somewhere: give it a trace of worth by its size."""
    scale = np.maximum(problem.room.max(axis=0), 1.0)
    size = (problem.request / scale).max(axis=1) * float(problem.price.max())
    return np.asarray(np.maximum(worth, 0.02 * size))
