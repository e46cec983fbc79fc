"""nodepool.registrationhealth: a changed pool or class has everything still to prove."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.conditions import NODE_REGISTRATION_HEALTHY
from dovetail.api.meta import Object
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, SOON, Backoff, Cache, Result, Trigger, on
from dovetail.controllers.nodepool.health import RegistrationHealth
from dovetail.controllers.owning import Ownership
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["HealthReset"]


class HealthReset:
    """Sets the condition back to Unknown when the pool or its class changed; remembers across restarts."""

    name = "nodepool.registrationhealth"
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
        return (on(NodePool), on(self._class_kind, self._pools_of))

    def _pools_of(self, node_class: Object) -> list[str]:
        return [p.name for p in self._pools if p.spec.template.spec.node_class_ref.name == node_class.name]

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.of_pool(pool):
            return DONE
        node_class = self._classes.get(pool.spec.template.spec.node_class_ref.name)
        if node_class is None:
            return DONE
        self._seed(pool)
        changed = self._reset(pool, node_class.metadata.generation)
        if changed == pool:
            return DONE
        try:
            await self._kube.patch(pool, changed, status=True, guarded=True)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        return DONE

    def _seed(self, pool: NodePool) -> None:
        """After a restart the stored condition is all that is known."""
        outcomes = self._health.outcomes(pool)
        if outcomes.healthy() is not None:
            return
        if conditions.is_true(pool, NODE_REGISTRATION_HEALTHY):
            outcomes.restart(healthy=True)
        elif conditions.is_false(pool, NODE_REGISTRATION_HEALTHY):
            outcomes.restart(healthy=False)

    def _reset(self, pool: NodePool, class_generation: int) -> NodePool:
        state = conditions.find(pool, NODE_REGISTRATION_HEALTHY)
        stale = (
            state is None
            or pool.status.node_class_observed_generation != class_generation
            or state.observed_generation != pool.metadata.generation
        )
        if stale:
            pool = conditions.set_unknown(pool, NODE_REGISTRATION_HEALTHY, self._clock.now())
            self._health.outcomes(pool).restart(healthy=None)
        return replace(pool, status=replace(pool.status, node_class_observed_generation=class_generation))
