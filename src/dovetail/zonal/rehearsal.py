"""What if this zone went? Its nodes and offerings are taken out of the world, and its pods look for a home.

The engine that places pods answers, so that a rehearsal promises nothing the real thing would not keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.pod import Pod
from dovetail.errors import BadInput
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.scheduling.solve import QUICK, solve

__all__ = ["Rehearsal", "rehearse", "without_zone", "zone_named"]

# Nodes a minute that a cluster is taken to launch, and minutes until the last of them takes pods.
LAUNCHES, WARM_UP = 60.0, 2.0


class Rehearsal(Struct, frozen=True):
    """What losing a zone would mean."""

    zone: str
    nodes: int
    pods: int
    # Pods that would have no home, and why.
    homeless: Mapping[str, str]
    new_nodes: int
    price: float
    minutes: float
    # Budgets that would be broken, and workloads that would be gone altogether until then.
    budgets: tuple[str, ...] = ()
    concentrated: tuple[str, ...] = ()

    @property
    def readiness(self) -> float:
        """The part of the zone's pods that would find another home."""
        return 1.0 - len(self.homeless) / self.pods if self.pods else 1.0

    @property
    def passed(self) -> bool:
        return not self.homeless


def zone_named(snapshot: Snapshot, told: str) -> str:
    """The name of a zone that is told by its name or by its id; BadInput when there is none like it."""
    by_id: dict[str, str] = {}
    names: set[str] = set()
    for state in snapshot.nodes:
        known = _labels(state)
        names.add(known.get(labels.ZONE, ""))
        by_id[known.get(labels.ZONE_ID, "")] = known.get(labels.ZONE, "")
    for each in (offering for types in snapshot.catalogs for one in types for offering in one.offerings):
        names.add(each.zone)
        by_id[each.requirements[labels.ZONE_ID].only or ""] = each.zone
    found = told if told in names else by_id.get(told, "")
    if not told or not found:
        listed = ", ".join(sorted(filter(None, names)))
        raise BadInput(
            f"rehearsing the loss of {told!r}: there is no such zone; there are {listed or 'none'}"
        )
    return found


def rehearse(snapshot: Snapshot, zone: str) -> Rehearsal:
    """Lose the zone and see."""
    lost = [state for state in snapshot.nodes if _labels(state).get(labels.ZONE) == zone]
    pods = tuple(pod for state in lost for pod in state.pods if predicates.reschedulable(pod))
    names = {pod.full_name for pod in pods}
    plan = solve(without_zone(snapshot, zone), QUICK)
    homeless = {
        pod: why
        for pod, why in {**plan.ignored, **plan.deferred, **plan.unschedulable}.items()
        if pod in names
    }
    count = len(plan.new_nodes)
    return Rehearsal(
        zone=zone,
        nodes=len(lost),
        pods=len(pods),
        homeless=homeless,
        new_nodes=count,
        price=sum(node.price for node in plan.new_nodes if not isinf(node.price)),
        minutes=(WARM_UP + count / LAUNCHES) if count else 0.0,
        budgets=_broken(snapshot, pods),
        concentrated=_concentrated(snapshot, names),
    )


def without_zone(snapshot: Snapshot, zone: str) -> Snapshot:
    """The world without the zone, its pods waiting for a place elsewhere."""
    kept, moving = list[StateNode](), list[Pod](snapshot.moving)
    for state in snapshot.nodes:
        if _labels(state).get(labels.ZONE) == zone:
            moving += [pod for pod in state.pods if predicates.reschedulable(pod)]
        else:
            kept.append(state)
    catalogs = tuple(tuple(_without(each, zone) for each in types) for types in snapshot.catalogs)
    return replace(snapshot, nodes=tuple(kept), catalogs=catalogs, moving=tuple(moving))


def _without(each: InstanceType, zone: str) -> InstanceType:
    if not any(offering.zone == zone and offering.available for offering in each.offerings):
        return each
    offerings = tuple(
        replace(offering, available=False) if offering.zone == zone else offering
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)


def _labels(state: StateNode) -> Mapping[str, str]:
    found = state.node or state.claim
    return found.labels if found is not None else {}


def _broken(snapshot: Snapshot, lost: Iterable[Pod]) -> tuple[str, ...]:
    """Budgets that more pods of the zone count for than may be missing at once."""
    pods, found = tuple(lost), []
    for budget in snapshot.budgets:
        selector = budget.spec.selector
        mine = [
            pod
            for pod in pods
            if pod.namespace == budget.namespace and selector is not None and matches(selector, pod.labels)
        ]
        if len(mine) > budget.status.disruptions_allowed:
            found.append(budget.full_name)
    return tuple(sorted(found))


def _concentrated(snapshot: Snapshot, lost: set[str]) -> tuple[str, ...]:
    """Workloads all of whose pods are in the zone."""
    members: dict[str, list[bool]] = {}
    for state in snapshot.nodes:
        for pod in state.pods:
            owner = pod.metadata.controller
            if owner is not None and predicates.reschedulable(pod):
                name = f"{owner.kind}/{pod.namespace}/{owner.name}"
                members.setdefault(name, []).append(pod.full_name in lost)
    return tuple(sorted(name for name, inside in members.items() if all(inside)))
