"""What Dovetail sees of a cluster: a cache of every kind it watches, and the belief that is made of them.

Whoever only looks needs no more than this; whoever acts as well puts controllers around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Generic, TypeVar

from dovetail.api import core
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.commitment import Commitment
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.controllers.base import Cache
from dovetail.controllers.capacitybuffer import BufferWorkloads, CapacityBuffers, Workload
from dovetail.controllers.ownership import Ownership
from dovetail.controllers.provider_port import Indexes, MakeProvider, Provider, ProviderContext
from dovetail.controllers.spend_guard import SpendGuard
from dovetail.ports import Clock, Recorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import Transport
from dovetail.scheduling.model.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.settings import Settings
from dovetail.state.capture import Capture, ClusterStores, DeviceStores
from dovetail.state.cluster import Cluster
from dovetail.throttle import Throttle
from dovetail.zonal.model.gates import ZoneGates

__all__ = ["DISPENSABLE", "ClusterContext", "ContextOptions"]

T = TypeVar("T", bound=Object)

ALWAYS: tuple[type[Object], ...] = (
    Pod,
    Node,
    NodeClaim,
    NodePool,
    core.DaemonSet,
    core.LimitRange,
    core.Namespace,
    core.PodDisruptionBudget,
    core.PersistentVolumeClaim,
    core.PersistentVolume,
    core.StorageClass,
    core.CSINode,
    core.VolumeAttachment,
    core.Service,
    core.ReplicaSet,
    core.StatefulSet,
)
# What can be done without, if we are not allowed to see it: permissions may be older than we are.
DISPENSABLE: frozenset[type[Object]] = frozenset((core.LimitRange, core.Service))


class _VersionedInformer(Generic[T]):
    """An informer with a number that grows with every change."""

    def __init__(self, informer: Informer[T]) -> None:
        self._informer = informer
        self.revision = 0
        informer.on_change(self._count_change)

    def _count_change(self, before: T | None, after: T | None) -> None:
        self.revision += 1

    def __iter__(self) -> Iterator[T]:
        return iter(self._informer)


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """Whose machines a cluster uses, by what its objects are looked up, and whether we may write."""

    class_kind: type[Object]
    make: MakeProvider
    indexes: Indexes = field(default_factory=dict)
    # The certificate authority the process itself trusts, in PEM; empty when the system's is used.
    authority: str = ""
    may_write: Callable[[], bool] = lambda: True


class ClusterContext:
    """Caches of every kind, the cloud, and what is believed; it fills when the caches are filled."""

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        *,
        clock: Clock,
        rng: Random,
        record: Callable[[KubeClient], Recorder],
        options: ContextOptions,
    ) -> None:
        self.settings = settings
        self.clock = clock
        throttle = Throttle(clock, settings.kube_client_qps, settings.kube_client_burst)
        self.kube = KubeClient(transport, clock, throttle=throttle, may_write=options.may_write)
        recorder = record(self.kube)
        self.informers: dict[type[Object], Informer[Any]] = {
            kind: Informer(kind, options.indexes.get(kind)) for kind in self._list_kinds(options.class_kind)
        }
        self.gates = ZoneGates(clock)
        context = ProviderContext(
            settings,
            self.kube,
            clock,
            rng,
            recorder,
            self.get_informer,
            options.authority,
            self.gates.is_launch_closed,
            options.may_write,
        )
        self.provider: Provider = options.make(context)
        self.cloud = self.provider.cloud
        self.ownership = Ownership(self.cloud)
        self.cluster = self._build_cluster()
        self.capture = Capture(self.cluster, self._build_stores())
        self.buffers = self._build_buffers()
        self.spend = self._build_spend_guard()

    def get_informer(self, kind: type[T]) -> Informer[T]:
        found: Informer[T] = self.informers[kind]
        return found

    @property
    def synced(self) -> bool:
        """Every kind has been listed once."""
        return all(informer.synced for informer in self.informers.values())

    def build_options(self, now: datetime) -> SchedulingOptions:
        """The settings a decision depends on, at this moment."""
        settings = self.settings
        return SchedulingOptions(
            now=now,
            preferences="Ignore" if settings.preference_policy == "Ignore" else "Respect",
            min_values="BestEffort" if settings.min_values_policy == "BestEffort" else "Strict",
            reserved_capacity=settings.feature_gates.reserved_capacity,
            one_by_one=settings.planner == "one-by-one",
            most_pods=settings.planned_node_max_pods,
            ignore_dra=settings.ignore_dra_requests,
            flavour=self.cloud.flavour,
            follow_commitments=settings.commitments == "Follow",
        )

    def close(self) -> None:
        """Let go of what the provider holds; who has seen enough needs nothing any more."""
        self.provider.close()

    def _list_kinds(self, class_kind: type[Object]) -> tuple[type[Object], ...]:
        gates = self.settings.feature_gates
        devices = () if self.settings.ignore_dra_requests else (ResourceSlice, DeviceClass, ResourceClaim)
        overlays = (NodeOverlay,) if gates.node_overlay else ()
        buffers = (CapacityBuffer, core.PodTemplateObject, core.Deployment) if gates.capacity_buffer else ()
        limits = (SpendLimit,) if self.settings.spend_limits else ()
        commitments = (Commitment,) if self.settings.commitments != "Off" else ()
        return (*ALWAYS, class_kind, *devices, *overlays, *buffers, *limits, *commitments)

    def _build_cluster(self) -> Cluster:
        nomination = max(2 * self.settings.batch_max_duration, timedelta(seconds=10))
        cluster = Cluster(
            self.clock,
            manages=self.ownership.owns_claim,
            nomination=nomination,
            sources_synced=lambda: self.synced,
        )
        # Believing comes before acting: these are told of a change before any controller is woken by it.
        self.get_informer(Node).on_change(cluster.update_node)
        self.get_informer(NodeClaim).on_change(cluster.update_node_claim)
        self.get_informer(Pod).on_change(cluster.update_pod)
        self.get_informer(core.CSINode).on_change(cluster.update_csi_node)
        return cluster

    def _build_stores(self) -> ClusterStores:
        return ClusterStores(
            daemonsets=_VersionedInformer(self.get_informer(core.DaemonSet)),
            limit_ranges=_VersionedInformer(self.get_informer(core.LimitRange)),
            namespaces=_VersionedInformer(self.get_informer(core.Namespace)),
            claims=_VersionedInformer(self.get_informer(core.PersistentVolumeClaim)),
            volumes=_VersionedInformer(self.get_informer(core.PersistentVolume)),
            classes=_VersionedInformer(self.get_informer(core.StorageClass)),
            budgets=_VersionedInformer(self.get_informer(core.PodDisruptionBudget)),
            services=_VersionedInformer(self.get_informer(core.Service)),
            replicasets=_VersionedInformer(self.get_informer(core.ReplicaSet)),
            statefulsets=_VersionedInformer(self.get_informer(core.StatefulSet)),
            devices=self._build_device_stores(),
            commitments=(
                _VersionedInformer(self.get_informer(Commitment)) if Commitment in self.informers else None
            ),
        )

    def _build_device_stores(self) -> DeviceStores | None:
        if ResourceSlice not in self.informers:
            return None
        slices, classes = (
            _VersionedInformer(self.get_informer(ResourceSlice)),
            _VersionedInformer(self.get_informer(DeviceClass)),
        )
        return DeviceStores(slices, classes, _VersionedInformer(self.get_informer(ResourceClaim)))

    def _build_spend_guard(self) -> SpendGuard | None:
        if SpendLimit not in self.informers:
            return None
        limits, pools = self.get_informer(SpendLimit), self.get_informer(NodePool)
        return SpendGuard(limits, pools, self.cluster, self.clock)

    def _build_buffers(self) -> CapacityBuffers | None:
        if CapacityBuffer not in self.informers:
            return None
        scalable: dict[str, Cache[Workload]] = {
            "Deployment": self.get_informer(core.Deployment),
            "StatefulSet": self.get_informer(core.StatefulSet),
            "ReplicaSet": self.get_informer(core.ReplicaSet),
        }
        workloads = BufferWorkloads(self.get_informer(core.PodTemplateObject), scalable)
        return CapacityBuffers(self.kube, self.get_informer(CapacityBuffer), workloads, self.clock)
