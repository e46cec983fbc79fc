"""How a cluster lies over its zones: nodes, pods and dollars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from dovetail.api import labels, predicates
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["ZoneBalance", "measure_balance"]


class ZoneBalance(Struct, frozen=True):
    """What each zone has, by name."""

    nodes: Mapping[str, int]
    pods: Mapping[str, int]
    dollars: Mapping[str, float]

    @property
    def skew(self) -> int:
        """How many nodes the fullest zone has more than the emptiest."""
        return max(self.nodes.values(), default=0) - min(self.nodes.values(), default=0)

    def __str__(self) -> str:
        told = (
            f"{zone}: {self.nodes[zone]} nodes, {self.pods.get(zone, 0)} pods, "
            f"${self.dollars.get(zone, 0.0):.2f} an hour"
            for zone in sorted(self.nodes)
        )
        return "; ".join(told)


def measure_balance(snapshot: Snapshot) -> ZoneBalance:
    """The cluster as it lies now. Every zone that could be bought in counts, also one without a node."""
    nodes = Counter[str](dict.fromkeys(_list_sold_zones(snapshot), 0))
    pods: Counter[str] = Counter()
    for state in snapshot.nodes:
        known = state.node.labels if state.node is not None else {}
        zone = known.get(labels.ZONE, "")
        if not zone:
            continue
        nodes[zone] += 1
        pods[zone] += sum(map(predicates.is_reschedulable, state.pods))
    dollars = bill_running_nodes(snapshot).sum_by("zone")
    return ZoneBalance(dict(nodes), dict(pods), dollars)


def _list_sold_zones(snapshot: Snapshot) -> set[str]:
    return {
        offering.zone
        for catalog in snapshot.catalogs
        for each in catalog
        for offering in each.offerings
        if offering.available
    }
