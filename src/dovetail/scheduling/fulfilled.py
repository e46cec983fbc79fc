"""The world once a plan has come true: its nodes run, and its pods are on them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node, NodeSpec, NodeStatus
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod, PodStatus
from dovetail.scheduling import nodes
from dovetail.scheduling.plan import Plan, PlannedNode, pool_labels
from dovetail.scheduling.snapshot import Pool, Snapshot, StateNode

__all__ = ["fulfilled"]

RUNNING = PodStatus(phase="Running")


def fulfilled(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Every planned node as its cheapest offering would make it. Pods without a place still wait."""
    pods = {pod.full_name: pod for pod in (*snapshot.pods, *snapshot.moving)}
    joined = {
        name: tuple(_bound(pods[pod], name) for pod in taken if pod in pods)
        for name, taken in plan.existing.items()
    }
    placed = {pod for taken in plan.existing.values() for pod in taken}
    placed |= {pod for node in plan.new_nodes for pod in node.pods}
    pools = {pool.name: pool for pool in snapshot.pools}
    stay = (
        replace(state, pods=state.pods + joined.get(nodes.name(state), ()))
        for state in snapshot.nodes
        if not nodes.deleting(state)
    )
    come = (_node(snapshot, pools[node.pool], node, pods) for node in plan.new_nodes)
    waiting = tuple(pod for pod in snapshot.pods if pod.full_name not in placed)
    return replace(snapshot, nodes=(*stay, *come), pods=waiting, moving=(), virtual=())


def _node(snapshot: Snapshot, pool: Pool, node: PlannedNode, pods: Mapping[str, Pod]) -> StateNode:
    chosen = next(each for each in snapshot.types(pool) if each.name == node.instance_type)
    both = chosen.requirements & node.requirements
    known = {key: only for key in both if (only := both[key].only) is not None}
    known |= pool_labels(pool.nodepool)
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
    return StateNode(node=made, pods=tuple(_bound(pods[pod], node.name) for pod in node.pods if pod in pods))


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node, status=RUNNING)
