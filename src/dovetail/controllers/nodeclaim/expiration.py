"""nodeclaim.expiration: a claim that has reached its age is ended, whatever budgets say."""

from __future__ import annotations

from datetime import timedelta

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.predicates import reschedulable
from dovetail.controllers.base import DONE, Backoff, Cache, Pace, Result, Trigger, after, on
from dovetail.controllers.counts import claim_disrupted
from dovetail.controllers.owning import Ownership
from dovetail.errors import Gone
from dovetail.ports import Clock, Kube
from dovetail.settings.durations import parse_or_never
from dovetail.state import Cluster

__all__ = ["Expiration"]

PACE = Pace(10, 1000)


class Expiration:
    """Deletes claims at creation + expireAfter, to the second."""

    name = "nodeclaim.expiration"
    backoff = Backoff()

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        cluster: Cluster,
        ownership: Ownership,
        clock: Clock,
        *,
        millicores: int = 1000,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._cluster = cluster
        self._ownership = ownership
        self._clock = clock
        self.concurrency = PACE.at(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or claim.deleting or not self._ownership.of_claim(claim):
            return DONE
        lasts = parse_or_never(claim.spec.expire_after) if claim.spec.expire_after else None
        created = claim.metadata.creation_timestamp
        if lasts is None or created is None:
            return DONE
        left = created + lasts - self._clock.now()
        if left > timedelta():
            return after(left)
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return DONE
        pods = self._cluster.pods_on(claim.status.node_name) if claim.status.node_name else ()
        claim_disrupted(claim, "expired", sum(map(reschedulable, pods)))
        return DONE
