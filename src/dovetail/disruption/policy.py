"""Not too often and not for too little: what a pool asks of a move besides that it can be made.

Every knob is off until a pool's annotation, or a setting for all pools, turns it on. Settings reach this
page as annotations too, so that a pool says all there is to know. What was done lately is read off the
world itself: pods and nodes have a birthday, and nodes that went are noted on their pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.nodepool import NodePool
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import (
    Candidate,
    compute_reschedule_cost,
)
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.bill import find_running_price, sum_prices
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.node_extras import find_extra_problem
from dovetail.settings import Settings, durations
from dovetail.settings.value_kinds import Rate
from dovetail.settings.value_kinds import parse_rate as parse_rate

__all__ = [
    "BALANCED",
    "BalanceResult",
    "BalanceScore",
    "DisruptionPolicy",
    "PolicyBlock",
    "PoolTotals",
    "add_default_annotations",
    "can_approve",
    "compute_score",
    "compute_totals",
    "count_rate_left",
    "find_policy_block",
    "find_rest_block",
    "format_moves",
    "read_default_annotations",
    "read_policy",
    "read_recent_moves",
    "score_command",
]

MANY, ONE = "many", "one"
NONE = timedelta()
POLICY_ANNOTATIONS = (
    labels.CONSOLIDATION,
    labels.MIN_SAVING,
    labels.MIN_SAVING_PERCENT,
    labels.MAX_PAYBACK,
    labels.REST,
    labels.RATE,
    labels.NODE_EXTRA,
)
# Prices are sums of floats: a saving that is short by less than this is not short.
DUST = 1e-9


@dataclass(frozen=True, slots=True)
class DisruptionPolicy:
    """What one pool asks for. `problems` are annotations that cannot be read, by their key."""

    many: bool = False
    min_saving: float = 0.0
    min_percent: float = 0.0
    max_payback: timedelta = NONE
    rest: timedelta = NONE
    rate: Rate | None = None
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PolicyBlock:
    """Why a move that could be made is not."""

    blocked_reason: BlockedReason
    why: str


def read_default_annotations(settings: Settings) -> dict[str, str]:
    """The knobs that hold for pools which do not say otherwise, as annotations; none while all are off."""
    asked = {
        labels.CONSOLIDATION: MANY if settings.consolidate_many else "",
        labels.MIN_SAVING: _format_number(settings.consolidation_min_saving),
        labels.MIN_SAVING_PERCENT: _format_number(settings.consolidation_min_saving_percent),
        labels.MAX_PAYBACK: _format_length(settings.consolidation_max_payback),
        labels.REST: _format_length(settings.consolidation_rest),
        labels.RATE: str(settings.disruption_rate or ""),
        labels.DRIFT_PAUSE_AFTER: _format_length(settings.drift_pause_after),
    }
    return {key: value for key, value in asked.items() if value}


def _format_number(value: float) -> str:
    return repr(value) if value else ""


def _format_length(value: timedelta) -> str:
    return durations.render_duration(value) if value else ""


def add_default_annotations(pool: NodePool, defaults: Mapping[str, str]) -> NodePool:
    """The pool with what it leaves unsaid; the very same pool when that is nothing."""
    missing = {key: value for key, value in defaults.items() if key not in pool.annotations}
    if not missing:
        return pool
    return replace(pool, metadata=replace(pool.metadata, annotations={**pool.annotations, **missing}))


def read_policy(pool: NodePool) -> DisruptionPolicy:
    """What the pool asks for."""
    known = pool.annotations
    given = {key: known[key] for key in POLICY_ANNOTATIONS if key in known} if known else None
    return _parse_policy(given) if given else _OFF


_OFF = DisruptionPolicy()


def _parse_policy(given: Mapping[str, str]) -> DisruptionPolicy:
    problems: dict[str, str] = {}

    def amount(key: str) -> float:
        try:
            value = float(given.get(key) or 0)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            problems[key] = f"{key} is {given[key]!r}, which is no amount; write one such as 0.05"
            return 0.0
        return value

    def length(key: str) -> timedelta:
        try:
            return durations.parse_duration(given.get(key) or "0")
        except ValueError:
            problems[key] = f"{key} is {given[key]!r}, which is no duration; write one such as 30m"
            return NONE

    # What a node costs is not known then, and moving it for money would be a guess.
    if why := find_extra_problem(given.get(labels.NODE_EXTRA) or ""):
        problems[labels.NODE_EXTRA] = why
    how = given.get(labels.CONSOLIDATION) or ONE
    if how not in (MANY, ONE):
        problems[labels.CONSOLIDATION] = f"{labels.CONSOLIDATION} is {how!r}; write {MANY} or {ONE}"
    return DisruptionPolicy(
        many=how == MANY,
        min_saving=amount(labels.MIN_SAVING),
        min_percent=amount(labels.MIN_SAVING_PERCENT),
        max_payback=length(labels.MAX_PAYBACK),
        rest=length(labels.REST),
        rate=_parse_rate(given.get(labels.RATE) or "", problems),
        problems=problems,
    )


def _parse_rate(text: str, problems: dict[str, str]) -> Rate | None:
    """A policy that cannot be read blocks every node, as a budget does."""
    try:
        return parse_rate(text) if text else None
    except ValueError as error:
        problems[labels.RATE] = f"{labels.RATE}: {error}"
        return Rate(0, timedelta(hours=1))


def find_policy_block(command: Command) -> PolicyBlock | None:
    """Why the pools of a consolidation would rather leave it; None when it is worth its while."""
    pools = {candidate.pool.name: candidate.pool for candidate in command.candidates}
    for pool in pools.values():
        found = _check_saving(command, pool.name, read_policy(pool))
        if found is not None:
            return found
    return None


def _check_saving(command: Command, pool: str, asked: DisruptionPolicy) -> PolicyBlock | None:
    least = max(asked.min_saving, command.cost * asked.min_percent / 100)
    short = least - command.savings
    if short > DUST:
        share = f" ({asked.min_percent:g}%)" if least > asked.min_saving else ""
        return PolicyBlock(
            BlockedReason.SAVING,
            f"saving too small by ${_format_cents(short)}/h: it saves ${_format_cents(command.savings)}, "
            f"and pool {pool} requires ${_format_cents(least)}{share}",
        )
    hours = command.payback
    if asked.max_payback and hours is not None and timedelta(hours=hours) > asked.max_payback:
        takes, most = _format_seconds(timedelta(hours=hours)), _format_seconds(asked.max_payback)
        return PolicyBlock(
            BlockedReason.PAYBACK,
            f"it pays for itself after {takes}, and pool {pool} allows {most} at most",
        )
    return None


def _format_cents(amount: float) -> str:
    """Thousandths, or as many digits as a small amount needs."""
    return f"{amount:.3f}" if abs(amount) >= 0.001 or not amount else f"{amount:.2g}"


def _format_seconds(length: timedelta) -> str:
    return durations.render_duration(timedelta(seconds=round(length.total_seconds())))


def find_rest_block(candidate: Candidate, now: datetime) -> PolicyBlock | None:
    """Why consolidation leaves a node alone for now: it, or a pod on it, came only lately.

    A pod that was evicted is followed by a new one, so a pod's age is the time since its last move; it
    needs no memory of ours, and a restart forgets nothing.
    """
    asked = read_policy(candidate.pool)
    if asked.problems:
        return PolicyBlock(BlockedReason.UNREADABLE, next(iter(asked.problems.values())))
    if not asked.rest:
        return None
    claim = candidate.state.claim
    born = [(f"pod {pod.full_name}", pod.metadata.creation_timestamp) for pod in candidate.pods]
    born.append(("the node", claim.metadata.creation_timestamp if claim else None))
    # Of several that came at once, the first by name: every process has them in another order.
    born.sort(key=lambda each: each[0])
    name, latest = max(born, key=lambda each: each[1].timestamp() if each[1] else 0.0)
    if latest is None or now - latest >= asked.rest:
        return None
    ago, left = _format_seconds(now - latest), _format_seconds(latest + asked.rest - now)
    return PolicyBlock(
        BlockedReason.RESTING,
        f"{name} came {ago} ago and is left alone for {_format_seconds(asked.rest)} ({left} to go)",
    )


def read_recent_moves(pool: NodePool) -> dict[datetime, int]:
    """How many nodes of the pool went when, as noted on it. What is not a note is passed over."""
    found: dict[datetime, int] = {}
    for note in pool.annotations.get(labels.RECENT, "").split():
        moment, _, count = note.partition("=")
        try:
            found[datetime.fromisoformat(moment.replace("Z", "+00:00"))] = int(count)
        except (ValueError, OverflowError):
            continue
    return {moment: count for moment, count in found.items() if moment.tzinfo is not None and count > 0}


def format_moves(moves: Mapping[datetime, int], now: datetime, per: timedelta) -> str:
    """The note of these moves, without those that no longer count."""
    kept = sorted((moment, count) for moment, count in moves.items() if now - moment < per)
    return " ".join(f"{moment.isoformat().replace('+00:00', 'Z')}={count}" for moment, count in kept)


def count_rate_left(pool: NodePool, now: datetime) -> int | None:
    """How many more nodes the NodePool's rate allows now; None when it has none."""
    rate = read_policy(pool).rate
    if rate is None:
        return None
    gone = sum(count for moment, count in read_recent_moves(pool).items() if now - moment < rate.per)
    return max(0, rate.nodes - gone)


