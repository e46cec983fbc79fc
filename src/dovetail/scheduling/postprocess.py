"""A node that is a large part of the fleet is hard to give back: where two halves cost no more, buy halves.

What is bought for some hours attracts pods that stay. One large node then runs on for the few that are left,
while of two halves one can go as soon as the other has room for its pods. So the packing is asked again
without the largest types, as long as the answer costs the same and holds up once the scheduler has its say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as swap
from datetime import datetime, timedelta

import numpy as np
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node, NodeSpec, NodeStatus
from dovetail.api.labels import ZONE
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod, PodStatus
from dovetail.api.predicates import required_anti_affinity
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.host_ports import list_host_ports
from dovetail.scheduling.model.instance_types import InstanceType, find_cheapest_offering
from dovetail.scheduling.model.plan import Plan, PlannedNode, build_pool_labels, describe_purchase
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_nano_requests,
    convert_to_nano,
    fits_within,
    subtract_resources,
)
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode
from dovetail.scheduling.packing.adapter.to_groups import PodGroups, build_age_key
from dovetail.settings import durations

__all__ = [
    "NodeRoom",
    "NodeSizeLimit",
    "add_headroom",
    "apply_plan",
    "can_place_by_default",
    "split_large_nodes",
]


@dataclass(slots=True)
class NodeRoom:
    """A node that takes pods: how large it is, and what is left of it."""

    size: Nano
    left: Nano

    def score_with_pod(self, wanted: Nano) -> float:
        """How free it would be with one more pod, as the scheduler scores it."""
        left = subtract_resources(self.left, wanted)
        return sum(left[name] / self.size[name] for name in ("cpu", "memory") if self.size.get(name))


def can_place_by_default(
    pods: Iterable[Pod],
    places: Sequence[NodeRoom],
    open_to: Callable[[Pod, int], bool] = lambda pod, at: True,
) -> bool:
    """Whether every pod finds room that way; `open_to` says which places a pod may have."""
    for pod in sorted(pods, key=build_age_key):
        wanted = compute_nano_requests(pod)
        able = [at for at, place in enumerate(places) if open_to(pod, at) and fits_within(wanted, place.left)]
        if not able:
            return False
        best = max(able, key=lambda at: places[at].score_with_pod(wanted))
        places[best].left = subtract_resources(places[best].left, wanted)
    return True


_LARGE = 1 / 8  # of the fleet
_TRICKLE = 50  # pods: what comes in larger numbers is packed for its own sake
_SAME = 1e-9
_JUST = 1 - 1e-6


class NodeSizeLimit:
    """The fleet, with what it is about to get, and the share of it that no new node may reach."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.types = {pool.name: {t.name: t for t in snapshot.list_types(pool)} for pool in snapshot.pools}
        running = [
            views.read_allocatable(state)
            for state in views.list_active(snapshot.nodes)
            if views.is_managed(state)
        ]
        self.pods = (*snapshot.pods, *snapshot.moving, *snapshot.virtual)
        known = [*running, *map(compute_nano_requests, self.pods)]
        self.total = {name: sum(each.get(name, 0) for each in known) for name in ("cpu", "memory")}
        # Halves smaller than the nodes that run already would only be crumbs.
        self.usual = sum(map(self._compute_share, running)) / len(running) if running else 1.0
        self.share = 1.0

    def read_allocatable(self, node: PlannedNode) -> Nano:
        return convert_to_nano(self.types[node.pool][node.instance_type].allocatable())

    def _compute_share(self, room: Nano) -> float:
        return max(room.get(name, 0) / max(total, 1) for name, total in self.total.items())

    def find_largest_share(self, plan: Plan) -> float:
        return max((self._compute_share(self.read_allocatable(node)) for node in plan.new_nodes), default=0.0)

    def exclude_large_options(self, counted: PodGroups) -> PodGroups:
        """The batch without the options that reach the share."""
        rooms = (each.template.table.allocatable[each.type] for each in counted.options)
        large = np.array([self._compute_share(room) >= self.share for room in rooms], bool)
        price = np.where(large[:, None], np.inf, counted.batch.price)
        return swap(counted, batch=swap(counted.batch, price=price))


