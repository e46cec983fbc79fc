"""What is ours: claims and pools of a node class kind the provider knows, nodes that carry its label.

A Node and a NodeClaim belong together when they name the same provider ID, and by nothing else.
"""

from __future__ import annotations

from dovetail.api import labels
from dovetail.api.bad_items import reason_of
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodeClassReference, NodePool
from dovetail.controllers.base import Cache
from dovetail.ports import Cloud

__all__ = [
    "BY_PROVIDER_ID",
    "Ownership",
    "find_claim_of_node",
    "find_nodes_of_claim",
    "index_claim_by_provider_id",
    "index_node_by_provider_id",
]

BY_PROVIDER_ID = "providerID"


def index_node_by_provider_id(node: Node) -> tuple[str, ...]:
    """The index under which a Node is found by its machine; an empty ID matches nothing."""
    return (node.spec.provider_id,) if node.spec.provider_id else ()


def index_claim_by_provider_id(claim: NodeClaim) -> tuple[str, ...]:
    return (claim.status.provider_id,) if claim.status.provider_id else ()


def find_nodes_of_claim(claim: NodeClaim, nodes: Cache[Node]) -> tuple[Node, ...]:
    """The Nodes that say they run on the claim's machine: none, one, or a contradiction."""
    return nodes.by(BY_PROVIDER_ID, claim.status.provider_id) if claim.status.provider_id else ()


def find_claim_of_node(node: Node, claims: Cache[NodeClaim]) -> NodeClaim | None:
    """The one claim of a Node; none when there is none or there are several."""
    found = claims.by(BY_PROVIDER_ID, node.spec.provider_id) if node.spec.provider_id else ()
    return found[0] if len(found) == 1 else None


class Ownership:
    """Tells our objects from those of other controllers."""

    def __init__(self, cloud: Cloud) -> None:
        self._kinds = {(kind.group, kind.kind) for kind in cloud.node_classes}
        self._labels = {labels.nodeclass_label(kind.group, kind.kind) for kind in cloud.node_classes}

    def owns_reference(self, reference: NodeClassReference) -> bool:
        return (reference.group, reference.kind) in self._kinds

    def owns_claim(self, claim: NodeClaim) -> bool:
        return self.owns_reference(claim.spec.node_class_ref)

    def owns_pool(self, pool: NodePool) -> bool:
        """Whether a pool is ours to act for; one that is set aside is left as it is until it is mended."""
        return self.owns_reference(pool.spec.template.spec.node_class_ref) and not reason_of(pool)

    def owns_node(self, node: Node) -> bool:
        return any(label in node.labels for label in self._labels)
