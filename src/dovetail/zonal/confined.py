"""Pods that could only run in certain zones, and what keeps them there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod, TopologySpreadConstraint
from dovetail.scheduling import pods as wishes
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.snapshot import Snapshot, StateNode, Storage
from dovetail.scheduling.volumes import alternatives

__all__ = ["FIXES", "Confined", "Tie", "confined", "set_aside", "tie_of", "waiting_for"]

Tie = Literal["", "volume", "selector", "affinity", "spread"]
# What a person can do about each.
FIXES: Mapping[Tie, str] = {
    "volume": "its volume is in the zone: restore a copy of it elsewhere, or wait",
    "selector": "its node selector names the zone: name another, or none",
    "affinity": "its required node affinity leaves only the zone: allow others",
    "spread": "its spread over zones must count the zone: set nodeTaintsPolicy: Honor, or "
    "whenUnsatisfiable: ScheduleAnyway",
}


class Confined(Struct, frozen=True):
    """A pod that waits for a zone, and why no other will do."""

    pod: Pod
    zone: str
    tie: Tie

    def __str__(self) -> str:
        return f"it waits for zone {self.zone}, which is shifted away: {FIXES[self.tie]}"


def waiting_for(snapshot: Snapshot, zones: Mapping[str, str]) -> tuple[Confined, ...]:
    """The waiting pods that only these zones, names by id, could take; each counts for one of them."""
    if not zones or not snapshot.pods:
        return ()
    found = []
    for pod in snapshot.pods:
        tie, zone = confined(pod, zones, snapshot.storage)
        if not tie:
            zone = _spread_needs(pod, snapshot, frozenset(zones.values()))
            tie = "spread" if zone else ""
        if tie:
            found.append(Confined(pod, zone, tie))
    return tuple(found)


def set_aside(snapshot: Snapshot, zones: Mapping[str, str]) -> tuple[Snapshot, tuple[Confined, ...]]:
    """The world without waiting pods that only these zones could take, and those pods.

    Nothing can be bought for them until their zone is back, so nobody need look for it at every turn.
    """
    found = []
    for pod in snapshot.pods if zones else ():
        tie, zone = confined(pod, zones, snapshot.storage)
        if tie:
            found.append(Confined(pod, zone, tie))
    if not found:
        return snapshot, ()
    aside = {each.pod.full_name for each in found}
    left = tuple(pod for pod in snapshot.pods if pod.full_name not in aside)
    return replace(snapshot, pods=left), tuple(found)


def tie_of(pod: Pod, zones: Mapping[str, str], storage: Storage) -> Tie:
    """What keeps the pod in these zones; empty when nothing does."""
    return confined(pod, zones, storage)[0]


def confined(pod: Pod, zones: Mapping[str, str], storage: Storage) -> tuple[Tie, str]:
    """What keeps a pod in these zones, names by id, and in which of them."""
    ties: tuple[tuple[Tie, Iterable[Requirements]], ...] = (
        ("volume", alternatives(pod, storage)),
        ("selector", (Requirements.labels(pod.spec.node_selector),)),
        ("affinity", wishes.alternatives(pod.spec)),
    )
    for tie, ways in ties:
        where = [_only_in(way, zones) for way in ways]
        if where and all(where):
            return tie, where[0]
    return "", ""


def _only_in(way: Requirements, zones: Mapping[str, str]) -> str:
    """The first of the zones that this leaves, if it leaves no other."""
    for key, known in ((labels.ZONE, {*zones.values()}), (labels.ZONE_ID, {*zones})):
        values = way[key]
        if not values.open and values.names and values.names <= known:
            first = min(values.names)
            return first if key == labels.ZONE else zones[first]
    return ""


def _spread_needs(pod: Pod, snapshot: Snapshot, away: Collection[str]) -> str:
    """The zone away that a hard spread over zones asks for, when no other zone would satisfy it."""
    for constraint in pod.spec.topology_spread_constraints:
        hard = constraint.when_unsatisfiable == "DoNotSchedule" and constraint.topology_key == labels.ZONE
        if hard and constraint.node_taints_policy != "Honor":
            counts = _counts(pod, constraint, snapshot.nodes)
            least = min(counts.values(), default=0)
            fitting = [zone for zone, count in counts.items() if count + 1 - least <= constraint.max_skew]
            if fitting and all(zone in away for zone in fitting):
                return min(fitting)
    return ""


def _counts(pod: Pod, constraint: TopologySpreadConstraint, nodes: Iterable[StateNode]) -> dict[str, int]:
    found: dict[str, int] = {}
    for state in nodes:
        known = state.node.labels if state.node is not None else {}
        if zone := known.get(labels.ZONE):
            selector = constraint.label_selector
            mine = sum(
                selector is not None and each.namespace == pod.namespace and matches(selector, each.labels)
                for each in state.pods
            )
            found[zone] = found.get(zone, 0) + mine
    return found
