"""A world and some objects give another world: what a cluster would be with these applied.

The world is a Snapshot, whether it came from files, a cluster, a snapshot's file or a recording. Objects
replace their namesakes, new ones are added, and named ones are deleted. A workload counts by its pods.
Nothing is planned here; which nodes drift is told beside the new world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from msgspec.structs import replace

from dovetail.api import core, labels
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.commitment import Commitment
from dovetail.api.hashes import hash_nodeclass
from dovetail.api.meta import Object
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod, PodTemplate
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.errors import BadInput, shorten_text
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.capacity_buffers import build_virtual_pods, count_buffer_replicas
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.snapshot import (
    Snapshot,
    StateNode,
    Storage,
)
from dovetail.state.changed_pods import ChangedPods, WorldChange
from dovetail.state.changed_pools import KnownWorld, change_pools
from dovetail.state.changed_workloads import WorkloadChange
from dovetail.state.nodepool_change import DriftForecast, forecast_drift, mark_drift

__all__ = ["SnapshotChange", "apply_change", "drain_nodes"]

T = TypeVar("T", bound=Object)
DELETED_POOL = "its NodePool is deleted"


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """The world after a change, and what the change does to nodes and workloads.

    In `after` nothing has drained yet: nodes that drift have the condition, and those in `leaving` are
    deleted. `peak` is the world with the old pods of rollouts beside the new ones; None without a rollout.
    """

    before: Snapshot
    after: Snapshot
    drifts: tuple[DriftForecast, ...] = ()
    workloads: tuple[WorkloadChange, ...] = ()
    leaving: frozenset[str] = frozenset()
    shifts: tuple[ZoneShift, ...] = ()
    # SpendLimits of the change, and the names of those that it deletes.
    spend_limits: tuple[SpendLimit, ...] = ()
    deleted_limits: frozenset[str] = frozenset()
    # Commitments of the change, and the names of those that it deletes.
    commitments: tuple[Commitment, ...] = ()
    deleted_commitments: frozenset[str] = frozenset()
    peak: Snapshot | None = None
    remarks: tuple[str, ...] = ()


def apply_change(snapshot: Snapshot, change: WorldChange, known: KnownWorld | None = None) -> SnapshotChange:
    """The world with the change applied. BadInput where something is to be deleted that is not there."""
    known = known or KnownWorld()
    remarks: list[str] = []
    pools, catalogs = change_pools(snapshot, change, known, remarks)
    pods = ChangedPods(snapshot, change, known.ranges)
    after = replace(
        snapshot,
        pools=pools,
        catalogs=catalogs,
        nodes=pods.nodes,
        pods=pods.pending,
        moving=pods.moving,
        daemons=pods.daemons,
        virtual=_change_buffers(snapshot, change, pods, remarks),
        namespaces=_change_namespaces(snapshot, change, pods),
        storage=_change_storage(snapshot, change),
        budgets=pods.budgets,
        services=_replace_namesakes(snapshot.services, change, core.Service),
    )
    _check_deleted(snapshot, change, pods, remarks)
    gone = {name for _, name in change.list_deleted(NodePool)}
    drifts = _forecast_all(snapshot, after, change, known, remarks)
    after = replace(after, nodes=_mark_drifted(snapshot, after, drifts))
    leaving = pods.leaving | {
        state_node.read_name(each)
        for each in after.nodes
        if each.claim is not None and state_node.read_pool_name(each) in gone
    }
    peak = replace(after, nodes=pods.nodes_at_peak, pods=pods.pending_at_peak) if pods.has_rollout else None
    return SnapshotChange(
        snapshot,
        after,
        drifts,
        tuple(pods.workloads),
        frozenset(leaving),
        tuple(change.list_objects(ZoneShift)),
        tuple(change.list_objects(SpendLimit)),
        frozenset(name for _, name in change.list_deleted(SpendLimit)),
        tuple(change.list_objects(Commitment)),
        frozenset(name for _, name in change.list_deleted(Commitment)),
        peak,
        (*remarks, *pods.remarks),
    )


# What drifts


def _forecast_all(
    before: Snapshot, after: Snapshot, change: WorldChange, known: KnownWorld, remarks: list[str]
) -> tuple[DriftForecast, ...]:
    changed = set()
    for each in change.list_objects(EC2NodeClass):
        old = known.class_hashes.get(each.name)
        if old is not None and old != hash_nodeclass(each, None):
            changed.add(each.name)
        if _uses_class(after, each.name):
            told = (
                "nodes that drift for these are not counted" if old is not None else "its drift is not known"
            )
            remarks.append(
                f"images, subnets and security groups that EC2NodeClass {each.name} selects are not looked "
                f"up: {told}"
            )
    return forecast_drift(
        after.nodes,
        {pool.name: pool.nodepool for pool in before.pools},
        {pool.name: pool.nodepool for pool in after.pools},
        after.options.now,
        frozenset(changed),
    )


def _uses_class(snapshot: Snapshot, name: str) -> bool:
    claims = (state.claim for state in snapshot.nodes if state.claim is not None)
    return any(claim.spec.node_class_ref.name == name for claim in claims)


def _mark_drifted(
    before: Snapshot, after: Snapshot, drifts: Iterable[DriftForecast]
) -> tuple[StateNode, ...]:
    by_node = {each.node: each for each in drifts}
    old = {pool.name: pool.nodepool for pool in before.pools}
    new = {pool.name: pool.nodepool for pool in after.pools}
    if old == new and not by_node:
        return after.nodes
    return tuple(
        mark_drift(
            state,
            by_node.get(state_node.read_name(state)),
            old.get(state_node.read_pool_name(state)),
            new.get(state_node.read_pool_name(state)),
            after.options.now,
        )
        for state in after.nodes
    )


# Other objects


def _replace_namesakes(there: Iterable[T], change: WorldChange, kind: type[T]) -> tuple[T, ...]:
    named = {(each.namespace, each.name): each for each in there}
    named |= {(each.namespace, each.name): each for each in change.list_objects(kind)}
    gone = change.list_deleted(kind)
    return tuple(each for key, each in named.items() if key not in gone)


def _change_namespaces(
    snapshot: Snapshot, change: WorldChange, pods: ChangedPods
) -> Mapping[str, Mapping[str, str]]:
    made = {pod.namespace for each in pods.workloads for pod in each.coming}
    named = {name: {labels.NAMESPACE_NAME: name} for name in made if name not in snapshot.namespaces}
    said = {
        each.name: {labels.NAMESPACE_NAME: each.name, **each.labels}
        for each in change.list_objects(core.Namespace)
    }
    return {**snapshot.namespaces, **named, **said} if named or said else snapshot.namespaces


def _change_storage(snapshot: Snapshot, change: WorldChange) -> Storage:
    there = snapshot.storage
    kinds = core.PersistentVolumeClaim, core.PersistentVolume, core.StorageClass
    if not any(isinstance(each, kinds) for each in change.objects) and not any(
        each.kind in kinds for each in change.deleted
    ):
        return there
    claims, volumes, classes = kinds
    return Storage(
        claims={each.full_name: each for each in _replace_namesakes(there.claims.values(), change, claims)},
        volumes={each.name: each for each in _replace_namesakes(there.volumes.values(), change, volumes)},
        classes={each.name: each for each in _replace_namesakes(there.classes.values(), change, classes)},
    )


def _change_buffers(
    snapshot: Snapshot, change: WorldChange, pods: ChangedPods, remarks: list[str]
) -> tuple[Pod, ...]:
    """The room that buffers keep free, as pods nobody runs."""
    buffers = change.list_objects(CapacityBuffer)
    gone = change.list_deleted(CapacityBuffer) | {(each.namespace, each.name) for each in buffers}
    if not gone:
        return snapshot.virtual
    kept = [pod for pod in snapshot.virtual if _find_buffer(pod) not in gone]
    templates = {
        (each.namespace, each.name): each.template for each in change.list_objects(core.PodTemplateObject)
    }
    for buffer in buffers:
        named, scaled = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
        template, count = (templates.get((buffer.namespace, named.name)), None) if named else (None, None)
        if scaled is not None:
            template, count = pods.find_template(scaled.kind, buffer.namespace, scaled.name)
        if template is None:
            like = next(
                (p for p in snapshot.virtual if _find_buffer(p) == (buffer.namespace, buffer.name)), None
            )
            template = None if like is None else PodTemplate(metadata=like.metadata, spec=like.spec)
        if template is None:
            remarks.append(f"CapacityBuffer {buffer.full_name} was left out: its template is not known here")
            continue
        kept += build_virtual_pods(buffer, template, count_buffer_replicas(buffer, template, count))
    return tuple(kept)


def _find_buffer(pod: Pod) -> tuple[str, str]:
    return pod.annotations.get(labels.BUFFER_NAMESPACE, ""), pod.annotations.get(labels.BUFFER_NAME, "")


def _check_deleted(snapshot: Snapshot, change: WorldChange, pods: ChangedPods, remarks: list[str]) -> None:
    """BadInput where something is to go that is not there, with the nearest name, or is applied as well."""
    applied = {(type(each), each.namespace, each.name) for each in change.objects}
    for each in change.deleted:
        if (each.kind, each.namespace, each.name) in applied:
            raise BadInput(f"{each} is to be deleted and is in the change as well; leave one out")
        there = _list_names(snapshot, each.kind, pods)
        key = f"{each.namespace}/{each.name}" if each.namespace else each.name
        if there is not None and key not in there and change.missing_ok:
            remarks.append(f"{each} is not there, so that nothing changes when it is deleted")
        elif there is not None and key not in there:
            near = get_close_matches(key, there, 1)
            hint = f"; did you mean {shorten_text(near[0])}?" if near else ""
            raise BadInput(f"there is no {each.kind.KIND.kind} {shorten_text(key)} to delete{hint}")


def _list_names(snapshot: Snapshot, kind: type[Object], pods: ChangedPods) -> list[str] | None:
    """The names of the objects of a kind that are there; None where the world does not tell."""
    listed: Mapping[type[Object], Iterable[str]] = {
        NodePool: (each.name for each in snapshot.pools),
        core.Node: (each.node.name for each in snapshot.nodes if each.node is not None),
        core.PodDisruptionBudget: (each.full_name for each in snapshot.budgets),
        core.Service: (each.full_name for each in snapshot.services),
        CapacityBuffer: ("/".join(_find_buffer(pod)) for pod in snapshot.virtual),
        core.PersistentVolumeClaim: snapshot.storage.claims,
        core.PersistentVolume: snapshot.storage.volumes,
        core.StorageClass: snapshot.storage.classes,
    }
    return list(listed[kind]) if kind in listed else pods.list_names(kind)


def drain_nodes(snapshot: Snapshot, names: AbstractSet[str]) -> Snapshot:
    """The world with these nodes on their way out and their pods placed anew, but for those held for good."""
    if not names:
        return snapshot
    limits = PdbLimits(snapshot.budgets, matches_selector)
    nodes, moving = list[StateNode](), list(snapshot.moving)
    there = {pod.full_name for pod in moving}
    for state in snapshot.nodes:
        if state_node.read_name(state) in names and not state_node.is_deleting(state):
            state = replace(state, marked=True)
            moving += [
                pod
                for pod in state.pods
                if pod.full_name not in there and limits.currently_reschedulable(pod, snapshot.options.now)
            ]
        nodes.append(state)
    return replace(snapshot, nodes=tuple(nodes), moving=tuple(moving))