def split_large_nodes(snapshot: Snapshot, plan: Plan, again: Callable[[NodeSizeLimit], Plan | None]) -> Plan:
    """The plan in smaller nodes for the same money, if `again` can make one; else the plan itself."""
    waiting = len(snapshot.pods) + len(snapshot.moving) + len(snapshot.virtual)
    if not plan.new_nodes or not snapshot.nodes or waiting > _TRICKLE:
        return plan
    below = NodeSizeLimit(snapshot)
    while (largest := below.find_largest_share(plan)) > max(_LARGE, 2 * below.usual):
        below.share = largest * _JUST
        found = again(below)
        if found is None or _is_worse(found, plan) or not _fits_default_placement(below, found):
            return plan
        proven = {"bound": plan.bound, "bound_as_asked": plan.bound_as_asked}
        plan = replace(found, proven_pods=plan.proven_pods, **proven)
    return plan


def _is_worse(found: Plan, plan: Plan) -> bool:
    others = not found.left_out <= plan.left_out
    return others or found.price > plan.price + _SAME or len(found.new_nodes) <= len(plan.new_nodes)


def _fits_default_placement(below: NodeSizeLimit, plan: Plan) -> bool:
    """Whether all new pods find room if the scheduler puts each, in turn, where most is free.

    It does not know the plan: on nodes that are just large enough, small pods may take the large ones' room.
    """
    new = plan.new_nodes
    home = {name: at for at, node in enumerate(new) for name in node.pods}
    pods = [pod for pod in below.pods if pod.full_name in home]
    rooms = map(below.read_allocatable, new)
    return can_place_by_default(
        pods,
        [NodeRoom(room, room) for room in rooms],
        lambda pod, at: _can_use(pod, new[home[pod.full_name]], new[at]),
    )


def _can_use(pod: Pod, planned: PlannedNode, node: PlannedNode) -> bool:
    """Nodes like the planned one; only a pod with no wishes about where it runs goes to any zone."""
    spec = pod.spec
    free = not (spec.topology_spread_constraints or spec.affinity or spec.node_selector)
    return node.pool == planned.pool and (free or node.requirements[ZONE] == planned.requirements[ZONE])


AHEAD = "ahead"
LATELY = timedelta(hours=2)
# A spot node is exchanged for another only where so many cheaper types would do.
SPOT_FLEXIBILITY = 15
_LESS = 1 - 1e-9


