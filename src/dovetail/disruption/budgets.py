"""How many nodes of a NodePool may be disrupted now, for a reason, and what is left of that.

Every active budget that speaks of the reason counts, and the smallest wins. A budget that cannot be
read allows nothing, whatever it was about: fail closed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from dovetail.api import cron
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.numbers import parse_integer
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import count_rate_left
from dovetail.disruption.replacement_backoff import explain_backoff
from dovetail.errors import shorten_text
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = [
    "OVER_BUDGET",
    "UNLIMITED",
    "Allowance",
    "BadBudget",
    "compute_allowances",
    "count_allowed",
    "count_allowed_for",
    "count_allowed_or_zero",
    "is_active",
    "list_budgets",
]

UNLIMITED: Final = 2**31 - 1
DEFAULT = (Budget(),)
OVER_BUDGET = "its pool's disruption budget is used up"
OVER_RATE = "as many nodes of its pool went lately as its rate allows"


class BadBudget(ValueError):
    """A budget that cannot be read."""


def is_active(budget: Budget, now: datetime) -> bool:
    """Whether the budget holds at this moment: always, or since its schedule last fired."""
    if budget.schedule is None and budget.duration is None:
        return True
    try:
        schedule = cron.parse_schedule(budget.schedule or "")
        lasts = parse_duration(budget.duration) if budget.duration is not None else parse_duration("0s")
    except ValueError as error:
        raise BadBudget(str(error)) from error
    hit = schedule.find_next(now - lasts)
    # Karpenter: a schedule that can never fire has Go's zero time as its next hit, which is always past.
    return hit is None or hit <= now


def count_allowed(budget: Budget, now: datetime, nodes: int) -> int:
    """How many of this many nodes the budget lets be disrupted; no limit while it is not active."""
    if not is_active(budget, now):
        return UNLIMITED
    text = budget.nodes
    number = parse_integer(text.removesuffix("%"))
    if number is None:
        shown = shorten_text(text)
        raise BadBudget(f"invalid value for IntOrString: {shown!r} is neither a number nor a percentage")
    return -(-number * nodes // 100) if text.endswith("%") else number


def count_allowed_for(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The pool's allowance for a reason; BadBudget when any of its budgets cannot be read."""
    amounts = [(budget, count_allowed(budget, now, nodes)) for budget in budgets]
    mine = [amount for budget, amount in amounts if budget.reasons is None or reason in budget.reasons]
    return min(mine, default=UNLIMITED)


def count_allowed_or_zero(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The allowance, where what cannot be read allows nothing."""
    try:
        return count_allowed_for(budgets, reason, now, nodes)
    except BadBudget:
        return 0


class Allowance:
    """How many nodes of each NodePool may still be disrupted. `constrained`: a node was turned away."""

    def __init__(
        self,
        left: Mapping[str, int],
        allowed: Mapping[str, int],
        consumed: Mapping[str, int],
        shut: Collection[str] = (),
    ) -> None:
        self._left = dict(left)
        # Pools that have nodes and may lose none, whatever is under way.
        self.shut = shut
        self.allowed = allowed
        self.consumed = consumed
        self.constrained = False
        # Pools that something tighter than their budgets holds back, and what that is.
        self._held: dict[str, tuple[BlockedReason, str]] = {}

    def count_left(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def take(self, pool: str) -> bool:
        """Count one more node of the NodePool as disrupted; False when none may be."""
        if self._left.get(pool, 0) <= 0:
            self.constrained = True
            return False
        self._left[pool] -= 1
        return True

    def limit_pool(self, pool: str, most: int, blocked_reason: BlockedReason, why: str) -> None:
        """No more than this many, whatever budgets say."""
        if self._left.get(pool, 0) > most:
            self._left[pool] = most
            self._held[pool] = blocked_reason, why

    def explain_block(self, pool: str) -> tuple[BlockedReason, str]:
        """What keeps the next node of the pool."""
        return self._held.get(pool, (BlockedReason.BUDGET, OVER_BUDGET))


def compute_allowances(inputs: DisruptionInput, reason: str) -> Allowance:
    """The budgets of all pools for a reason, less what is already under way."""
    totals, consumed = inputs.pool_counts
    now = inputs.snapshot.options.now
    allowed = {
        name: count_allowed_or_zero(list_budgets(pool), reason, now, totals.get(name, 0))
        for name, pool in inputs.pools.items()
    }
    left = {name: max(0, amount - consumed.get(name, 0)) for name, amount in allowed.items()}
    shut = [name for name, amount in allowed.items() if amount <= 0 and totals.get(name)]
    found = Allowance(left, allowed, consumed, shut)
    for name, nodepool in inputs.pools.items():
        rate = count_rate_left(nodepool, now)
        if rate is not None:
            found.limit_pool(name, rate, BlockedReason.RATE, OVER_RATE)
        waiting = explain_backoff(nodepool, reason, now)
        if waiting:
            found.limit_pool(name, 0, BlockedReason.BACKED_OFF, waiting)
        for hold in inputs.holds:
            if hold.covers(name, reason):
                found.limit_pool(name, hold.most, hold.blocked_reason, hold.why)
    return found


def list_budgets(pool: NodePool) -> tuple[Budget, ...]:
    """The pool's budgets; one of ten per cent when it names none."""
    listed = pool.spec.disruption.budgets
    return DEFAULT if listed is None else listed
