"""nodeclaim.expiration: a claim that has reached its age is ended, whatever budgets say."""

from __future__ import annotations

from datetime import timedelta

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.predicates import is_reschedulable
from dovetail.controllers.base import (
    DONE,
    Backoff,
    ConcurrencyRange,
    Result,
    Trigger,
    requeue_after,
    wake_on,
)
from dovetail.controllers.claim_messages import log_expired_claim
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.context import ControllerContext
from dovetail.errors import Gone
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.settings.durations import parse_or_never

__all__ = ["Expiration"]

PACE = ConcurrencyRange(10, 1000)


class Expiration:
    """Deletes claims at creation + expireAfter, to the second."""

    name = "nodeclaim.expiration"
    singleton = False
    backoff = Backoff()

    def __init__(self, context: ControllerContext, *, millicores: int = 1000) -> None:
        self._kube = context.kube
        self._claims = context.claims
        self._cluster = context.cluster
        self._ownership = context.ownership
        self._clock = context.clock
        self._history = context.history
        # How long a claim of this zone, due then, waits for a zonal shift. Seconds.
        self._delay_for_shift = context.gates.delay_for_shift
        self.concurrency = PACE.scale_to(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or claim.deleting or not self._ownership.owns_claim(claim):
            return DONE
        lasts = parse_or_never(claim.spec.expire_after) if claim.spec.expire_after else None
        created = claim.metadata.creation_timestamp
        if lasts is None or created is None:
            return DONE
        left = created + lasts - self._clock.now()
        if left > timedelta():
            return requeue_after(left)
        waits = self._delay_for_shift(claim.labels.get(labels.ZONE, ""), claim.uid, created + lasts)
        if waits > 0:
            return requeue_after(waits)
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return DONE
        log_expired_claim(claim)
        told = f"it is older than {claim.spec.expire_after}"
        self._history.note_decision(of_claim(RecordKind.EXPIRED, claim, "Expired", told))
        pods = self._cluster.list_pods_on(claim.status.node_name) if claim.status.node_name else ()
        count_disrupted_claim(claim, "expired", sum(map(is_reschedulable, pods)))
        return DONE
