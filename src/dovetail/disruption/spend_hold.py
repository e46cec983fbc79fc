"""What spend limits leave for replacements of drifted nodes.

A replacement that costs no more than what it replaces is never held: the fleet ends up no dearer. A dearer
one may stand beside what it replaces only as far as the limit's overlap goes. Consolidation only saves, so
that it does not ask.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import BlockedNode, Candidate
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.spend import compute_spend
from dovetail.scheduling.spend_prices import PricedNode, narrow_node, narrow_template, price_node
from dovetail.scheduling.spend_room import SpendExcess, SpendRoom

__all__ = ["DriftSpend"]


class DriftSpend:
    """The room of every limit in one turn of drift: each replacement leaves less for the next."""

    def __init__(self, inputs: DisruptionInput) -> None:
        caps = [cap for cap in inputs.spend_caps if not cap.warn]
        self._snapshot = inputs.snapshot
        self._room = SpendRoom(caps, compute_spend(inputs.snapshot, inputs.cache)) if caps else None

    def fit_replacements(
        self, candidate: Candidate, nodes: Sequence[PlannedNode]
    ) -> tuple[PlannedNode, ...] | BlockedNode:
        """The replacements as limits have room for them, or the node that stays for now."""
        room = self._room
        if room is None or not any(room.covers(node.pool) for node in nodes):
            return tuple(nodes)
        excess: SpendExcess | None = None
        for most in (None, candidate.price):
            priced = [self._price_node(node, most) for node in nodes]
            excess = room.find_overlap_excess(priced, candidate.pool.name, candidate.price)
            if excess is None:
                for each in priced:
                    room.charge_node(each)
                return tuple(each.node for each in priced)
        return BlockedNode(candidate.state, str(excess), blocked_reason=BlockedReason.SPEND)

    def _price_node(self, node: PlannedNode, most: float | None) -> PricedNode:
        """The node with what it may cost; with `most`, without any type that is dearer if that can be."""
        if not node.instance_types:
            return PricedNode(node, *self._price_template(node))
        narrow = narrow_node(self._snapshot, node)
        if most is not None:
            narrow = narrow_node(self._snapshot, node, most, least=1)
        return price_node(self._snapshot, narrow)

    def _price_template(self, node: PlannedNode) -> tuple[float, dict[str, int]]:
        """What a static NodePool's node may cost: its order is narrowed in the same way."""
        priced = price_node(self._snapshot, narrow_template(self._snapshot, node))
        return priced.price, priced.capacity
