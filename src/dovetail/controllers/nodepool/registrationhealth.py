"""nodepool.registrationhealth: a changed pool or class has everything still to prove."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import LAUNCHED, NODE_REGISTRATION_HEALTHY
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, SOON, Backoff, Cache, Result, Trigger, wake_on
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["RegistrationHealth", "RegistrationHealthReset", "RegistrationOutcomes"]

KEPT = 4
UNHEALTHY_SHARE = 0.5


class RegistrationOutcomes:
    """The last few outcomes of a pool: True for a node that came up, False for one that did not."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=KEPT)

    def add(self, came_up: bool) -> None:
        self._last.append(came_up)

    def is_healthy(self, also: bool | None = None) -> bool | None:
        """How the pool does, with one more outcome if given; None when nothing is known."""
        seen = deque(self._last, maxlen=KEPT)
        if also is not None:
            seen.append(also)
        if not seen:
            return None
        return list(seen).count(False) / KEPT < UNHEALTHY_SHARE

    def reset_to(self, healthy: bool | None) -> None:
        """Begin again from what is known from elsewhere."""
        self._last.clear()
        if healthy is True:
            self.add(True)
        elif healthy is False:
            self._last.extend((False, False))


class RegistrationHealth:
    """Keeps the outcomes of all pools and writes their condition when it turns."""

    def __init__(self, kube: Kube, pools: Cache[NodePool], clock: Clock) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._outcomes: dict[str, RegistrationOutcomes] = {}

    def get_outcomes(self, pool: NodePool) -> RegistrationOutcomes:
        return self._outcomes.setdefault(pool.uid, RegistrationOutcomes())

    def forget_deleted_pools(self) -> None:
        """Drop the outcomes of NodePools that are gone; one made anew under the name starts unknown."""
        living = {pool.uid for pool in self._pools}
        self._outcomes = {uid: kept for uid, kept in self._outcomes.items() if uid in living}

    async def record_success(self, claim: NodeClaim) -> None:
        """A node of the claim's pool came up."""
        pool = self._find_pool(claim)
        if pool is None:
            return
        if self.get_outcomes(pool).is_healthy(also=True) is True:
            await self._write_condition(
                pool, conditions.set_true(pool, NODE_REGISTRATION_HEALTHY, self._clock.now())
            )
        self.get_outcomes(pool).add(True)

    async def record_failure(self, claim: NodeClaim) -> None:
        """A node of the claim's pool did not come up."""
        pool = self._find_pool(claim)
        if pool is None:
            return
        already = conditions.is_false(pool, NODE_REGISTRATION_HEALTHY)
        if self.get_outcomes(pool).is_healthy(also=False) is False and not already:
            reason, message = reasons.REGISTRATION_FAILED, "Failed to register node"
            launched = conditions.find_condition(claim, LAUNCHED)
            if launched is not None and launched.status != conditions.TRUE:
                reason, message = launched.reason, launched.message
            now = self._clock.now()
            await self._write_condition(
                pool, conditions.set_false(pool, NODE_REGISTRATION_HEALTHY, now, reason, message)
            )
        self.get_outcomes(pool).add(False)

    def _find_pool(self, claim: NodeClaim) -> NodePool | None:
        """The pool that ordered the claim, if it is still the same one."""
        pool = self._pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None or not any(owner.uid == pool.uid for owner in claim.metadata.owner_references):
            return None
        return pool

    async def _write_condition(self, pool: NodePool, changed: NodePool) -> None:
        if changed == pool:
            return
        try:
            await self._kube.patch(pool, changed, status=True, guarded=True)
        except Gone:
            return


class RegistrationHealthReset:
    """Sets the condition back to Unknown when the pool or its class changed; remembers across restarts."""

    name = "nodepool.registrationhealth"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self,
        kube: Kube,
        pools: Cache[NodePool],
        classes: Cache[Object],
        class_kind: type[Object],
        ownership: Ownership,
        health: RegistrationHealth,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._classes = classes
        self._class_kind = class_kind
        self._ownership = ownership
        self._health = health
        self._clock = clock

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodePool), wake_on(self._class_kind, self._find_pools_of_class))

    def _find_pools_of_class(self, node_class: Object) -> list[str]:
        return [p.name for p in self._pools if p.spec.template.spec.node_class_ref.name == node_class.name]

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None:
            self._health.forget_deleted_pools()
            return DONE
        if not self._ownership.owns_pool(pool):
            return DONE
        node_class = self._classes.get(pool.spec.template.spec.node_class_ref.name)
        if node_class is None:
            return DONE
        self._restore_outcomes(pool)
        changed = self._reset_condition(pool, node_class.metadata.generation)
        if changed == pool:
            return DONE
        try:
            await self._kube.patch(pool, changed, status=True, guarded=True)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        return DONE

    def _restore_outcomes(self, pool: NodePool) -> None:
        """After a restart the stored condition is all that is known."""
        outcomes = self._health.get_outcomes(pool)
        if outcomes.is_healthy() is not None:
            return
        if conditions.is_true(pool, NODE_REGISTRATION_HEALTHY):
            outcomes.reset_to(healthy=True)
        elif conditions.is_false(pool, NODE_REGISTRATION_HEALTHY):
            outcomes.reset_to(healthy=False)

    def _reset_condition(self, pool: NodePool, class_generation: int) -> NodePool:
        state = conditions.find_condition(pool, NODE_REGISTRATION_HEALTHY)
        stale = (
            state is None
            or pool.status.node_class_observed_generation != class_generation
            or state.observed_generation != pool.metadata.generation
        )
        if stale:
            pool = conditions.set_unknown(pool, NODE_REGISTRATION_HEALTHY, self._clock.now())
            self._health.get_outcomes(pool).reset_to(healthy=None)
        return replace(pool, status=replace(pool.status, node_class_observed_generation=class_generation))
