"""What is left of each pool's budget for one reason, counted down as candidates are taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.budgets import readable
from dovetail.disruption.candidates import Scene
from dovetail.disruption.churn import rate_left
from dovetail.disruption.held import Held
from dovetail.disruption.setbacks import why_waiting

__all__ = ["OVER_BUDGET", "Allowance", "allowances", "budgets_of"]

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
        self._held: dict[str, tuple[Held, str]] = {}

    def left(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def take(self, pool: str) -> bool:
        """One more node of the pool goes; False when none may."""
        if self._left.get(pool, 0) <= 0:
            self.constrained = True
            return False
        self._left[pool] -= 1
        return True

    def cap(self, pool: str, most: int, held: Held, why: str) -> None:
        """No more than this many, whatever budgets say."""
        if self._left.get(pool, 0) > most:
            self._left[pool] = most
            self._held[pool] = held, why

    def held(self, pool: str) -> tuple[Held, str]:
        """What keeps the next node of the pool."""
        return self._held.get(pool, (Held.BUDGET, OVER_BUDGET))


def allowances(scene: Scene, reason: str) -> Allowance:
    """The budgets of all pools for a reason, less what is already under way."""
    totals, consumed = scene.standing
    now = scene.snapshot.options.now
    allowed = {
        name: readable(budgets_of(pool), reason, now, totals.get(name, 0))
        for name, pool in scene.pools.items()
    }
    left = {name: max(0, amount - consumed.get(name, 0)) for name, amount in allowed.items()}
    shut = [name for name, amount in allowed.items() if amount <= 0 and totals.get(name)]
    found = Allowance(left, allowed, consumed, shut)
    for name, nodepool in scene.pools.items():
        rate = rate_left(nodepool, now)
        if rate is not None:
            found.cap(name, rate, Held.RATE, OVER_RATE)
        waiting = why_waiting(nodepool, reason, now)
        if waiting:
            found.cap(name, 0, Held.BACKED_OFF, waiting)
    return found


def budgets_of(pool: NodePool) -> tuple[Budget, ...]:
    """The pool's budgets; one of ten per cent when it names none."""
    listed = pool.spec.disruption.budgets
    return DEFAULT if listed is None else listed
