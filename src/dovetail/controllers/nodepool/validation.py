"""nodepool.validation: what the API server's schema cannot check about a pool."""

from __future__ import annotations

from dovetail.api import conditions, reasons, validation
from dovetail.api.conditions import VALIDATION_SUCCEEDED
from dovetail.api.labels import Flavour
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, SOON, Backoff, Cache, Result, Trigger, on
from dovetail.controllers.owning import Ownership
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["Validation"]


class Validation:
    """Says on the pool whether it can be used as it is written."""

    name = "nodepool.validation"
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
        return (on(NodePool),)

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.of_pool(pool):
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
