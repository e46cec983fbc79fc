"""A world from manifests instead of watches: what files say about pools, nodes and pods, as one Snapshot.

A workload counts as the pods it would make, unless its pods are in the files themselves. Of two objects
with one name the later counts, as if the files had been applied in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, TypeVar

from msgspec.structs import replace

from dovetail.api import codec, core, nodeclass, predicates
from dovetail.api.bad_items import reason_of
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.commitment import Commitment
from dovetail.api.core import Node
from dovetail.api.hashes import hash_nodeclass
from dovetail.api.labels import NAMESPACE_NAME
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.errors import BadInput
from dovetail.scheduling.model.capacity_buffers import build_virtual_pods, count_buffer_replicas
from dovetail.scheduling.model.daemonsets import build_daemon_pods
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.limit_ranges import apply_limit_ranges
from dovetail.scheduling.model.node_overlays import OverlaidTypes, apply_overlays
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    Storage,
    build_pools_and_catalogs,
)
from dovetail.state.changed_pods import (
    MOST_PODS,
    PENDING,
    DeletedObject,
    WorldChange,
    check_pod_count,
    read_volume_limits,
)
from dovetail.state.changed_pools import assume_ready, sort_pools
from dovetail.state.changed_workloads import scale_workload
from dovetail.state.workload_pods import (
    PodWorkload,
    admit_pod,
    build_pods,
    check_amounts,
    fill_metadata,
    list_owners,
    read_workload,
)

__all__ = ["KINDS", "MOST_PODS", "OfflineCluster", "find_kind"]

T = TypeVar("T", bound=Object)
Offer = tuple[NodePool, Sequence[InstanceType]]
TypesFor = Callable[[NodePool], Sequence[InstanceType]]

KINDS: Mapping[tuple[str, str], type[Object]] = {
    (kind.KIND.api_version, kind.KIND.kind): kind
    for kind in (
        Pod,
        Node,
        NodeClaim,
        NodePool,
        NodeOverlay,
        CapacityBuffer,
        core.PodTemplateObject,
        nodeclass.EC2NodeClass,
        nodeclass.KWOKNodeClass,
        core.Deployment,
        core.ReplicaSet,
        core.StatefulSet,
        core.DaemonSet,
        core.Job,
        core.CronJob,
        core.LimitRange,
        core.Namespace,
        core.HorizontalPodAutoscaler,
        core.Service,
        core.PodDisruptionBudget,
        core.PersistentVolume,
        core.PersistentVolumeClaim,
        core.StorageClass,
        core.CSINode,
        Commitment,
        SpendLimit,
        ZoneShift,
    )
} | {("autoscaling/v1", "HorizontalPodAutoscaler"): core.HorizontalPodAutoscaler}
FILES = "these files come"
MAKERS: tuple[type[Object], ...] = (
    core.Deployment,
    core.ReplicaSet,
    core.StatefulSet,
    core.Job,
    core.CronJob,
)


def find_kind(word: str) -> type[Object] | None:
    """The kind that a person means by a word: Deployment, deployments or deployments.apps."""
    wanted = word.lower()
    for kind in KINDS.values():
        if wanted in (kind.KIND.kind.lower(), kind.KIND.plural, kind.KIND.resource):
            return kind
    return None


@dataclass
class OfflineCluster:
    """Records by kind and name, collected file by file."""

    found: dict[type[Object], dict[tuple[str, str], Any]] = field(default_factory=dict)
    unused: Counter[str] = field(default_factory=Counter)
    """Kinds that do not matter to a plan, and how many of each were met."""
    table: codec.Interner = field(default_factory=codec.Interner)

    def add(self, api_version: str, kind: str, document: Mapping[str, Any] | bytes) -> None:
        """Take one object in."""
        record = KINDS.get((api_version, kind))
        if record is None:
            self.unused[kind or "object without a kind"] += 1
            return
        if isinstance(document, bytes):
            made = codec.decode(record, document, self.table)
        else:
            made = codec.convert(record, document, self.table)
        if why := reason_of(made):
            raise BadInput(f"{kind} {made.name} makes no sense: {why}")
        check_amounts(made)
        records = self.found.setdefault(record, {})
        made = fill_metadata(made, len(records))
        records[made.namespace, made.name] = made

    def list_objects(self, kind: type[T]) -> list[T]:
        return list(self.found.get(kind, {}).values())

    def build_change(self, deleted: Iterable[DeletedObject] = ()) -> WorldChange:
        """Everything collected, as a change of some other world."""
        return WorldChange(
            tuple(each for records in self.found.values() for each in records.values()), tuple(deleted)
        )

    def merge_objects(self, changed: OfflineCluster, deleted: Iterable[DeletedObject]) -> OfflineCluster:
        """The same world with these objects in place of their namesakes, or added, and those named gone."""
        merged = {kind: dict(records) for kind, records in self.found.items()}
        for kind, records in changed.found.items():
            merged.setdefault(kind, {}).update(records)
        for each in deleted:
            merged.get(each.kind, {}).pop((each.namespace, each.name), None)
        return OfflineCluster(merged, self.unused, self.table)

    def list_class_hashes(self) -> dict[str, str]:
        """The hashes of the EC2NodeClasses, by name."""
        return {each.name: hash_nodeclass(each, None) for each in self.list_objects(nodeclass.EC2NodeClass)}

    def list_offers(self, types_for: TypesFor, options: SchedulingOptions) -> list[Offer]:
        """Every NodePool with what it may buy, NodeOverlays in force."""
        return list(self._apply_overlays(self._list_offers(types_for), options))

    def build_snapshot(self, types_for: TypesFor, options: SchedulingOptions) -> Snapshot:
        """Everything collected, as the controllers would have seen it."""
        ranges = self.list_objects(core.LimitRange)
        everyone = [
            *(admit_pod(pod, ranges) for pod in self.list_objects(Pod)),
            *self._build_workload_pods(),
        ]
        pools, catalogs = build_pools_and_catalogs(self.list_offers(types_for, options))
        daemons, bad = build_daemon_pods(((each, None) for each in self.list_objects(core.DaemonSet)), ranges)
        return Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=self._build_nodes(everyone),
            pods=tuple(_mark_unschedulable(pod) for pod in everyone if _is_pending(pod)),
            virtual=tuple(self._build_virtual_pods()),
            daemons=daemons,
            namespaces=self._build_namespaces(everyone),
            storage=self._build_storage(),
            budgets=tuple(self.list_objects(core.PodDisruptionBudget)),
            services=tuple(self.list_objects(core.Service)),
            options=options,
            set_aside=bad,
        )

    def list_remarks(self, types_for: TypesFor, options: SchedulingOptions) -> Iterator[str]:
        """What a person should know about how the files were read."""
        if self.unused:
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.unused.items()))
            yield f"kinds that do not matter to a plan were left out: {listed}"
        gated = sum(1 for pod in self.list_objects(Pod) if _is_pending(pod) and pod.spec.scheduling_gates)
        if gated:
            yield f"pods with a scheduling gate were left out: {gated}"
        known = {node.name for node in self.list_objects(Node)}
        lost = sum(1 for pod in self.list_objects(Pod) if pod.node_name and pod.node_name not in known)
        if lost:
            yield f"pods that run on nodes which are not in the files were left out: {lost}"
        nominated = sum(
            1 for pod in self.list_objects(Pod) if _is_pending(pod) and pod.status.nominated_node_name
        )
        if nominated:
            yield f"pods that a scheduler has already nominated to a node were left out: {nominated}"
        static = sorted(pool.name for pool in self.list_objects(NodePool) if pool.static)
        if static:
            yield f"static pools take no part in planning: {', '.join(static)}"
        lost_buffers = sorted(
            each.name
            for each in self.list_objects(CapacityBuffer)
            if self._find_buffer_workload(each) is None
        )
        if lost_buffers:
            yield f"buffers whose template is not in the files were left out: {', '.join(lost_buffers)}"
        yield from self.list_overlay_remarks(types_for, options)

    def list_overlay_remarks(self, types_for: TypesFor, options: SchedulingOptions) -> Iterator[str]:
        """Which NodeOverlays are not in force, and why."""
        for judgement in self._evaluate_overlays(self._list_offers(types_for), options).statuses:
            if not judgement.valid:
                yield f"NodeOverlay {judgement.overlay} is not in force: {judgement.message}"

    def _list_offers(self, types_for: TypesFor) -> list[Offer]:
        return [(pool, types_for(pool)) for pool in self._list_pools()]

    def _evaluate_overlays(self, offers: Sequence[Offer], options: SchedulingOptions) -> OverlaidTypes:
        overlays = self.list_objects(NodeOverlay)
        return apply_overlays(offers if overlays else (), overlays, options.flavour)

    def _apply_overlays(self, offers: Sequence[Offer], options: SchedulingOptions) -> Iterator[Offer]:
        types = self._evaluate_overlays(offers, options).types
        return ((pool, types.get(pool.name, listed)) for pool, listed in offers)

    def _list_pools(self) -> list[NodePool]:
        """The pools in their order of preference; one that says nothing about readiness is ready."""
        return sort_pools(assume_ready(pool) for pool in self.list_objects(NodePool))

    def _build_nodes(self, pods: Iterable[Pod]) -> tuple[StateNode, ...]:
        bound: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.node_name and not predicates.is_terminal(pod):
                bound.setdefault(pod.node_name, []).append(pod)
        limits = {each.name: read_volume_limits(each) for each in self.list_objects(core.CSINode)}
        claims = {_read_machine_key(claim): claim for claim in self.list_objects(NodeClaim)}
        states = []
        for node in self.list_objects(Node):
            claim = claims.pop(node.spec.provider_id, None) or claims.pop(f"name:{node.name}", None)
            states.append(
                StateNode(
                    node=node,
                    claim=claim,
                    pods=tuple(bound.get(node.name, ())),
                    volume_limits=limits.get(node.name, {}),
                )
            )
        # What is left was ordered and has not joined yet.
        return (*states, *(StateNode(claim=claim) for claim in claims.values()))

    def _build_namespaces(self, pods: Iterable[Pod]) -> dict[str, Mapping[str, str]]:
        named = {pod.namespace: {NAMESPACE_NAME: pod.namespace} for pod in pods}
        return {**named, **{each.name: each.labels for each in self.list_objects(core.Namespace)}}

    def _build_storage(self) -> Storage:
        return Storage(
            claims={claim.full_name: claim for claim in self.list_objects(core.PersistentVolumeClaim)},
            volumes={volume.name: volume for volume in self.list_objects(core.PersistentVolume)},
            classes={each.name: each for each in self.list_objects(core.StorageClass)},
        )

    def _build_virtual_pods(self) -> Iterator[Pod]:
        """The room that buffers keep free, as pods nobody runs."""
        for buffer in self.list_objects(CapacityBuffer):
            like = self._find_buffer_workload(buffer)
            if like is not None:
                count = count_buffer_replicas(buffer, like.template, like.count)
                check_pod_count(count, FILES)
                yield from build_virtual_pods(buffer, like.template, count)

    def _find_buffer_workload(self, buffer: CapacityBuffer) -> PodWorkload | None:
        """What the pods of a buffer are like: a template, or those of a workload."""
        named, scaled = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
        if named is not None:
            found = self.found.get(core.PodTemplateObject, {}).get((buffer.namespace, named.name))
            return None if found is None else PodWorkload(found, 1, found.template)
        if scaled is None:
            return None
        known = (
            each for kind in MAKERS for each in self.list_objects(kind) if each.namespace == buffer.namespace
        )
        owner = next((o for o in known if (o.KIND.kind, o.name) == (scaled.kind, scaled.name)), None)
        return None if owner is None else read_workload(owner)

    def _find_scaler(self, workload: PodWorkload) -> core.HorizontalPodAutoscaler | None:
        kind, namespace, name = workload.identity
        for each in self.list_objects(core.HorizontalPodAutoscaler):
            target = each.spec.scale_target_ref
            if (target.kind, each.namespace, target.name) == (kind, namespace, name):
                return each
        return None

    def _build_workload_pods(self) -> Iterator[Pod]:
        """The pods workloads would make, for those whose pods are not in the files."""
        owners = list_owners(
            (*self.list_objects(Pod), *self.list_objects(core.ReplicaSet), *self.list_objects(core.Job))
        )
        made = [
            scale_workload(found, None, self._find_scaler(found))
            for kind in MAKERS
            for each in self.list_objects(kind)
            if (found := read_workload(each))
        ]
        kept = [each for each in made if each.identity not in owners]
        check_pod_count(sum(each.count for each in kept) + len(self.found.get(Pod, {})), FILES)
        ranges = self.list_objects(core.LimitRange)
        for each in kept:
            spec = apply_limit_ranges(each.template.spec, each.owner.namespace, ranges)
            yield from build_pods(replaced(each, template=replace(each.template, spec=spec)), PENDING)


def _is_pending(pod: Pod) -> bool:
    return (
        not pod.node_name
        and predicates.is_active(pod)
        and not predicates.owned_by_daemonset(pod)
        and not predicates.owned_by_node(pod)
    )


def _mark_unschedulable(pod: Pod) -> Pod:
    """The pod as it would be once a scheduler had found no place for it."""
    if predicates.failed_to_schedule(pod) or pod.spec.scheduling_gates:
        return pod
    return replace(pod, status=replace(pod.status, conditions=PENDING.conditions))


def _read_machine_key(claim: NodeClaim) -> str:
    """What a node is matched with its claim by: the machine or, before there is one, the name."""
    return claim.status.provider_id or f"name:{claim.status.node_name or claim.name}"
