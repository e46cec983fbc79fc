"""One packing problem from first plan to best plan.

Effort is counted in rounds, never in seconds, so that the same problem gives the same plan on any
machine under any load; the caller's `should_stop` is only an outer limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.bound import certified_bound
from dovetail.scheduling.packing.columns import generate, starting
from dovetail.scheduling.packing.components import components
from dovetail.scheduling.packing.dive import dive, snug
from dovetail.scheduling.packing.fill import lean
from dovetail.scheduling.packing.greedy import greedy
from dovetail.scheduling.packing.prices import worths
from dovetail.scheduling.packing.problem import Floats, Problem, Rows, cost
from dovetail.scheduling.packing.repack import repack

__all__ = ["QUICK", "THOROUGH", "Effort", "Packing", "pack"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try. Zero rounds is the first complete plan."""

    rounds: int = 30
    greedies: int = 12
    repacks: int = 60
    seed: int = 1
    close: float = 0.002  # stop this near the bound: what is left is not worth the wait


QUICK = Effort(rounds=0, greedies=0, repacks=0)
THOROUGH = Effort()


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A complete plan and what it costs."""

    rows: Rows
    cost: float
    worth: Floats


def pack(
    problem: Problem,
    effort: Effort = THOROUGH,
    bound: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Packing:
    """Pack every pod. `bound` is what nothing can undercut, if known."""
    parts = components(problem)
    if len(parts) == 1:
        return _pack_part(problem, effort, bound, should_stop)
    rows: Rows = []
    worth = np.zeros(problem.classes)
    for part in parts:
        packed = _pack_part(part.problem, effort, 0.0, should_stop)
        rows += part.widened(packed.rows, problem.classes)
        worth[part.classes] = packed.worth
    return Packing(rows, cost(problem, rows), worth)


def _pack_part(problem: Problem, effort: Effort, bound: float, should_stop: Callable[[], bool]) -> Packing:
    weights = lean(problem.request.shape[1])
    worth = worths(problem)
    rows = snug(problem, greedy(problem, worth, weights[:2]))
    rng = np.random.Generator(np.random.PCG64(effort.seed))
    if effort.rounds and not bound:
        bound = certified_bound(problem)
    enough = bound * (1 + effort.close)

    def done() -> bool:
        return cost(problem, rows) <= enough or should_stop()

    if effort.rounds and not done():
        columns = starting(problem, rows, weights[:3], worth)
        _, amounts, duals = generate(columns, effort.rounds, rng, enough * 0.999)
        worth = np.maximum(duals, 0.02 * worth)
        rows = _cheaper(problem, rows, dive(columns, amounts, duals, effort.greedies, rng))
    if effort.repacks and not done():
        rows = repack(problem, rows, worth, weights, effort.repacks, rng, enough)
    return Packing(rows, cost(problem, rows), worth)


def _cheaper(problem: Problem, old: Rows, new: Rows) -> Rows:
    new = snug(problem, new)
    if (cost(problem, new), _nodes(new)) < (cost(problem, old) - 1e-9, _nodes(old)):
        return new
    return old


def _nodes(rows: Rows) -> int:
    return sum(row.copies for row in rows)
