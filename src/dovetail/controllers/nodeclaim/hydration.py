"""nodeclaim.hydration: claims of older releases get the label that marks them as ours."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Cache, ConcurrencyRange, Result, Trigger, wake_on
from dovetail.controllers.ownership import BY_PROVIDER_ID, Ownership, find_claim_of_node
from dovetail.errors import Gone
from dovetail.ports import Kube

__all__ = ["NodeClaimHydration", "NodeHydration"]

PACE = ConcurrencyRange(1000, 5000)


class NodeClaimHydration:
    """Writes `<group>/<kind>: <class>` on claims that lack it."""

    name = "nodeclaim.hydration"
    singleton = False
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self, kube: Kube, claims: Cache[NodeClaim], ownership: Ownership, *, millicores: int = 1000
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._ownership = ownership
        self.concurrency = PACE.scale_to(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or not self._ownership.owns_claim(claim):
            return DONE
        reference = claim.spec.node_class_ref
        label = labels.nodeclass_label(reference.group, reference.kind)
        if claim.labels.get(label) == reference.name:
            return DONE
        marked = replace(claim.metadata, labels={**claim.labels, label: reference.name})
        try:
            await self._kube.patch(claim, replace(claim, metadata=marked))
        except Gone:
            return DONE
        return DONE


NODE_PACE = ConcurrencyRange(1000, 5000)


class NodeHydration:
    """Copies the class label of its claim to a node that lacks it."""

    name = "node.hydration"
    singleton = False
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self,
        kube: Kube,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        ownership: Ownership,
        *,
        millicores: int = 1000,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._claims = claims
        self._ownership = ownership
        self.concurrency = NODE_PACE.scale_to(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(Node), wake_on(NodeClaim, self._find_nodes_of_claim))

    def _find_nodes_of_claim(self, claim: NodeClaim) -> list[str]:
        provider_id = claim.status.provider_id
        return [node.name for node in self._nodes.by(BY_PROVIDER_ID, provider_id)] if provider_id else []

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        claim = find_claim_of_node(node, self._claims) if node is not None else None
        if node is None or claim is None or not self._ownership.owns_claim(claim):
            return DONE
        reference = claim.spec.node_class_ref
        label = labels.nodeclass_label(reference.group, reference.kind)
        metadata = replace(node.metadata, labels={**node.labels, label: reference.name})
        try:
            await self._kube.patch(node, replace(node, metadata=metadata))
        except Gone:
            return DONE
        return DONE
