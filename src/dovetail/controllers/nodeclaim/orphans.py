"""instance.garbagecollection: machines that nobody claims."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.controllers.base import Backoff, Cache, Result, Rounds, after, insisting, run_all
from dovetail.controllers.messages import log_collected_instance, log_collected_node
from dovetail.controllers.owning import BY_PROVIDER_ID
from dovetail.errors import Gone
from dovetail.ports import Clock, Cloud, Instance, Kube

__all__ = ["Orphans"]

TOO_YOUNG = timedelta(seconds=30)
EAGER_PASSES, EAGER_EVERY, EVERY = 20, 10.0, 120.0
AT_ONCE = 100


class Orphans(Rounds):
    """Ends instances that were launched for a claim which no longer exists, and their Nodes with them."""

    name = "instance.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self, kube: Kube, cloud: Cloud, claims: Cache[NodeClaim], nodes: Cache[Node], clock: Clock
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._claims = claims
        self._nodes = nodes
        self._clock = clock
        self._passes = 0

    async def reconcile(self, key: str) -> Result:
        # Instances first: one whose claim is stored between the two looks must not seem orphaned.
        with insisting():
            instances = await self._cloud.list()
            claims = await self._kube.list(NodeClaim)
            claimed = {claim.status.provider_id for claim in claims}
            launching = {c.name for c in claims if not c.status.provider_id and not c.deleting}
            orphans = [each for each in instances if self._orphaned(each, claimed, launching)]
            await run_all((self._end(each) for each in orphans), at_once=AT_ONCE)
        self._passes += 1
        return after(EAGER_EVERY if self._passes <= EAGER_PASSES else EVERY)

    def _orphaned(self, instance: Instance, claimed: set[str], launching: set[str]) -> bool:
        if not instance.claim or instance.deleting or instance.provider_id in claimed:
            return False
        if instance.claim in launching:
            # Its claim is there and will hear of it: the answer is on its way, or its writing down is.
            return False
        return instance.created is None or self._clock.now() - instance.created > TOO_YOUNG

    async def _end(self, instance: Instance) -> None:
        stand_in = NodeClaim(
            metadata=ObjectMeta(name=instance.claim),
            status=NodeClaimStatus(provider_id=instance.provider_id),
        )
        with suppress(Gone):
            await self._cloud.delete(stand_in)
            log_collected_instance(instance)
        for node in self._nodes.by(BY_PROVIDER_ID, instance.provider_id):
            try:
                await self._kube.delete(node, guarded=True)
            except Gone:
                continue
            log_collected_node(instance, node)
