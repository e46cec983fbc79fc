"""The Balanced policy: a move must save at least half the share of money that it disrupts of the pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from dovetail.api import predicates
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import Command
from dovetail.disruption.cost import reschedule_cost
from dovetail.scheduling import nodes as views

__all__ = ["BALANCED", "Totals", "approves", "could_approve", "score", "totals"]

BALANCED = "Balanced"
K = 2
THRESHOLD = 1 / K


@dataclass(frozen=True, slots=True)
class Totals:
    """What a pool costs an hour, and what disrupting all of it would."""

    cost: float
    disruption: float


def totals(scene: Scene, going: Iterable[Candidate], tracked: Mapping[str, float]) -> dict[str, Totals]:
    """Per pool with a candidate. Nodes that are no candidates count in the disruption on purpose."""
    mine: dict[str, list[Candidate]] = {}
    for candidate in going:
        mine.setdefault(candidate.pool.name, []).append(candidate)
    disruption = dict.fromkeys(mine, 0.0)
    costs = {c.key: c.cost for found in mine.values() for c in found}
    for state in scene.snapshot.nodes:
        pool = views.pool(state)
        if pool in disruption:
            disruption[pool] += costs.get(views.provider_id(state)) or reschedule_cost(
                pod
                for pod in state.pods
                if not predicates.owned_by_daemonset(pod) and not predicates.terminal(pod)
            )
    return {
        pool: Totals(tracked.get(pool) or sum(c.price for c in found), disruption[pool])
        for pool, found in mine.items()
    }


def score(savings: float, cost: float, total: Totals | None) -> float:
    """Share of money saved over share of disruption caused."""
    if total is None or total.cost <= 0 or total.disruption <= 0 or savings <= 0:
        return 0.0
    share = cost / total.disruption
    return (savings / total.cost) / share if share else inf


def approves(command: Command, known: Mapping[str, Totals]) -> bool:
    """Every Balanced pool in the move approves its part of it."""
    if not command.candidates:
        return False
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in command.candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    whole = command.cost
    for name, found in by_pool.items():
        if found[0].pool.spec.disruption.consolidation_policy != BALANCED:
            continue
        share = sum(c.price for c in found) / whole if len(by_pool) > 1 and whole else 1.0
        if score(command.savings * share, sum(c.cost for c in found), known.get(name)) < THRESHOLD:
            return False
    return True


def could_approve(candidate: Candidate, known: Mapping[str, Totals]) -> bool:
    """Whether even the best move, deletion, could pass; saves looking at the rest."""
    if candidate.pool.spec.disruption.consolidation_policy != BALANCED or candidate.pool.name not in known:
        return True
    return score(candidate.price, candidate.cost, known[candidate.pool.name]) >= THRESHOLD
