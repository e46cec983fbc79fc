"""NodeOverlay: a person's corrections to prices and capacities (karpenter.sh/v1alpha1)."""

from __future__ import annotations

from typing import ClassVar

from dovetail.api.meta import Amounts, Condition, Kind, Object, Record
from dovetail.api.pod import NodeSelectorRequirement

__all__ = ["NodeOverlay", "NodeOverlaySpec"]


class NodeOverlaySpec(Record, frozen=True):
    """Which instance types, and what to believe about them instead."""

    requirements: tuple[NodeSelectorRequirement, ...] = ()
    price: str | None = None
    price_adjustment: str | None = None
    capacity: Amounts = {}
    weight: int | None = None


class NodeOverlayStatus(Record, frozen=True):
    """Whether the overlay is in force."""

    conditions: tuple[Condition, ...] = ()


class NodeOverlay(Object, frozen=True):
    """A correction to what the provider says of its instance types."""

    KIND: ClassVar[Kind] = Kind("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays", namespaced=False)

    spec: NodeOverlaySpec = NodeOverlaySpec()
    status: NodeOverlayStatus = NodeOverlayStatus()
