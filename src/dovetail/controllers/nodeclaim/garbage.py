"""nodeclaim.garbagecollection: claims whose instance vanished behind our back."""

from __future__ import annotations

from dovetail.api import conditions
from dovetail.api.conditions import REGISTERED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.predicates import reschedulable
from dovetail.controllers.base import Backoff, Cache, Result, Rounds, after, insisting, run_all
from dovetail.controllers.counts import claim_disrupted
from dovetail.controllers.messages import log_collecting_claim
from dovetail.controllers.owning import Ownership, nodes_of
from dovetail.errors import Gone
from dovetail.ports import Cloud, Kube
from dovetail.state import Cluster

__all__ = ["Garbage"]

EVERY = 120.0
AT_ONCE = 20


class Garbage(Rounds):
    """Every two minutes: a registered claim whose instance the cloud no longer has is ended."""

    name = "nodeclaim.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        nodes: Cache[Node],
        cluster: Cluster,
        cloud: Cloud,
        ownership: Ownership,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._nodes = nodes
        self._cluster = cluster
        self._cloud = cloud
        self._ownership = ownership

    async def reconcile(self, key: str) -> Result:
        # Claims first: one that is launched between the two lists must not look like a loss.
        candidates = [
            claim
            for claim in self._claims
            if self._ownership.of_claim(claim)
            and not claim.deleting
            and conditions.is_true(claim, REGISTERED)
        ]
        with insisting():
            alive = {i.provider_id for i in await self._cloud.list() if not i.deleting}
            lost = [claim for claim in candidates if claim.status.provider_id not in alive]
            await run_all((self._end(claim) for claim in lost if not self._breathes(claim)), at_once=AT_ONCE)
        return after(EVERY)

    def _breathes(self, claim: NodeClaim) -> bool:
        """A kubelet that reports Ready is evidence enough that the machine is there."""
        nodes = nodes_of(claim, self._nodes)
        if len(nodes) != 1:
            return False
        ready = nodes[0].status.condition("Ready")
        return ready is not None and ready.status == "True"

    async def _end(self, claim: NodeClaim) -> None:
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return
        log_collecting_claim(claim)
        pods = self._cluster.pods_on(claim.status.node_name) if claim.status.node_name else ()
        claim_disrupted(claim, "garbage_collected", sum(map(reschedulable, pods)))
