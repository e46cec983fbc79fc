"""A world from manifests instead of watches: what files say about pools, nodes and pods, as one Snapshot.

A workload counts as the pods it would make, unless its pods are in the files themselves. Of two objects
with one name the later counts, as if the files had been applied in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, TypeVar

from msgspec.structs import replace

from dovetail.api import codec, core, nodeclass, predicates
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.conditions import READY
from dovetail.api.core import Node
from dovetail.api.labels import NAMESPACE_NAME
from dovetail.api.meta import Condition, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Container, Pod, PodSpec, PodStatus
from dovetail.api.quantity import ZERO
from dovetail.api.setaside import reason_of
from dovetail.errors import BadInput
from dovetail.scheduling.buffers import replicas, virtual_pods
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.daemons import representatives
from dovetail.scheduling.limitranges import admitted
from dovetail.scheduling.overlays import Overlaid, overlaid
from dovetail.scheduling.snapshot import Options, Snapshot, StateNode, Storage, pools_and_catalogs
from dovetail.state.workloads import Workload, owners_of, pods_of, workload

__all__ = ["KINDS", "MOST_PODS", "Offline"]

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
        core.Service,
        core.PodDisruptionBudget,
        core.PersistentVolume,
        core.PersistentVolumeClaim,
        core.StorageClass,
        core.CSINode,
    )
}
MAKERS: tuple[type[Object], ...] = (
    core.Deployment,
    core.ReplicaSet,
    core.StatefulSet,
    core.Job,
    core.CronJob,
)
MOST_PODS = 250_000
READY_NOW = Condition(type=READY, status="True")
# Manifests say nothing of what a scheduler thought of them.
WAITING = PodStatus(
    phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),)
)


@dataclass
class Offline:
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
        _check(made)
        shelf = self.found.setdefault(record, {})
        made = _named(made, len(shelf))
        shelf[made.namespace, made.name] = made

    def all(self, kind: type[T]) -> list[T]:
        return list(self.found.get(kind, {}).values())

    def with_pools(self, pools: Iterable[NodePool]) -> Offline:
        """The same world with these pools in place of their namesakes, or added."""
        changed = {**self.found.get(NodePool, {}), **{("", pool.name): pool for pool in pools}}
        return Offline({**self.found, NodePool: changed}, self.unused, self.table)

    def snapshot(
        self, types_for: TypesFor, options: Options, leaving: AbstractSet[str] = frozenset()
    ) -> Snapshot:
        """Everything collected, as the controllers would have seen it; nodes of these names are to go."""
        ranges = self.all(core.LimitRange)
        everyone = [*(_as_created(pod, ranges) for pod in self.all(Pod)), *self._made()]
        pools, catalogs = pools_and_catalogs(self._overlaid(self._offers(types_for), options))
        daemons, bad = representatives(((each, None) for each in self.all(core.DaemonSet)), ranges)
        return Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=self._nodes(everyone, leaving),
            pods=tuple(_told(pod) for pod in everyone if _waits(pod)),
            virtual=tuple(self._virtual()),
            daemons=daemons,
            namespaces=self._namespaces(everyone),
            storage=self._storage(),
            budgets=tuple(self.all(core.PodDisruptionBudget)),
            services=tuple(self.all(core.Service)),
            options=options,
            set_aside=bad,
        )

    def remarks(self, types_for: TypesFor, options: Options) -> Iterator[str]:
        """What a person should know about how the files were read."""
        if self.unused:
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.unused.items()))
            yield f"kinds that do not matter to a plan were left out: {listed}"
        gated = sum(1 for pod in self.all(Pod) if _waits(pod) and pod.spec.scheduling_gates)
        if gated:
            yield f"pods that are held back by a scheduling gate were left out: {gated}"
        known = {node.name for node in self.all(Node)}
        lost = sum(1 for pod in self.all(Pod) if pod.node_name and pod.node_name not in known)
        if lost:
            yield f"pods that run on nodes which are not in the files were left out: {lost}"
        nominated = sum(1 for pod in self.all(Pod) if _waits(pod) and pod.status.nominated_node_name)
        if nominated:
            yield f"pods that a scheduler has already nominated to a node were left out: {nominated}"
        static = sorted(pool.name for pool in self.all(NodePool) if pool.static)
        if static:
            yield f"static pools take no part in planning: {', '.join(static)}"
        lost_buffers = sorted(each.name for each in self.all(CapacityBuffer) if self._model(each) is None)
        if lost_buffers:
            yield f"buffers whose template is not in the files were left out: {', '.join(lost_buffers)}"
        for judgement in self._judged(self._offers(types_for), options).judgements:
            if not judgement.valid:
                yield f"NodeOverlay {judgement.overlay} is not in force: {judgement.message}"

    def _offers(self, types_for: TypesFor) -> list[Offer]:
        return [(pool, types_for(pool)) for pool in self._pools()]

    def _judged(self, offers: Sequence[Offer], options: Options) -> Overlaid:
        overlays = self.all(NodeOverlay)
        return overlaid(offers if overlays else (), overlays, options.flavour)

    def _overlaid(self, offers: Sequence[Offer], options: Options) -> Iterator[Offer]:
        types = self._judged(offers, options).types
        return ((pool, types.get(pool.name, listed)) for pool, listed in offers)

    def _pools(self) -> list[NodePool]:
        """The pools in their order of preference; one that says nothing about readiness is ready."""
        ready = [_assumed_ready(pool) for pool in self.all(NodePool)]
        ready.sort(key=lambda pool: pool.name, reverse=True)
        return sorted(ready, key=lambda pool: pool.spec.weight or 0, reverse=True)

    def _nodes(self, pods: Iterable[Pod], leaving: AbstractSet[str]) -> tuple[StateNode, ...]:
        bound: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.node_name and not predicates.terminal(pod):
                bound.setdefault(pod.node_name, []).append(pod)
        limits = {each.name: _volume_limits(each) for each in self.all(core.CSINode)}
        claims = {_machine(claim): claim for claim in self.all(NodeClaim)}
        states = []
        for node in self.all(Node):
            claim = claims.pop(node.spec.provider_id, None) or claims.pop(f"name:{node.name}", None)
            states.append(
                StateNode(
                    node=node,
                    claim=claim,
                    pods=tuple(bound.get(node.name, ())),
                    marked=node.name in leaving,
                    volume_limits=limits.get(node.name, {}),
                )
            )
        # What is left was ordered and has not joined yet.
        return (*states, *(StateNode(claim=claim, marked=claim.name in leaving) for claim in claims.values()))

    def _namespaces(self, pods: Iterable[Pod]) -> dict[str, Mapping[str, str]]:
        named = {pod.namespace: {NAMESPACE_NAME: pod.namespace} for pod in pods}
        return {**named, **{each.name: each.labels for each in self.all(core.Namespace)}}

    def _storage(self) -> Storage:
        return Storage(
            claims={claim.full_name: claim for claim in self.all(core.PersistentVolumeClaim)},
            volumes={volume.name: volume for volume in self.all(core.PersistentVolume)},
            classes={each.name: each for each in self.all(core.StorageClass)},
        )

    def _virtual(self) -> Iterator[Pod]:
        """The room that buffers keep free, as pods nobody runs."""
        for buffer in self.all(CapacityBuffer):
            like = self._model(buffer)
            if like is not None:
                count = replicas(buffer, like.template, like.count)
                _bearable(count)
                yield from virtual_pods(buffer, like.template, count)

    def _model(self, buffer: CapacityBuffer) -> Workload | None:
        """What the pods of a buffer are like: a template, or those of a workload."""
        named, scaled = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
        if named is not None:
            found = self.found.get(core.PodTemplateObject, {}).get((buffer.namespace, named.name))
            return None if found is None else Workload(found, 1, found.template)
        if scaled is None:
            return None
        known = (each for kind in MAKERS for each in self.all(kind) if each.namespace == buffer.namespace)
        owner = next((o for o in known if (o.KIND.kind, o.name) == (scaled.kind, scaled.name)), None)
        return None if owner is None else workload(owner)

    def _made(self) -> Iterator[Pod]:
        """The pods workloads would make, for those whose pods are not in the files."""
        owners = owners_of((*self.all(Pod), *self.all(core.ReplicaSet), *self.all(core.Job)))
        made = [found for kind in MAKERS for each in self.all(kind) if (found := workload(each))]
        kept = [each for each in made if each.identity not in owners]
        _bearable(sum(each.count for each in kept) + len(self.found.get(Pod, {})))
        ranges = self.all(core.LimitRange)
        for each in kept:
            spec = admitted(each.template.spec, each.owner.namespace, ranges)
            yield from pods_of(replaced(each, template=replace(each.template, spec=spec)), WAITING)


def _as_created(pod: Pod, ranges: Sequence[core.LimitRange]) -> Pod:
    """The pod as the API server would have it: one that was read from a cluster is so already."""
    if pod.status.phase or not (ranges or any(_limits_alone(each) for each in _containers(pod.spec))):
        return pod
    return replace(pod, spec=admitted(pod.spec, pod.namespace, ranges))


def _limits_alone(container: Container) -> bool:
    return not container.resources.limits.keys() <= container.resources.requests.keys()


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.containers, *spec.init_containers)


def _bearable(pods: int) -> None:
    if pods > MOST_PODS:
        raise BadInput(f"these files come to {pods:,} pods; at most {MOST_PODS:,} are planned at once")


def _check(obj: Object) -> None:
    """An API server would not have let a negative amount in, and nothing here expects one."""
    spec = obj.spec if isinstance(obj, Pod) else None
    made = workload(obj)
    if made is not None:
        spec = made.template.spec
    if isinstance(obj, core.DaemonSet):
        spec = obj.spec.template.spec
        for bad in representatives([(obj, None)])[1]:
            raise BadInput(f"DaemonSet {obj.name} makes no sense: {bad.why}")
    for container in _containers(spec) if spec else ():
        for name, amount in container.resources.requests.items():
            if amount < ZERO:
                raise BadInput(f"{obj.KIND.kind} {obj.name} asks for {amount} of {name}; write 0 or more")


def _named(obj: T, number: int) -> T:
    """Manifests leave the default namespace out, and nobody gives a uid by hand."""
    meta = obj.metadata
    namespace = meta.namespace or "default" if obj.KIND.namespaced else ""
    if meta.name and meta.uid and meta.namespace == namespace:
        return obj
    name = meta.name or f"{meta.generate_name or obj.KIND.kind.lower() + '-'}{number}"
    metadata = replace(meta, name=name, namespace=namespace, uid=meta.uid or f"{namespace}/{name}")
    changed: T = replace(obj, metadata=metadata)
    return changed


def _waits(pod: Pod) -> bool:
    return (
        not pod.node_name
        and predicates.active(pod)
        and not predicates.owned_by_daemonset(pod)
        and not predicates.owned_by_node(pod)
    )


def _told(pod: Pod) -> Pod:
    """The pod as it would be once a scheduler had found no place for it."""
    if predicates.failed_to_schedule(pod) or pod.spec.scheduling_gates:
        return pod
    return replace(pod, status=replace(pod.status, conditions=WAITING.conditions))


def _machine(claim: NodeClaim) -> str:
    """What a node is matched with its claim by: the machine or, before there is one, the name."""
    return claim.status.provider_id or f"name:{claim.status.node_name or claim.name}"


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
