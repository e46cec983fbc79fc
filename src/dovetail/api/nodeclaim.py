"""NodeClaim: one node, ordered (karpenter.sh/v1)."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from dovetail.api.core import Taint
from dovetail.api.meta import Amounts, Condition, Kind, Object, Record
from dovetail.api.nodepool import NodeClassReference, Requirement

__all__ = ["NodeClaim", "NodeClaimSpec", "NodeClaimStatus"]


class ClaimResources(Record, frozen=True):
    """The least the node must offer: its pods and daemons together."""

    requests: Amounts = {}


class NodeClaimSpec(Record, frozen=True):
    """The order. It never changes once given."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("requirements",)

    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: tuple[Requirement, ...] = ()
    resources: ClaimResources = ClaimResources()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str | None = None
    termination_grace_period: str | None = None


class NodeClaimStatus(
    Record,
    frozen=True,
    rename={
        "node_name": "nodeName",
        "provider_id": "providerID",
        "image_id": "imageID",
        "last_pod_event_time": "lastPodEventTime",
    },
):
    """What came of the order."""

    node_name: str = ""
    provider_id: str = ""
    image_id: str = ""
    capacity: Amounts = {}
    allocatable: Amounts = {}
    last_pod_event_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()

    def find_condition(self, kind: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == kind), None)


class NodeClaim(Object, frozen=True):
    """One node: ordered, coming or here."""

    KIND: ClassVar[Kind] = Kind("karpenter.sh", "v1", "NodeClaim", "nodeclaims", namespaced=False)

    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()
