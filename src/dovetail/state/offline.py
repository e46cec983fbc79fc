"""A world from manifests instead of watches: what files say about pools, nodes and pods, as one Snapshot.

A workload counts as the pods it would make, unless its pods are in the files themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from dovetail.api import codec, core, predicates
from dovetail.api.conditions import READY
from dovetail.api.core import Node
from dovetail.api.meta import Condition, Object, ObjectMeta, OwnerReference
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod, PodTemplate
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.daemons import representative
from dovetail.scheduling.snapshot import Options, Snapshot, StateNode, Storage, pools_and_catalogs

__all__ = ["KINDS", "Offline"]

T = TypeVar("T", bound=Object)

KINDS: Mapping[tuple[str, str], type[Object]] = {
    (kind.KIND.api_version, kind.KIND.kind): kind
    for kind in (
        Pod,
        Node,
        NodeClaim,
        NodePool,
        core.Deployment,
        core.ReplicaSet,
        core.StatefulSet,
        core.DaemonSet,
        core.Job,
        core.CronJob,
        core.Namespace,
        core.Service,
        core.PodDisruptionBudget,
        core.PersistentVolume,
        core.PersistentVolumeClaim,
        core.StorageClass,
        core.CSINode,
    )
}
READY_NOW = Condition(type=READY, status="True")


@dataclass
class Offline:
    """Records by kind, collected file by file."""

    found: dict[type[Object], list[Any]] = field(default_factory=dict)
    table: codec.Interner = field(default_factory=codec.Interner)

    def add(self, api_version: str, kind: str, document: Mapping[str, Any] | bytes) -> bool:
        """Take one object in; false when its kind does not matter to a plan."""
        record = KINDS.get((api_version, kind))
        if record is None:
            return False
        if isinstance(document, bytes):
            self.found.setdefault(record, []).append(codec.decode(record, document, self.table))
        else:
            self.found.setdefault(record, []).append(codec.convert(record, document, self.table))
        return True

    def all(self, kind: type[T]) -> list[T]:
        found: list[T] = self.found.get(kind, [])
        return found

    def replace_pools(self, pools: Iterable[NodePool]) -> Offline:
        """The same world with these pools in place of their namesakes, or added."""
        changed = {pool.name: pool for pool in self.all(NodePool)} | {pool.name: pool for pool in pools}
        return Offline({**self.found, NodePool: list(changed.values())}, self.table)

    def snapshot(self, types: Sequence[InstanceType], options: Options) -> Snapshot:
        """Everything collected, as the controllers would have seen it."""
        pools, catalogs = pools_and_catalogs((pool, types) for pool in self._pools())
        everyone = [_named(pod) for pod in (*self.all(Pod), *self._made())]
        waiting = [p for p in everyone if not p.node_name and not predicates.terminal(p)]
        return Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=self._nodes(everyone),
            pods=tuple(p for p in waiting if not predicates.owned_by_daemonset(p)),
            daemons=tuple(representative(each, None) for each in self.all(core.DaemonSet)),
            namespaces=self._namespaces(everyone),
            storage=self._storage(),
            budgets=tuple(self.all(core.PodDisruptionBudget)),
            services=tuple(self.all(core.Service)),
            options=options,
        )

    def _pools(self) -> list[NodePool]:
        """The pools in their order of preference; one that says nothing about readiness is ready."""
        ready = [_assumed_ready(pool) for pool in self.all(NodePool) if not pool.static]
        ready.sort(key=lambda pool: pool.name, reverse=True)
        return sorted(ready, key=lambda pool: pool.spec.weight or 0, reverse=True)

    def _nodes(self, pods: Iterable[Pod]) -> tuple[StateNode, ...]:
        bound: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.node_name and not predicates.terminal(pod):
                bound.setdefault(pod.node_name, []).append(pod)
        claims = {
            claim.status.provider_id: claim for claim in self.all(NodeClaim) if claim.status.provider_id
        }
        by_name = {claim.status.node_name or claim.name: claim for claim in self.all(NodeClaim)}
        limits = {each.name: _volume_limits(each) for each in self.all(core.CSINode)}
        return tuple(
            StateNode(
                node=node,
                claim=claims.get(node.spec.provider_id) or by_name.get(node.name),
                pods=tuple(bound.get(node.name, ())),
                volume_limits=limits.get(node.name, {}),
            )
            for node in self.all(Node)
        )

    def _namespaces(self, pods: Iterable[Pod]) -> dict[str, Mapping[str, str]]:
        named = {pod.namespace: {"kubernetes.io/metadata.name": pod.namespace} for pod in pods}
        return {**named, **{each.name: each.labels for each in self.all(core.Namespace)}}

    def _storage(self) -> Storage:
        return Storage(
            claims={_named(claim).full_name: claim for claim in self.all(core.PersistentVolumeClaim)},
            volumes={volume.name: volume for volume in self.all(core.PersistentVolume)},
            classes={each.name: each for each in self.all(core.StorageClass)},
        )

    def _made(self) -> Iterator[Pod]:
        """The pods workloads would make, for those whose pods are not in the files."""
        owners = {owner.uid or owner.name for pod in self.all(Pod) for owner in pod.metadata.owner_references}
        owners |= {o.uid or o.name for rs in self.all(core.ReplicaSet) for o in rs.metadata.owner_references}
        for workload, count, template in self._workloads():
            if workload.uid not in owners and workload.name not in owners:
                yield from _pods_of(workload, count, template)

    def _workloads(self) -> Iterator[tuple[Object, int, PodTemplate]]:
        for kind in (core.Deployment, core.ReplicaSet, core.StatefulSet):
            for each in self.all(kind):
                count = each.spec.replicas
                yield each, 1 if count is None else count, each.spec.template
        for job in self.all(core.Job):
            yield job, job.spec.parallelism or 1, job.spec.template
        for cron in self.all(core.CronJob):
            inner = cron.spec.job_template.spec
            yield cron, inner.parallelism or 1, inner.template


def _pods_of(workload: Object, count: int, template: PodTemplate) -> Iterator[Pod]:
    owner = OwnerReference(
        api_version=workload.KIND.api_version,
        kind=workload.KIND.kind,
        name=workload.name,
        uid=workload.uid,
        controller=True,
    )
    for number in range(count):
        metadata = ObjectMeta(
            name=f"{workload.name}-{number}",
            namespace=workload.namespace or "default",
            uid=f"{workload.namespace or 'default'}/{workload.name}-{number}",
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        yield Pod(metadata=metadata, spec=template.spec)


def _named(obj: T) -> T:
    """Manifests leave the default namespace out, and nobody gives a uid by hand."""
    meta = obj.metadata
    if meta.namespace and meta.uid:
        return obj
    namespace = meta.namespace or "default"
    metadata = replace(meta, namespace=namespace, uid=meta.uid or f"{namespace}/{meta.name}")
    changed: T = replace(obj, metadata=metadata)
    return changed


def _assumed_ready(pool: NodePool) -> NodePool:
    if any(condition.type == READY for condition in pool.status.conditions):
        return pool
    return replace(pool, status=replace(pool.status, conditions=(*pool.status.conditions, READY_NOW)))


def _volume_limits(csi_node: core.CSINode) -> dict[str, int]:
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