def add_headroom(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, with larger nodes where growth is to be expected and the pool asks for room."""
    growing = {p.name: p.nodepool for p in snapshot.pools if _wants_headroom(p.nodepool)}
    if not any(node.pool in growing for node in plan.new_nodes):
        return plan
    waiting = {pod.full_name: pod for pod in snapshot.pods}
    young = [state for state in snapshot.nodes if _is_recent_node(state, snapshot.options.now)]
    nodes = tuple(
        _enlarge_node(snapshot, growing[node.pool], node, [waiting[name] for name in node.pods], young)
        if node.pool in growing and all(name in waiting for name in node.pods)
        else node
        for node in plan.new_nodes
    )
    return replace(plan, new_nodes=nodes)


def _wants_headroom(pool: NodePool) -> bool:
    return pool.annotations.get(labels.GROWTH) == AHEAD


def _is_recent_node(state: StateNode, now: datetime) -> bool:
    born = state.claim.metadata.creation_timestamp if state.claim is not None else None
    return born is not None and now - born < LATELY and not views.is_deleting(state)


def _enlarge_node(
    snapshot: Snapshot, pool: NodePool, node: PlannedNode, pods: Sequence[Pod], young: Sequence[StateNode]
) -> PlannedNode:
    if not (_survives_consolidation(pool, node) and all(map(_can_share_node, pods))):
        return node
    coming = min(_count_arrivals(pod, node, young) for pod in pods)
    if not coming:
        return node
    catalog = next(snapshot.list_types(each) for each in snapshot.pools if each.name == node.pool)
    known = {each.name: each for each in catalog}
    kept = _keep_cheapest_per_pod(
        snapshot, node, [known[name] for name in node.instance_types], pods, 1 + coming
    )
    best = find_cheapest_offering(kept[0], node.requirements, snapshot.options.flavour.well_known)
    if best is None or len(kept) == len(node.instance_types):
        return node
    names = tuple(each.name for each in kept)
    return replace(node, instance_types=names, instance_type=names[0], **describe_purchase(best))


def _keep_cheapest_per_pod(
    snapshot: Snapshot, node: PlannedNode, types: Sequence[InstanceType], pods: Sequence[Pod], most: int
) -> list[InstanceType]:
    """The types with room for as many times these pods, up to `most`, as makes one time cheapest."""
    undefined = snapshot.options.flavour.well_known
    wanted: Nano = {}
    for pod in pods:
        wanted = add_resources(wanted, compute_nano_requests(pod))
    daemons = subtract_resources(convert_to_nano(node.requests), wanted)
    holds = [_count_times(each, wanted, daemons) for each in types]
    times, least = 1, node.price
    for number in range(2, most + 1):
        at = next((i for i, held in enumerate(holds[:SPOT_FLEXIBILITY]) if held >= number), None)
        offering = find_cheapest_offering(types[at], node.requirements, undefined) if at is not None else None
        if offering is None or offering.capacity_type != node.capacity_type:
            break
        if offering.price / number < least * _LESS:
            times, least = number, offering.price / number
    return [each for each, held in zip(types, holds, strict=True) if held >= times or times == 1]


def _count_times(each: InstanceType, wanted: Mapping[str, int], daemons: Nano) -> int:
    room = subtract_resources(convert_to_nano(each.allocatable()), daemons)
    return min((room.get(name, 0) // amount for name, amount in wanted.items() if amount), default=1)


def _survives_consolidation(pool: NodePool, node: PlannedNode) -> bool:
    """Whether consolidation would leave the node as it is, though a smaller one would do for now."""
    if node.requirements.has_min_values or node.reservations:
        return False
    disruption = pool.spec.disruption
    kept = disruption.consolidate_after == durations.NEVER or disruption.consolidation_policy == "WhenEmpty"
    return kept or node.capacity_type == labels.SPOT


def _can_share_node(pod: Pod) -> bool:
    """Whether more of its kind may share its node."""
    hosts = (each.topology_key for each in pod.spec.topology_spread_constraints)
    return (
        pod.metadata.controller is not None
        and not required_anti_affinity(pod)
        and not list_host_ports(pod)
        and labels.HOSTNAME not in hosts
    )


def _count_arrivals(pod: Pod, node: PlannedNode, young: Sequence[StateNode]) -> int:
    """How often pods of the same owner came lately and are on new nodes such as this one.

    Moments are counted, not pods: those of one burst say nothing about another.
    """
    owner, zones = pod.metadata.controller, node.requirements[labels.ZONE]
    return len(
        {
            other.metadata.creation_timestamp
            for state in young
            if views.read_pool_name(state) == node.pool
            and views.read_labels(state).get(labels.ZONE, "") in zones
            for other in state.pods
            if other.metadata.controller == owner
        }
    )


RUNNING = PodStatus(phase="Running")


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Every planned node as its cheapest offering would make it. Pods without a place still wait."""
    pods = {pod.full_name: pod for pod in (*snapshot.pods, *snapshot.moving)}
    joined = {
        name: tuple(_bind_pod(pods[pod], name) for pod in taken if pod in pods)
        for name, taken in plan.existing.items()
    }
    placed = {pod for taken in plan.existing.values() for pod in taken}
    placed |= {pod for node in plan.new_nodes for pod in node.pods}
    pools = {pool.name: pool for pool in snapshot.pools}
    stay = (
        # A node that nothing joins stays the very same: what is known of it goes by that.
        replace(state, pods=state.pods + more) if (more := joined.get(state_node.read_name(state))) else state
        for state in snapshot.nodes
        if not state_node.is_deleting(state)
    )
    come = (_build_node(snapshot, pools[node.pool], node, pods) for node in plan.new_nodes)
    waiting = tuple(pod for pod in snapshot.pods if pod.full_name not in placed)
    return replace(snapshot, nodes=(*stay, *come), pods=waiting, moving=(), virtual=())


def _build_node(
    snapshot: Snapshot, pool: SnapshotPool, node: PlannedNode, pods: Mapping[str, Pod]
) -> StateNode:
    chosen = next(each for each in snapshot.list_types(pool) if each.name == node.instance_type)
    both = chosen.requirements & node.requirements
    known = {key: only for key in both if (only := both[key].only) is not None}
    known |= build_pool_labels(pool.nodepool)
    known |= {
        labels.HOSTNAME: node.name,
        labels.INSTANCE_TYPE: node.instance_type,
        labels.ZONE: node.zone,
        labels.CAPACITY_TYPE: node.capacity_type,
    }
    made = Node(
        metadata=ObjectMeta(name=node.name, labels=known),
        spec=NodeSpec(provider_id=node.name, taints=pool.nodepool.spec.template.spec.taints),
        status=NodeStatus(capacity=chosen.capacity, allocatable=chosen.allocatable()),
    )
    return StateNode(
        node=made, pods=tuple(_bind_pod(pods[pod], node.name) for pod in node.pods if pod in pods)
    )


def _bind_pod(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node, status=RUNNING)
