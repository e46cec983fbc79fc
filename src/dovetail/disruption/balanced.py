"""The Balanced policy: a move must save at least half the share of money that it disrupts of the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dovetail.api import labels, predicates
from dovetail.disruption.candidates import Candidate, Scene, price_of
from dovetail.disruption.command import Command
from dovetail.disruption.cost import reschedule_cost
from dovetail.scheduling import nodes as views

__all__ = ["BALANCED", "Judgement", "Score", "Totals", "could_approve", "judge", "score", "totals"]

BALANCED = "Balanced"
K = 2
THRESHOLD = 1 / K


@dataclass(frozen=True, slots=True)
class Totals:
    """What a pool costs an hour, and what disrupting all of it would."""

    cost: float
    disruption: float


@dataclass(frozen=True, slots=True)
class Score:
    """One pool's part in a move: the shares of its money saved and of its peace disturbed."""

    savings: float
    disruption: float
    value: float

    @property
    def approved(self) -> bool:
        return self.value >= THRESHOLD

    def __str__(self) -> str:
        shares = f"savings {self.savings * 100:.1f}%, disruption {self.disruption * 100:.1f}%"
        return f"score {self.value:.2f} >= threshold {THRESHOLD:.2f} (k: {K}, {shares})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a proposed move. `scores` has every Balanced pool in it; others are not asked."""

    command: Command
    approved: bool
    scores: Mapping[str, Score]


def totals(scene: Scene, going: Sequence[Candidate]) -> dict[str, Totals]:
    """Per pool with a candidate. Nodes that are no candidates count in the disruption on purpose."""
    costs = {candidate.key: candidate.cost for candidate in going}
    prices: dict[str, float] = {}
    for candidate in going:
        prices[candidate.pool.name] = prices.get(candidate.pool.name, 0.0) + candidate.price
    paid, disruption = dict.fromkeys(prices, 0.0), dict.fromkeys(prices, 0.0)
    for state in scene.snapshot.nodes:
        pool = views.pool(state)
        if pool not in prices:
            continue
        paid[pool] += _running_price(scene, pool, state.claim.labels if state.claim else {})
        disruption[pool] += costs.get(views.provider_id(state)) or reschedule_cost(
            pod
            for pod in state.pods
            if not predicates.owned_by_daemonset(pod) and not predicates.terminal(pod)
        )
    return {pool: Totals(paid[pool] or sum_, disruption[pool]) for pool, sum_ in prices.items()}


def _running_price(scene: Scene, pool: str, known: Mapping[str, str]) -> float:
    name = known.get(labels.INSTANCE_TYPE, "")
    return price_of(known, scene.types.get(pool, {}).get(name))


def score(savings: float, cost: float, total: Totals | None) -> Score:
    """Share of money saved over share of disruption caused."""
    if total is None or total.cost <= 0 or total.disruption <= 0:
        return Score(0.0, 0.0, 0.0)
    saved, share = savings / total.cost, cost / total.disruption
    if saved <= 0:
        return Score(saved, share, 0.0)
    return Score(saved, share, saved / share if share else inf)


def judge(command: Command, known: Mapping[str, Totals]) -> Judgement:
    """Every Balanced pool in the move must approve its part of it."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in command.candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    scores = {
        name: score(command.savings * _part(command, found, by_pool), _disturbed(found), known.get(name))
        for name, found in by_pool.items()
        if found[0].pool.spec.disruption.consolidation_policy == BALANCED
    }
    approved = bool(by_pool) and all(each.approved for each in scores.values())
    return Judgement(command, approved, scores)


def _part(command: Command, found: Sequence[Candidate], by_pool: Mapping[str, object]) -> float:
    """A pool's part in the savings: all of them, or as it pays for the nodes that go."""
    if len(by_pool) == 1:
        return 1.0
    return sum(c.price for c in found) / command.cost if command.cost else 0.0


def _disturbed(found: Sequence[Candidate]) -> float:
    return sum(candidate.cost for candidate in found)


def could_approve(candidate: Candidate, known: Mapping[str, Totals]) -> bool:
    """Whether even the best move, deletion, could pass; saves looking at the rest."""
    if candidate.pool.spec.disruption.consolidation_policy != BALANCED or candidate.pool.name not in known:
        return True
    return score(candidate.price, candidate.cost, known[candidate.pool.name]).approved