BALANCED = "Balanced"
K = 2
THRESHOLD = 1 / K


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """What a pool costs an hour, and what disrupting all of it would."""

    cost: float
    disruption: float


@dataclass(frozen=True, slots=True)
class BalanceScore:
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
class BalanceResult:
    """What became of a proposed move. `scores` has every Balanced pool in it; others are not asked."""

    command: Command
    approved: bool
    scores: Mapping[str, BalanceScore]


def compute_totals(inputs: DisruptionInput, candidates: Sequence[Candidate]) -> dict[str, PoolTotals]:
    """Per pool with a candidate. Nodes that are no candidates count in the disruption on purpose."""
    by_key = {candidate.key: candidate for candidate in candidates}
    prices: dict[str, float] = {}
    for candidate in candidates:
        prices[candidate.pool.name] = prices.get(candidate.pool.name, 0.0) + candidate.price
    paid, disruption = dict.fromkeys(prices, 0.0), dict.fromkeys(prices, 0.0)
    for state in inputs.snapshot.nodes:
        pool = views.read_pool_name(state)
        if pool not in prices:
            continue
        mine, known = by_key.get(state.provider_id), state.claim.metadata.labels if state.claim else {}
        if mine is not None and _is_priced_alike(known, mine.labels):
            paid[pool] += mine.price
        else:
            paid[pool] += _find_node_price(inputs, pool, known)
        disruption[pool] += (mine.cost if mine is not None else 0.0) or compute_reschedule_cost(
            pod
            for pod in state.pods
            if not predicates.owned_by_daemonset(pod) and not predicates.is_terminal(pod)
        )
    return {pool: PoolTotals(paid[pool] or sum_, disruption[pool]) for pool, sum_ in prices.items()}


