"""What is left of each pool's budget for one reason, counted down as candidates are taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import count_allowed_or_zero
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import count_rate_left
from dovetail.disruption.replacement_backoff import explain_backoff

__all__ = ["OVER_BUDGET", "Allowance", "compute_allowances", "list_budgets"]

DEFAULT = (Budget(),)
OVER_BUDGET = "its pool's disruption budget is used up"
OVER_RATE = "as many nodes of its pool went lately as its rate allows"


class Allowance:
    """How many nodes of each pool may still go. `constrained` says that someone was turned away."""

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
        """One more node of the pool goes; False when none may."""
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
    return found


def list_budgets(pool: NodePool) -> tuple[Budget, ...]:
    """The pool's budgets; one of ten per cent when it names none."""
    listed = pool.spec.disruption.budgets
    return DEFAULT if listed is None else listed
