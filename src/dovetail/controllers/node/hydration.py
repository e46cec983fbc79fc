"""node.hydration: nodes of older releases get the label by which they are known as ours."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Cache, Pace, Result, Trigger, on
from dovetail.controllers.owning import BY_PROVIDER_ID, Ownership, claim_of
from dovetail.errors import Gone
from dovetail.ports import Kube

__all__ = ["NodeHydration"]

PACE = Pace(1000, 5000)


class NodeHydration:
    """Copies the class label of its claim to a node that lacks it."""

    name = "node.hydration"
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
        self.concurrency = PACE.at(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (on(Node), on(NodeClaim, self._nodes_of))

    def _nodes_of(self, claim: NodeClaim) -> list[str]:
        provider_id = claim.status.provider_id
        return [node.name for node in self._nodes.by(BY_PROVIDER_ID, provider_id)] if provider_id else []

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        claim = claim_of(node, self._claims) if node is not None else None
        if node is None or claim is None or not self._ownership.of_claim(claim):
            return DONE
        reference = claim.spec.node_class_ref
        label = labels.nodeclass_label(reference.group, reference.kind)
        metadata = replace(node.metadata, labels={**node.labels, label: reference.name})
        try:
            await self._kube.patch(node, replace(node, metadata=metadata))
        except Gone:
            return DONE
        return DONE
