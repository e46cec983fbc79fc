"""One packing problem from first plan to best plan.

Effort is counted in rounds, never in seconds, so that the same problem gives the same plan on any
machine under any load; the caller's `should_stop` is only an outer limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dovetail.scheduling.packing.columns import Patterns, add_known, generate, starting
from dovetail.scheduling.packing.components import components
from dovetail.scheduling.packing.dive import dive, snug
from dovetail.scheduling.packing.fill import lean
from dovetail.scheduling.packing.greedy import greedy
from dovetail.scheduling.packing.merge import merged
from dovetail.scheduling.packing.prices import worths
from dovetail.scheduling.packing.problem import Floats, Ints, Problem, Row, Rows, cost
from dovetail.scheduling.packing.repack import repack
from dovetail.scheduling.packing.stock import Stock

__all__ = ["QUICK", "THOROUGH", "Effort", "Packing", "pack", "patterns"]

_ALONE = 2.0  # times the worth of all pods, where they could share one node
_WORTHWHILE = 2.5  # times the worth of all pods for one node: dearer options are not looked at
# Prices are nearly linear in size: without a charge many small nodes look as good as a few large ones.
_CHARGE = 1e-5  # of the dearest option looked at
_MANY_CLASSES = 30
_FEW_PODS = 150  # few nodes are far from any fraction, and repacking them is cheap
_SHARED = 300  # patterns handed on, besides those in use


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try. Zero rounds is the first complete plan."""

    rounds: int = 24
    dives: int = 6
    greedies: int = 8
    repacks: int = 10
    seed: int = 1
    most_pods: int = 0  # on one new node; zero for as many as fit
    close: float = 0.005  # stop this near the best the patterns could do: the rest is not worth the wait


QUICK = Effort(rounds=0, dives=0, repacks=0)
THOROUGH = Effort()


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A complete plan and what it costs."""

    rows: Rows
    cost: float


def pack(
    problem: Problem,
    effort: Effort = THOROUGH,
    known: Patterns | None = None,
    worth: Floats | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    merging: bool = True,
) -> Packing:
    """Pack every pod. `known` are patterns found for much the same pods, `worth` is what each is worth.

    Nodes are merged unless rules the packing does not see make large nodes hard to fill.
    """
    worth = worths(problem) if worth is None else worth
    parts = components(problem)
    if len(parts) == 1:
        return _pack_part(problem, worth, effort, known, should_stop, merging)
    rows: Rows = []
    for part in parts:
        packed = _pack_part(part.problem, worth[part.classes], effort, None, should_stop, merging)
        rows += part.widened(packed.rows, problem.classes)
    return Packing(rows, cost(problem, rows))


def patterns(problem: Problem, effort: Effort) -> Patterns:
    """Good patterns for a problem, to be shared by problems that are alike."""
    weights = lean(problem.request.shape[1])
    worth = worths(problem)
    kept = _worthwhile(problem, worth)
    part = _narrowed(problem, kept)
    rng = np.random.Generator(np.random.PCG64(effort.seed))
    columns = starting(part, greedy(part, worth, weights[:2]), weights[:3], worth)
    _, amounts, _ = generate(columns, effort.rounds, rng)
    recent = np.arange(max(0, len(columns.options) - _SHARED), len(columns.options))
    return Patterns(columns.matrix()[np.union1d(np.flatnonzero(amounts > 0), recent)])


def _pack_part(
    problem: Problem,
    worth: Floats,
    effort: Effort,
    known: Patterns | None,
    should_stop: Callable[[], bool],
    merging: bool,
) -> Packing:
    kept = _worthwhile(problem, worth)
    part = _narrowed(problem, kept)
    first, best = _improved(part, worth, effort, known, should_stop)
    if merging:
        best = merged(part, best)
        first = merged(part, first) if effort.rounds else best
    # The charge for a node must never make a plan dearer than the one we started from.
    true = replace(part, price=problem.price[kept])
    rows = best if cost(true, best) <= cost(true, first) + 1e-9 else first
    rows = [Row(int(kept[row.option]), row.counts, row.copies) for row in rows]
    return Packing(rows, cost(problem, rows))


def _narrowed(problem: Problem, kept: Ints) -> Problem:
    """Only these options, each with a small charge for being one more node to run."""
    price = problem.price[kept]
    return replace(
        problem,
        room=problem.room[kept],
        price=price + _CHARGE * float(price.max()),
        allowed=problem.allowed[:, kept],
    )


def _worthwhile(problem: Problem, worth: Floats) -> Ints:
    """Options not far dearer than all there is to put on one node, and each class's own cheapest."""
    needed = Stock(problem).nodes_needed()
    factor = _WORTHWHILE if needed > 1 else _ALONE
    cheap = problem.price <= factor * float(problem.count @ worth) / max(1, needed)
    own = np.where(problem.fits(), problem.price[None, :], np.inf).argmin(axis=1)
    cheap[own] = True
    return np.flatnonzero(cheap)


def _improved(
    problem: Problem, worth: Floats, effort: Effort, known: Patterns | None, should_stop: Callable[[], bool]
) -> tuple[Rows, Rows]:
    """(first plan, best plan)."""
    weights = lean(problem.request.shape[1])
    ways = 1 if problem.count.sum() <= _FEW_PODS else 2
    rows = first = snug(problem, greedy(problem, worth, weights[:ways]))
    if not effort.rounds or should_stop():
        return first, first
    rng = np.random.Generator(np.random.PCG64(effort.seed))
    columns = starting(problem, rows, weights[:3], worth)
    if known is not None:
        add_known(columns, known)
    value, _, duals = generate(columns, effort.rounds if known is None else effort.rounds // 3, rng)
    enough = value * (1 + effort.close)
    for _ in range(_dives(problem, effort, known is not None)):
        if cost(problem, rows) <= enough or should_stop():
            break
        found = dive(columns, effort.greedies, rng, cost(problem, rows))
        rows = rows if found is None else _cheaper(problem, rows, found)
    if known is None and problem.classes > 1 and problem.count.sum() <= _FEW_PODS and not should_stop():
        rows = repack(columns, rows, np.maximum(duals, 0.02 * worth), effort.repacks, rng, enough)
    return first, rows


def _dives(problem: Problem, effort: Effort, shared: bool) -> int:
    """One of several zones gets fewer tries than a whole problem, and one with many classes a single one."""
    if not shared:
        return effort.dives
    return min(effort.dives, 1 if problem.classes > _MANY_CLASSES else 2)


def _cheaper(problem: Problem, old: Rows, new: Rows) -> Rows:
    new = snug(problem, new)
    if (cost(problem, new), _nodes(new)) < (cost(problem, old) - 1e-9, _nodes(old)):
        return new
    return old


def _nodes(rows: Rows) -> int:
    return sum(row.copies for row in rows)
