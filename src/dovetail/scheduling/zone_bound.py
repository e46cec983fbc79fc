"""Pods that could only run in certain zones, and what keeps them there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod, TopologySpreadConstraint
from dovetail.scheduling.model import pod_requirements as wishes
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, StateNode, Storage
from dovetail.scheduling.model.volumes import list_volume_topologies

__all__ = [
    "FIXES",
    "Tie",
    "ZoneBoundPod",
    "add_deferred_pods",
    "defer_zone_bound_pods",
    "find_tie",
    "find_tie_and_zone",
    "find_zone_bound_pods",
]

Tie = Literal["", "volume", "selector", "affinity", "spread"]
# What a person can do about each.
FIXES: Mapping[Tie, str] = {
    "volume": "its volume is in the zone: restore a copy of it in another zone, or wait",
    "selector": "its node selector names the zone: name another, or none",
    "affinity": "its required node affinity leaves only the zone: allow others",
    "spread": "its spread over zones must count the zone: set nodeTaintsPolicy: Honor, or "
    "whenUnsatisfiable: ScheduleAnyway",
}


class ZoneBoundPod(Struct, frozen=True):
    """A pod that waits for a zone, and why no other will do."""

    pod: Pod
    zone: str
    tie: Tie

    def __str__(self) -> str:
        return f"it can only run in zone {self.zone}, which is shifted away: {FIXES[self.tie]}"


def find_zone_bound_pods(snapshot: Snapshot, zones: Mapping[str, str]) -> tuple[ZoneBoundPod, ...]:
    """The waiting pods that only these zones, names by id, could take; each counts for one of them."""
    if not zones or not snapshot.pods:
        return ()
    found = []
    for pod in snapshot.pods:
        tie, zone = find_tie_and_zone(pod, zones, snapshot.storage)
        if not tie:
            zone = _find_spread_zone(pod, snapshot, frozenset(zones.values()))
            tie = "spread" if zone else ""
        if tie:
            found.append(ZoneBoundPod(pod, zone, tie))
    return tuple(found)


def defer_zone_bound_pods(
    snapshot: Snapshot, zones: Mapping[str, str]
) -> tuple[Snapshot, tuple[ZoneBoundPod, ...]]:
    """The world without waiting pods that only these zones could take, and those pods.

    Nothing can be bought for them until their zone is back, so nobody need look for it at every turn.
    """
    found = []
    for pod in snapshot.pods if zones else ():
        tie, zone = find_tie_and_zone(pod, zones, snapshot.storage)
        if tie:
            found.append(ZoneBoundPod(pod, zone, tie))
    if not found:
        return snapshot, ()
    aside = {each.pod.full_name for each in found}
    left = tuple(pod for pod in snapshot.pods if pod.full_name not in aside)
    return replace(snapshot, pods=left), tuple(found)


def add_deferred_pods(plan: Plan, waiting: Iterable[ZoneBoundPod]) -> Plan:
    """The plan, and beside it the pods that wait for their zone."""
    deferred, decisions, zones = dict(plan.deferred), list(plan.decisions), dict(plan.zones)
    for each in waiting:
        name = each.pod.full_name
        deferred[name] = str(each)
        decisions.append(Decision(name, None, error=str(each)))
        zones[each.zone] = zones.get(each.zone, 0) + 1
    return replace(plan, deferred=deferred, decisions=tuple(decisions), zones=zones)


def find_tie(pod: Pod, zones: Mapping[str, str], storage: Storage) -> Tie:
    """What keeps the pod in these zones; empty when nothing does."""
    return find_tie_and_zone(pod, zones, storage)[0]


def find_tie_and_zone(pod: Pod, zones: Mapping[str, str], storage: Storage) -> tuple[Tie, str]:
    """What keeps a pod in these zones, names by id, and in which of them."""
    checks: tuple[tuple[Tie, Iterable[Requirements]], ...] = (
        ("volume", list_volume_topologies(pod, storage)),
        ("selector", (Requirements.from_labels(pod.spec.node_selector),)),
        ("affinity", wishes.list_requirement_alternatives(pod.spec)),
    )
    for tie, alternatives in checks:
        where = [_find_only_zone(alternative, zones) for alternative in alternatives]
        if where and all(where):
            return tie, where[0]
    return "", ""


def _find_only_zone(alternative: Requirements, zones: Mapping[str, str]) -> str:
    """The first of the zones that this leaves, if it leaves no other."""
    for key, known in ((labels.ZONE, {*zones.values()}), (labels.ZONE_ID, {*zones})):
        values = alternative[key]
        if not values.open and values.names and values.names <= known:
            first = min(values.names)
            return first if key == labels.ZONE else zones[first]
    return ""


def _find_spread_zone(pod: Pod, snapshot: Snapshot, away: Collection[str]) -> str:
    """The zone away that a hard spread over zones asks for, when no other zone would satisfy it."""
    for constraint in pod.spec.topology_spread_constraints:
        hard = constraint.when_unsatisfiable == "DoNotSchedule" and constraint.topology_key == labels.ZONE
        if hard and constraint.node_taints_policy != "Honor":
            counts = _count_pods_by_zone(pod, constraint, snapshot.nodes)
            least = min(counts.values(), default=0)
            fitting = [zone for zone, count in counts.items() if count + 1 - least <= constraint.max_skew]
            if fitting and all(zone in away for zone in fitting):
                return min(fitting)
    return ""


def _count_pods_by_zone(
    pod: Pod, constraint: TopologySpreadConstraint, nodes: Iterable[StateNode]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for state in nodes:
        known = state.node.labels if state.node is not None else {}
        if zone := known.get(labels.ZONE):
            selector = constraint.label_selector
            mine = sum(
                selector is not None
                and each.namespace == pod.namespace
                and matches_selector(selector, each.labels)
                for each in state.pods
            )
            found[zone] = found.get(zone, 0) + mine
    return found