_PRICED_BY = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)


def _is_priced_alike(claimed: Mapping[str, str], labelled: Mapping[str, str]) -> bool:
    """Whether a NodeClaim and its Node name the same offering; reservations are told apart by more."""
    if claimed.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        return False
    return all(claimed.get(key) == labelled.get(key) for key in _PRICED_BY)


def _find_node_price(inputs: DisruptionInput, pool: str, known: Mapping[str, str]) -> float:
    name = known.get(labels.INSTANCE_TYPE, "")
    return find_running_price(known, inputs.types.get(pool, {}).get(name)) or 0.0


def compute_score(savings: float, cost: float, total: PoolTotals | None) -> BalanceScore:
    """Share of money saved over share of disruption caused."""
    if total is None or total.cost <= 0 or total.disruption <= 0:
        return BalanceScore(0.0, 0.0, 0.0)
    saved, share = savings / total.cost, cost / total.disruption
    if saved <= 0:
        return BalanceScore(saved, share, 0.0)
    return BalanceScore(saved, share, saved / share if share else inf)


def score_command(command: Command, known: Mapping[str, PoolTotals]) -> BalanceResult:
    """Every Balanced pool in the move must approve its part of it."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in command.candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    scores = {
        name: compute_score(
            command.savings * _compute_savings_share(command, found, by_pool),
            _sum_disruption(found),
            known.get(name),
        )
        for name, found in by_pool.items()
        if found[0].pool.spec.disruption.consolidation_policy == BALANCED
    }
    approved = bool(by_pool) and all(each.approved for each in scores.values())
    return BalanceResult(command, approved, scores)


def _compute_savings_share(
    command: Command, found: Sequence[Candidate], by_pool: Mapping[str, object]
) -> float:
    """A pool's part in the savings: all of them, or as it pays for the nodes that are removed."""
    if len(by_pool) == 1:
        return 1.0
    return sum_prices(found) / command.cost if command.cost else 0.0


def _sum_disruption(found: Sequence[Candidate]) -> float:
    return sum(candidate.cost for candidate in found)


def can_approve(candidate: Candidate, known: Mapping[str, PoolTotals]) -> bool:
    """Whether even the best move, deletion, could pass; saves looking at the rest."""
    if candidate.pool.spec.disruption.consolidation_policy != BALANCED or candidate.pool.name not in known:
        return True
    return compute_score(candidate.price, candidate.cost, known[candidate.pool.name]).approved
