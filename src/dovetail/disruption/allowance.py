"""What is left of each pool's budget for one reason, counted down as candidates are taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.api import conditions
from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.budgets import readable
from dovetail.disruption.candidates import Scene
from dovetail.scheduling import nodes as views
from dovetail.scheduling.snapshot import StateNode

__all__ = ["Allowance", "allowances"]

DEFAULT = (Budget(),)


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

    def left(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def take(self, pool: str) -> bool:
        """One more node of the pool goes; False when none may."""
        if self._left.get(pool, 0) <= 0:
            self.constrained = True
            return False
        self._left[pool] -= 1
        return True


def allowances(scene: Scene, reason: str) -> Allowance:
    """The budgets of all pools for a reason, less what is already under way."""
    totals: dict[str, int] = {}
    consumed: dict[str, int] = {}
    for state in scene.snapshot.nodes:
        if _counts(state):
            pool = views.pool(state)
            totals[pool] = totals.get(pool, 0) + 1
            consumed[pool] = consumed.get(pool, 0) + _is_down(state, scene)
    now = scene.snapshot.options.now
    allowed = {
        name: readable(budgets_of(pool), reason, now, totals.get(name, 0))
        for name, pool in scene.pools.items()
    }
    left = {name: max(0, amount - consumed.get(name, 0)) for name, amount in allowed.items()}
    shut = [name for name, amount in allowed.items() if amount <= 0 and totals.get(name)]
    return Allowance(left, allowed, consumed, shut)


def budgets_of(pool: NodePool) -> tuple[Budget, ...]:
    """The pool's budgets; one of ten per cent when it names none."""
    listed = pool.spec.disruption.budgets
    return DEFAULT if listed is None else listed


def _counts(state: StateNode) -> bool:
    if state.claim is None or state.node is None or not views.initialized(state):
        return False
    return not conditions.is_true(state.claim, conditions.INSTANCE_TERMINATING)


def _is_down(state: StateNode, scene: Scene) -> bool:
    assert state.node is not None
    ready = state.node.status.condition("Ready")
    unready = ready is None or ready.status != "True"
    return unready or views.deleting(state) or views.provider_id(state) in scene.queued
