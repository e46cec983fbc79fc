"""Room for those about to come: a pool that grows pod by pod is grown as an array is, not cell by cell.

The cheapest node for one pod is one that holds no second, and a fleet of those costs up to twice what it
needs to. Where a pool asks for it, a node for pods whose kin came one after another and each got a new node
is bought with room for as many again, if a pod then costs less. Only what nobody will exchange for a smaller
one a minute later is bought so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.predicates import required_anti_affinity
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType, cheapest_offering
from dovetail.scheduling.hostports import host_ports
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.resources import Nano, minus, nano, needs, plus
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.settings import durations

__all__ = ["ahead"]

AHEAD = "ahead"
LATELY = timedelta(hours=2)
# A spot node is exchanged for another only where so many cheaper types would do.
SPOT_FLEXIBILITY = 15
_LESS = 1 - 1e-9


def ahead(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, with larger nodes where growth is to be expected and the pool asks for room."""
    growing = {p.name: p.nodepool for p in snapshot.pools if _asked(p.nodepool)}
    if not any(node.pool in growing for node in plan.new_nodes):
        return plan
    waiting = {pod.full_name: pod for pod in snapshot.pods}
    young = [state for state in snapshot.nodes if _young(state, snapshot.options.now)]
    nodes = tuple(
        _roomy(snapshot, growing[node.pool], node, [waiting[name] for name in node.pods], young)
        if node.pool in growing and all(name in waiting for name in node.pods)
        else node
        for node in plan.new_nodes
    )
    return replace(plan, new_nodes=nodes)


def _asked(pool: NodePool) -> bool:
    return pool.annotations.get(labels.GROWTH) == AHEAD


def _young(state: StateNode, now: datetime) -> bool:
    born = state.claim.metadata.creation_timestamp if state.claim is not None else None
    return born is not None and now - born < LATELY and not views.deleting(state)


def _roomy(
    snapshot: Snapshot, pool: NodePool, node: PlannedNode, pods: Sequence[Pod], young: Sequence[StateNode]
) -> PlannedNode:
    if not (_stays(pool, node) and all(map(_sociable, pods))):
        return node
    coming = min(_arrivals(pod, node, young) for pod in pods)
    if not coming:
        return node
    catalog = next(snapshot.types(each) for each in snapshot.pools if each.name == node.pool)
    known = {each.name: each for each in catalog}
    kept = _cheapest_full(snapshot, node, [known[name] for name in node.instance_types], pods, 1 + coming)
    best = cheapest_offering(kept[0], node.requirements, snapshot.options.flavour.well_known)
    if best is None or len(kept) == len(node.instance_types):
        return node
    bought = {"zone": best.zone, "capacity_type": best.capacity_type, "price": best.price}
    names = tuple(each.name for each in kept)
    return replace(node, instance_types=names, instance_type=names[0], **bought)


def _cheapest_full(
    snapshot: Snapshot, node: PlannedNode, types: Sequence[InstanceType], pods: Sequence[Pod], most: int
) -> list[InstanceType]:
    """The types with room for as many times these pods, up to `most`, as makes one time cheapest."""
    undefined = snapshot.options.flavour.well_known
    wanted: Nano = {}
    for pod in pods:
        wanted = plus(wanted, needs(pod))
    daemons = minus(nano(node.requests), wanted)
    holds = [_times(each, wanted, daemons) for each in types]
    times, least = 1, node.price
    for number in range(2, most + 1):
        at = next((i for i, held in enumerate(holds[:SPOT_FLEXIBILITY]) if held >= number), None)
        offering = cheapest_offering(types[at], node.requirements, undefined) if at is not None else None
        if offering is None or offering.capacity_type != node.capacity_type:
            break
        if offering.price / number < least * _LESS:
            times, least = number, offering.price / number
    return [each for each, held in zip(types, holds, strict=True) if held >= times or times == 1]


def _times(each: InstanceType, wanted: Mapping[str, int], daemons: Nano) -> int:
    room = minus(nano(each.allocatable()), daemons)
    return min((room.get(name, 0) // amount for name, amount in wanted.items() if amount), default=1)


def _stays(pool: NodePool, node: PlannedNode) -> bool:
    """Whether consolidation would leave the node as it is, though a smaller one would do for now."""
    if node.requirements.has_min_values or node.reservations:
        return False
    disruption = pool.spec.disruption
    kept = disruption.consolidate_after == durations.NEVER or disruption.consolidation_policy == "WhenEmpty"
    return kept or node.capacity_type == labels.SPOT


def _sociable(pod: Pod) -> bool:
    """Whether more of its kind may share its node."""
    hosts = (each.topology_key for each in pod.spec.topology_spread_constraints)
    return (
        pod.metadata.controller is not None
        and not required_anti_affinity(pod)
        and not host_ports(pod)
        and labels.HOSTNAME not in hosts
    )


def _arrivals(pod: Pod, node: PlannedNode, young: Sequence[StateNode]) -> int:
    """How often pods of the same owner came lately and are on new nodes such as this one.

    Moments are counted, not pods: those of one burst say nothing about another.
    """
    owner, zones = pod.metadata.controller, node.requirements[labels.ZONE]
    return len(
        {
            other.metadata.creation_timestamp
            for state in young
            if views.pool(state) == node.pool and views.labels(state).get(labels.ZONE, "") in zones
            for other in state.pods
            if other.metadata.controller == owner
        }
    )
