"""What if this zone went? Its nodes and offerings are taken out of the world, and its pods look for a home.

The engine that places pods answers, so that a rehearsal promises nothing the real thing would not keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.pod import Pod
from dovetail.errors import BadInput
from dovetail.scheduling.bill import sum_known_prices
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import NodeReason, Reason, find_nearest_miss
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.solve import QUICK, solve
from dovetail.scheduling.zone_bound import find_tie

__all__ = [
    "LAUNCHES",
    "Rehearsal",
    "Why",
    "describe_workload",
    "find_zone_name",
    "limit_room",
    "list_zones",
    "rehearse",
    "remove_zone",
]

Why = Literal["volume", "selector", "affinity", "spread", "limits", "addresses", "capacity type", "other"]
# Nodes a minute that a cluster is taken to launch, and minutes until the last of them takes pods.
LAUNCHES, WARM_UP = 60.0, 2.0
REASON_KINDS: Mapping[Reason, Why] = {
    Reason.LIMIT: "limits",
    Reason.LABELS: "affinity",
    Reason.VOLUME_ZONE: "volume",
    Reason.SPREAD: "spread",
    Reason.AFFINITY: "affinity",
    Reason.ANTI_AFFINITY: "affinity",
    Reason.RESERVED: "capacity type",
}
NO_ADDRESS = "the subnets of {zone} have {free} addresses left, and {wanted} are needed there"


class Rehearsal(Struct, frozen=True):
    """What losing a zone would mean."""

    zone: str
    nodes: int
    pods: int
    # Pods that would have no home, and why: in the engine's words, and in one.
    homeless: Mapping[str, str]
    new_nodes: int
    price: float
    minutes: float
    # Budgets that would be broken, and workloads that would be gone altogether until then.
    budgets: tuple[str, ...] = ()
    concentrated: tuple[str, ...] = ()
    kinds: Mapping[str, Why] = {}
    # Pools whose limits stand in the way, and zones whose subnets have too few addresses.
    limited: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()
    # How many pods of each workload need a node that is not there yet.
    needing: Mapping[str, int] = {}

    @property
    def readiness(self) -> float:
        """The part of the zone's pods that would find another home."""
        return 1.0 - len(self.homeless) / self.pods if self.pods else 1.0

    @property
    def passed(self) -> bool:
        return not self.homeless

    def count_by_reason(self, why: Why) -> int:
        """How many pods have no home for this reason."""
        return sum(each == why for each in self.kinds.values())


def find_zone_name(snapshot: Snapshot, told: str) -> str:
    """The name of a zone that is told by its name or by its id; BadInput when there is none like it."""
    by_id = list_zones(snapshot)
    names = {*by_id.values()}
    found = told if told in names else by_id.get(told, "")
    if not told or not found:
        listed = ", ".join(sorted(names))
        raise BadInput(
            f"rehearsing the loss of {told!r}: there is no such zone; there are {listed or 'none'}"
        )
    return found


def list_zones(snapshot: Snapshot) -> dict[str, str]:
    """The names of all zones by their ids; a zone without an id stands under its name."""
    pairs = {
        (known.get(labels.ZONE, ""), known.get(labels.ZONE_ID, ""))
        for known in map(_read_labels, snapshot.nodes)
    }
    for each in (offering for types in snapshot.catalogs for one in types for offering in one.offerings):
        pairs.add((each.zone, each.requirements[labels.ZONE_ID].only or ""))
    named = {name for name, id in pairs if id}
    return {id or name: name for name, id in sorted(pairs) if name and (id or name not in named)}


def rehearse(
    snapshot: Snapshot,
    zone: str,
    *,
    launches: float = LAUNCHES,
    addresses: Mapping[str, int] | None = None,
    cache: DecisionCache | None = None,
) -> Rehearsal:
    """Lose the zone and see. `launches` are nodes a minute, `addresses` what subnets have left, by zone."""
    lost = [state for state in snapshot.nodes if _read_labels(state).get(labels.ZONE) == zone]
    pods = {pod.full_name: pod for state in lost for pod in state.pods if predicates.is_reschedulable(pod)}
    plan = solve(remove_zone(snapshot, zone), QUICK, cache=cache)
    homeless = {
        pod: why
        for pod, why in {**plan.ignored, **plan.deferred, **plan.unschedulable}.items()
        if pod in pods
    }
    kinds = _classify_homeless(snapshot, zone, plan, {name: pods[name] for name in homeless})
    crowded = _find_crowded_zones(plan.new_nodes, addresses or {})
    for name, why in _find_pods_without_address(plan.new_nodes, crowded).items():
        if name in pods:
            homeless[name], kinds[name] = why, "addresses"
    count = len(plan.new_nodes)
    return Rehearsal(
        zone=zone,
        nodes=len(lost),
        pods=len(pods),
        homeless=homeless,
        new_nodes=count,
        price=sum_known_prices(plan.new_nodes),
        minutes=(WARM_UP + count / launches) if count else 0.0,
        budgets=_list_broken_budgets(snapshot, pods.values()),
        concentrated=_list_concentrated(snapshot, {*pods}),
        kinds=kinds,
        limited=_list_limited_pools(snapshot, plan, {*homeless}),
        crowded=tuple(sorted(crowded)),
        needing=_count_needing_pods(plan, pods),
    )


def remove_zone(snapshot: Snapshot, zone: str) -> Snapshot:
    """The world without the zone, its pods waiting for a place elsewhere."""
    kept, moving = list[StateNode](), list[Pod](snapshot.moving)
    for state in snapshot.nodes:
        if _read_labels(state).get(labels.ZONE) == zone:
            moving += [pod for pod in state.pods if predicates.is_reschedulable(pod)]
        else:
            kept.append(state)
    catalogs = tuple(tuple(_remove_offerings(each, zone) for each in types) for types in snapshot.catalogs)
    return replace(snapshot, nodes=tuple(kept), catalogs=catalogs, moving=tuple(moving))


