"""ZoneCordons: nodes of a zone that is shifted away are cordoned in a replay as they were in the recording.

Who shifts a zone away may also cordon its nodes, at once or one after another, and take that back when the
zone returns. A replay has other nodes, so the same share of the zone's nodes is cordoned. A cordon in any
other zone is one that a person put on one machine, and a replay has no such machine.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from dovetail.api import labels
from dovetail.disruption.situation import Situation
from dovetail.play.started_world import NODES, StartedWorld

__all__ = ["ZoneCordons"]

Json = dict[str, Any]
# So that a third of three nodes is one of them.
DUST = 1e-9


class ZoneCordons:
    """Cordons and releases the nodes of a replay, look after look."""

    def __init__(self, started: StartedWorld) -> None:
        self._started = started
        # Zones that are shifted away, or that returned and still have cordoned nodes.
        self._zones: set[str] = set()

    def follow_look(self, situation: Situation) -> None:
        """Have the share of each zone's nodes cordoned that is so in this look."""
        closed = set(situation.closed_zones.values())
        zones = self._zones | closed
        if not zones:
            return
        shares = _find_shares(situation, zones)
        self._zones = {zone for zone in zones if zone in closed or shares[zone] > 0}
        nodes: dict[str, list[Json]] = {zone: [] for zone in zones}
        for node in self._started.world.api.list(NODES):
            zone = (node["metadata"].get("labels") or {}).get(labels.ZONE, "")
            if zone in nodes and not node["metadata"].get("deletionTimestamp"):
                nodes[zone].append(node)
        for zone in sorted(zones):
            self._cordon_share(nodes[zone], shares[zone])

    def _cordon_share(self, nodes: list[Json], share: float) -> None:
        nodes.sort(key=lambda node: str(node["metadata"]["name"]))
        cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
        others = [node for node in nodes if not node["spec"].get("unschedulable")]
        wanted = ceil(share * len(nodes) - DUST)
        for node in others[: max(wanted - len(cordoned), 0)]:
            self._write_spec(node, {**node["spec"], "unschedulable": True})
        for node in cordoned[: max(len(cordoned) - wanted, 0)]:
            self._write_spec(
                node, {key: each for key, each in node["spec"].items() if key != "unschedulable"}
            )

    def _write_spec(self, node: Json, spec: Json) -> None:
        self._started.api.amend(NODES, ("", node["metadata"]["name"]), spec=spec)


def _find_shares(situation: Situation, zones: set[str]) -> dict[str, float]:
    """The share of each zone's nodes that is cordoned; nothing is where there is no node."""
    total, cordoned = dict.fromkeys(zones, 0), dict.fromkeys(zones, 0)
    for state in situation.snapshot.nodes:
        zone = state.node.labels.get(labels.ZONE, "") if state.node is not None else ""
        if state.node is not None and zone in total:
            total[zone] += 1
            cordoned[zone] += state.node.spec.unschedulable
    return {zone: cordoned[zone] / total[zone] if total[zone] else 0.0 for zone in zones}
