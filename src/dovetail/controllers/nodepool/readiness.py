"""nodepool.readiness: whether the pool's node class can be used."""

from __future__ import annotations

from dovetail.api import conditions, reasons, validation
from dovetail.api.bad_items import reason_of
from dovetail.api.conditions import NODECLASS_READY, VALIDATION_SUCCEEDED, Conditioned
from dovetail.api.labels import Flavour
from dovetail.api.meta import Condition, Object
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, SOON, Backoff, Cache, Result, Trigger, wake_on
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["NodePoolReadiness", "NodePoolValidation"]


class NodePoolReadiness:
    """Copies the node class's readiness to the pools that use it."""

    name = "nodepool.readiness"
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
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._classes = classes
        self._class_kind = class_kind
        self._ownership = ownership
        self._clock = clock

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodePool), wake_on(self._class_kind, self._find_pools_of_class))

    def _find_pools_of_class(self, node_class: Object) -> list[str]:
        return [p.name for p in self._pools if p.spec.template.spec.node_class_ref.name == node_class.name]

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.owns_pool(pool):
            return DONE
        judged = self._set_condition(pool)
        if judged == pool:
            return DONE
        try:
            await self._kube.patch(pool, judged, status=True, guarded=True)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        return DONE

    def _set_condition(self, pool: NodePool) -> NodePool:
        now, name = self._clock.now(), pool.spec.template.spec.node_class_ref.name
        node_class = self._classes.get(name)
        if node_class is None:
            why = "NodeClass not found on cluster"
            return conditions.set_false(pool, NODECLASS_READY, now, reasons.NODECLASS_NOT_FOUND, why)
        if node_class.deleting:
            why = "NodeClass is Terminating"
            return conditions.set_false(pool, NODECLASS_READY, now, reasons.NODECLASS_TERMINATING, why)
        if wrong := reason_of(node_class):
            why = f"NodeClass is set aside: {wrong}"
            return conditions.set_false(pool, NODECLASS_READY, now, reasons.NODECLASS_READINESS_UNKNOWN, why)
        ready = _find_ready_condition(node_class)
        if ready is None or ready.status == conditions.UNKNOWN:
            why = "Node Class Readiness Unknown"
            return conditions.set_false(pool, NODECLASS_READY, now, reasons.NODECLASS_READINESS_UNKNOWN, why)
        if ready.status == conditions.FALSE:
            return conditions.set_false(pool, NODECLASS_READY, now, ready.reason, ready.message)
        return conditions.set_true(pool, NODECLASS_READY, now)


def _find_ready_condition(node_class: Object) -> Condition | None:
    conditioned: Conditioned = node_class  # type: ignore[assignment]
    return conditions.find_condition(conditioned, conditions.READY)


class NodePoolValidation:
    """Says on the pool whether it can be used as it is written."""

    name = "nodepool.validation"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, pools: Cache[NodePool], ownership: Ownership, flavour: Flavour, clock: Clock
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._ownership = ownership
        self._flavour = flavour
        self._clock = clock

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodePool),)

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.owns_pool(pool):
            return DONE
        complaints = validation.runtime_complaints(pool, self._flavour)
        now = self._clock.now()
        if complaints:
            why = "; ".join(complaint.message for complaint in complaints)
            judged = conditions.set_false(
                pool, VALIDATION_SUCCEEDED, now, reasons.NODEPOOL_VALIDATION_FAILED, why
            )
        else:
            judged = conditions.set_true(pool, VALIDATION_SUCCEEDED, now)
        if judged == pool:
            return DONE
        try:
            await self._kube.patch(pool, judged, status=True, guarded=True)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        return DONE