def _remove_offerings(each: InstanceType, zone: str) -> InstanceType:
    if not any(offering.zone == zone and offering.available for offering in each.offerings):
        return each
    offerings = tuple(
        replace(offering, available=False) if offering.zone == zone else offering
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)


def _read_labels(state: StateNode) -> Mapping[str, str]:
    found = state.node or state.claim
    return found.labels if found is not None else {}


# Why a pod has no home


def _classify_homeless(
    snapshot: Snapshot, zone: str, plan: Plan, homeless: Mapping[str, Pod]
) -> dict[str, Why]:
    ids = {id: name for id, name in list_zones(snapshot).items() if name == zone}
    pools = {pool.name for pool in snapshot.pools}
    missed: dict[str, NodeReason | None] = {
        each.pod: find_nearest_miss(one for one in each.rejections if one.place in pools)
        for each in plan.decisions
        if each.pod in homeless
    }
    return {
        name: find_tie(pod, ids, snapshot.storage) or _classify_pod(snapshot, zone, pod, missed.get(name))
        for name, pod in homeless.items()
    }


def _classify_pod(snapshot: Snapshot, zone: str, pod: Pod, missed: NodeReason | None) -> Why:
    if missed is None:
        return "other"
    known = REASON_KINDS.get(missed.reason)
    if known is not None:
        return known
    return "capacity type" if _is_sold_only_there(snapshot, zone, missed.place) else "other"


def _is_sold_only_there(snapshot: Snapshot, zone: str, pool: str) -> bool:
    """Whether some way of buying that the pool has in the zone is to be had nowhere else."""
    catalog = next((snapshot.list_types(each) for each in snapshot.pools if each.name == pool), ())
    ways: dict[bool, set[str]] = {True: set(), False: set()}
    for offering in (each for one in catalog for each in one.offerings if each.available):
        ways[offering.zone == zone].add(offering.capacity_type)
    return bool(ways[True] - ways[False])


def _list_limited_pools(snapshot: Snapshot, plan: Plan, homeless: set[str]) -> tuple[str, ...]:
    pools = {pool.name for pool in snapshot.pools}
    told = (one for each in plan.decisions if each.pod in homeless for one in each.rejections)
    return tuple(sorted({one.place for one in told if one.reason is Reason.LIMIT and one.place in pools}))


# Addresses: each node needs one, and so does each pod on it


def _find_crowded_zones(nodes: Iterable[PlannedNode], addresses: Mapping[str, int]) -> dict[str, str]:
    """Zones in which the new nodes and their pods need more addresses than there are, told in words."""
    needed: Counter[str] = Counter()
    for node in nodes:
        needed[node.zone] += 1 + len(node.pods)
    return {
        zone: NO_ADDRESS.format(zone=zone, free=addresses[zone], wanted=wanted)
        for zone, wanted in needed.items()
        if zone in addresses and wanted > addresses[zone]
    }


def _find_pods_without_address(nodes: Iterable[PlannedNode], crowded: Mapping[str, str]) -> dict[str, str]:
    return {pod: crowded[node.zone] for node in nodes if node.zone in crowded for pod in node.pods}


# What hangs on the zone


def describe_workload(pod: Pod) -> str:
    """Kind, namespace and name of who made the pod; empty for one that is on its own."""
    owner = pod.metadata.controller
    return f"{owner.kind}/{pod.namespace}/{owner.name}" if owner is not None else ""


def _count_needing_pods(plan: Plan, pods: Mapping[str, Pod]) -> dict[str, int]:
    names = (name for node in plan.new_nodes for name in node.pods if name in pods)
    found = Counter(describe_workload(pods[name]) for name in names)
    return {workload: found[workload] for workload in sorted(found) if workload}


def _list_broken_budgets(snapshot: Snapshot, lost: Iterable[Pod]) -> tuple[str, ...]:
    """Budgets that more pods of the zone count for than may be missing at once."""
    pods, found = tuple(lost), []
    for budget in snapshot.budgets:
        selector = budget.spec.selector
        mine = [
            pod
            for pod in pods
            if pod.namespace == budget.namespace
            and selector is not None
            and matches_selector(selector, pod.labels)
        ]
        if len(mine) > budget.status.disruptions_allowed:
            found.append(budget.full_name)
    return tuple(sorted(found))


def _list_concentrated(snapshot: Snapshot, lost: set[str]) -> tuple[str, ...]:
    """Workloads all of whose pods are in the zone."""
    members: dict[str, list[bool]] = {}
    for state in snapshot.nodes:
        for pod in state.pods:
            if predicates.is_reschedulable(pod) and (name := describe_workload(pod)):
                members.setdefault(name, []).append(pod.full_name in lost)
    return tuple(sorted(name for name, inside in members.items() if all(inside)))


W = TypeVar("W")


def limit_room(needed: Mapping[W, int] | None, have: Mapping[W, int], left: Mapping[W, int]) -> dict[W, int]:
    """Room for each workload: what was `needed` at first, what we `have`, and who is `left` in the zone.

    Once room was bought it only shrinks: whoever moved into it must not have it bought anew, and what it was
    worked out from is no longer true.
    """
    if have:
        return {workload: min(size, left.get(workload, 0)) for workload, size in have.items()}
    wanted = ((workload, min(size, left.get(workload, 0))) for workload, size in (needed or {}).items())
    return {workload: size for workload, size in wanted if size > 0}
