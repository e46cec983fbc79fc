"""The wiring: settings in, a runnable Dovetail out. The only file that knows everyone.

The same Dovetail runs in production over HTTP, and in the simulator in virtual time: what differs is
handed in (transport, clock, chance, compute).
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from dovetail import __version__
from dovetail.api import core
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.aws import Aws
from dovetail.controllers.base import SINGLETON, Cache, Controller
from dovetail.controllers.capacitybuffer import Buffers, Workload, Workloads
from dovetail.controllers.metered import Calling, MeteredCloud
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.node.termination import Volumes
from dovetail.controllers.node.volumes import BY_NODE, node_of_attachment
from dovetail.controllers.nodeclaim.devices import SLICES_BY_NODE, nodes_of_slice
from dovetail.controllers.nodeclaim.ghosts import Ghosts
from dovetail.controllers.nodeoverlay import OverlaidCloud
from dovetail.controllers.observing.costs import Pricing
from dovetail.controllers.observing.nodes import NodeGauges
from dovetail.controllers.observing.pods import PodMetrics
from dovetail.controllers.observing.status import StatusMetrics
from dovetail.controllers.orchestration import Orchestration
from dovetail.controllers.owning import BY_PROVIDER_ID, Ownership, provider_id_of_claim, provider_id_of_node
from dovetail.controllers.provided import MakeProvider, Provider, Surroundings
from dovetail.controllers.provisioning import Provisioning
from dovetail.controllers.registry import Parts, controllers
from dovetail.controllers.zonal.controller import ZonalShift
from dovetail.controllers.zonal.gates import Gates
from dovetail.errors import DovetailError, Misconfigured, NotAuthorized
from dovetail.metrics import gauge
from dovetail.ports import Clock, Cloud, Compute
from dovetail.providers.kwok import KwokProvider
from dovetail.runtime import logs, metrics
from dovetail.runtime.compute import inline
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.manager import Manager, at_once
from dovetail.runtime.queue import WorkQueue
from dovetail.runtime.throttle import Throttle
from dovetail.runtime.transport import Transport
from dovetail.runtime.watch import Follower
from dovetail.runtime.zonal import Zonal
from dovetail.scheduling.device_records import DeviceClass, ResourceClaim, ResourceSlice
from dovetail.scheduling.snapshot import Options
from dovetail.settings import Settings
from dovetail.state import Capture, Cluster, DeviceShelves, Shelves

__all__ = ["DISPENSABLE", "Dovetail"]

T = TypeVar("T", bound=Object)
# How long caches may take to fill before that is worth a line in the log. Seconds.
PATIENCE = 30.0

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
DISPENSABLE: frozenset[type[Object]] = frozenset((core.LimitRange,))
INDEXES: Mapping[type[Object], Mapping[str, Any]] = {
    core.VolumeAttachment: {BY_NODE: node_of_attachment},
    Node: {BY_PROVIDER_ID: provider_id_of_node},
    NodeClaim: {BY_PROVIDER_ID: provider_id_of_claim},
    ResourceSlice: {SLICES_BY_NODE: nodes_of_slice},
}
BUILD = gauge("karpenter_build_info", "What this process is.", ("version", "goversion", "goarch", "commit"))
CLASSES: Mapping[str, type[Object]] = {"kwok": KWOKNodeClass, "aws": EC2NodeClass}


class _Shelf(Generic[T]):
    """An informer with a number that grows with every change."""

    def __init__(self, informer: Informer[T]) -> None:
        self._informer = informer
        self.revision = 0
        informer.on_change(self._changed)

    def _changed(self, before: T | None, after: T | None) -> None:
        self.revision += 1

    def __iter__(self) -> Iterator[T]:
        return iter(self._informer)


class Dovetail:
    """A whole autoscaler, put together and ready to run."""

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        *,
        clock: Clock,
        chance: Random,
        provider: str = "kwok",
        make: MakeProvider | None = None,
        authority: str = "",
        compute: Compute = inline,
        may_write: Callable[[], bool] = lambda: True,
        acting: bool = True,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._chance = chance
        self._log = logs.get("controller")
        throttle = Throttle(clock, settings.kube_client_qps, settings.kube_client_burst)
        self.kube = KubeClient(transport, clock, throttle=throttle, may_write=may_write)
        self.manager = Manager(clock, chance)
        self.recorder = EventRecorder(self.kube, clock, chance)
        class_kind, indexes = CLASSES[provider], _indexes(provider)
        self.informers: dict[type[Object], Informer[Any]] = {
            kind: Informer(kind, indexes.get(kind)) for kind in self._kinds(class_kind)
        }
        self.gates = Gates(clock)
        made_by = make or _maker(provider)
        self.provider: Provider = made_by(
            Surroundings(
                settings,
                self.kube,
                clock,
                chance,
                self.recorder,
                self.informer,
                authority,
                self.gates.launches,
            )
        )
        self.cloud = self.provider.cloud
        self.ownership = Ownership(self.cloud)
        self.cluster = self._cluster()
        self.capture = Capture(self.cluster, self._shelves())
        self.parts = self._parts(compute, class_kind)
        self.zonal = self._zonal(transport) if acting else None
        # Who only looks needs nobody who acts.
        self.controllers = self._controllers() if acting else ()
        self._reporters: list[NodeGauges | PodMetrics | Pricing | StatusMetrics] = [
            *self._node_gauges(),
            *(each for each in self.controllers if isinstance(each, PodMetrics | Pricing | StatusMetrics)),
        ]
        BUILD.labels(__version__, f"python{platform.python_version()}", platform.machine(), "").set(1)
        for controller in self.controllers:
            self._connect(controller, self.manager.add(Calling(controller)))
        for kind, informer in self.informers.items():
            follower = Follower(
                self.kube, kind, informer, clock=clock, chance=chance, on_trouble=self._trouble(kind)
            )
            self.manager.serve(follower.run)
        self.manager.serve(self.recorder.run)
        for service in self.zonal.services if self.zonal is not None else ():
            self.manager.serve(service)

    def _controllers(self) -> tuple[Controller, ...]:
        zonal = () if self.zonal is None else (self.zonal.controller,)
        return *controllers(self.parts), *self.provider.controllers(self.parts), *zonal

    def _zonal(self, transport: Transport) -> Zonal | None:
        """Zonal shifts, where there is an AWS to ask about them."""
        aws: Aws | None = getattr(self.provider, "aws", None)
        if aws is None:
            return None
        return Zonal(
            self.settings,
            aws,
            kube=self.kube,
            receiving=KubeClient(transport, self.clock),
            clock=self.clock,
            chance=self._chance,
            recorder=self.recorder,
            gates=self.gates,
            nodes=self.informer(Node),
            claims=self.informer(NodeClaim),
        )

    def informer(self, kind: type[T]) -> Informer[T]:
        found: Informer[T] = self.informers[kind]
        return found

    @property
    def synced(self) -> bool:
        """Every kind has been listed once."""
        return all(informer.synced for informer in self.informers.values())

    async def run(self, elected: Callable[[], Awaitable[None]] = at_once) -> None:
        """Work until stopped: listen from now on; act once elected and once everything has been heard."""

        await self.provider.prepare()
        if self.zonal is not None:
            await self.zonal.prepare()

        async def ready() -> None:
            # An empty cache looks like a world without nodes: acting on it would end machines undrained.
            await self._filled()
            await elected()

        with metrics.reporting(self._report):
            await self.manager.run(ready)

    async def _filled(self) -> None:
        """Wait for every cache, and from time to time say which are still missing."""
        waiting = {asyncio.ensure_future(each.wait_synced()) for each in self.informers.values()}
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=PATIENCE)
                if waiting:
                    missing = [kind.__name__ for kind, each in self.informers.items() if not each.synced]
                    self._log.warning("still waiting for a first list", kinds=missing)
        finally:
            for each in waiting:
                each.cancel()

    def _node_gauges(self) -> tuple[NodeGauges, ...]:
        if self.settings.disable_cluster_state_observability:
            return ()
        each = self.settings.metrics_detail == "full"
        return (NodeGauges(self.cluster, self.cloud.flavour, self.clock, each=each),)

    def exposition(self) -> bytes:
        """The numbers, in as much detail as was asked for."""
        return metrics.exposition(brief=self.settings.metrics_detail == "brief")

    def _report(self) -> None:
        """Someone looks at the numbers: count what is only counted then."""
        for reporter in self._reporters:
            reporter.report()

    def stop(self) -> None:
        self.manager.stop()

    def close(self) -> None:
        """Let go of what the provider holds; a stopped Dovetail needs nothing any more."""
        self.provider.close()

    def options(self, now: datetime) -> Options:
        """The settings a decision depends on, at this moment."""
        settings = self.settings
        return Options(
            now=now,
            preferences="Ignore" if settings.preference_policy == "Ignore" else "Respect",
            min_values="BestEffort" if settings.min_values_policy == "BestEffort" else "Strict",
            reserved_capacity=settings.feature_gates.reserved_capacity,
            one_by_one=settings.planner == "one-by-one",
            most_pods=settings.planned_node_max_pods,
            ignore_dra=settings.ignore_dra_requests,
            flavour=self.cloud.flavour,
        )

    def _kinds(self, class_kind: type[Object]) -> tuple[type[Object], ...]:
        gates = self.settings.feature_gates
        devices = () if self.settings.ignore_dra_requests else (ResourceSlice, DeviceClass, ResourceClaim)
        overlays = (NodeOverlay,) if gates.node_overlay else ()
        buffers = (CapacityBuffer, core.PodTemplateObject, core.Deployment) if gates.capacity_buffer else ()
        return (*ALWAYS, class_kind, *devices, *overlays, *buffers)

    def _cluster(self) -> Cluster:
        nomination = max(2 * self.settings.batch_max_duration, timedelta(seconds=10))
        cluster = Cluster(
            self.clock,
            manages=self.ownership.of_claim,
            nomination=nomination,
            sources_synced=lambda: self.synced,
        )
        # Believing comes before acting: these are told of a change before any controller is woken by it.
        self.informer(Node).on_change(cluster.node_changed)
        self.informer(NodeClaim).on_change(cluster.claim_changed)
        self.informer(Pod).on_change(cluster.pod_changed)
        self.informer(core.CSINode).on_change(cluster.csi_node_changed)
        return cluster

    def _shelves(self) -> Shelves:
        return Shelves(
            daemonsets=_Shelf(self.informer(core.DaemonSet)),
            limit_ranges=_Shelf(self.informer(core.LimitRange)),
            namespaces=_Shelf(self.informer(core.Namespace)),
            claims=_Shelf(self.informer(core.PersistentVolumeClaim)),
            volumes=_Shelf(self.informer(core.PersistentVolume)),
            classes=_Shelf(self.informer(core.StorageClass)),
            budgets=_Shelf(self.informer(core.PodDisruptionBudget)),
            services=_Shelf(self.informer(core.Service)),
            replicasets=_Shelf(self.informer(core.ReplicaSet)),
            statefulsets=_Shelf(self.informer(core.StatefulSet)),
            devices=self._device_shelves(),
        )

    def _device_shelves(self) -> DeviceShelves | None:
        if ResourceSlice not in self.informers:
            return None
        slices, classes = _Shelf(self.informer(ResourceSlice)), _Shelf(self.informer(DeviceClass))
        return DeviceShelves(slices, classes, _Shelf(self.informer(ResourceClaim)))

    def _buffers(self) -> Buffers | None:
        if CapacityBuffer not in self.informers:
            return None
        scalable: dict[str, Cache[Workload]] = {
            "Deployment": self.informer(core.Deployment),
            "StatefulSet": self.informer(core.StatefulSet),
            "ReplicaSet": self.informer(core.ReplicaSet),
        }
        workloads = Workloads(self.informer(core.PodTemplateObject), scalable)
        return Buffers(self.kube, self.informer(CapacityBuffer), workloads, self.clock)

    def _served(self) -> Cloud:
        """The cloud as controllers call it: counted, and with overlays in force if there are any."""
        metered = MeteredCloud(self.cloud, self.clock)
        return OverlaidCloud(metered) if NodeOverlay in self.informers else metered

    def _parts(self, compute: Compute, class_kind: type[Object]) -> Parts:
        return Parts(
            settings=self.settings,
            kube=self.kube,
            cloud=self._served(),
            clock=self.clock,
            recorder=self.recorder,
            compute=compute,
            cluster=self.cluster,
            capture=self.capture,
            pods=self.informer(Pod),
            nodes=self.informer(Node),
            claims=self.informer(NodeClaim),
            volumes=Volumes(self.informer(core.VolumeAttachment), self.informer(core.PersistentVolumeClaim)),
            slices=self.informers.get(ResourceSlice),
            pools=self.informer(NodePool),
            classes=self.informer(class_kind),
            class_kind=class_kind,
            overlays=self.informers.get(NodeOverlay),
            buffers=self._buffers(),
            ownership=self.ownership,
            options=self.options,
            gates=self.gates,
        )

    def _connect(self, controller: Controller, queue: WorkQueue) -> None:
        for trigger in controller.triggers:

            def heard(before: Any, after: Any, keys: Any = trigger.keys) -> None:
                for key in keys(before, after):
                    queue.add(key)

            self.informers[trigger.kind].on_change(heard)
        if isinstance(controller, EvictionQueue | Orchestration | Ghosts):
            controller.on_item(queue.add)
        if isinstance(controller, Provisioning) and self.parts.buffers is not None:
            self.parts.buffers.on_resolved(controller.woken_by(queue.add))
        if isinstance(controller, ZonalShift):
            controller.on_wake(partial(queue.add, SINGLETON))
        if getattr(controller, "singleton", False):
            queue.add(SINGLETON)

    def _trouble(self, kind: type[Object]) -> Callable[[DovetailError], None]:
        informer = self.informers[kind]

        def tell(error: DovetailError) -> None:
            if kind in DISPENSABLE and isinstance(error, NotAuthorized):
                if not informer.synced:
                    about = {"kind": kind.__name__, "error": error}
                    self._log.warning("going on without a kind we may not see", **about)
                    informer.begin()
                    informer.end()
                return
            self._log.error("cannot follow a kind for now", kind=kind.__name__, error=error)

        return tell


def _indexes(provider: str) -> Mapping[type[Object], Mapping[str, Any]]:
    """By what objects are looked up; a provider's own ways with it."""
    if provider != "aws":
        return INDEXES
    from dovetail.providers.aws.interruption import BY_INSTANCE, instance_of_claim

    return {**INDEXES, NodeClaim: {**INDEXES[NodeClaim], BY_INSTANCE: instance_of_claim}}


def _maker(provider: str) -> MakeProvider:
    return KwokProvider if provider == "kwok" else _aws


def _aws(given: Surroundings) -> Provider:
    """AWS is asked for only here: who has simulated machines need neither load it nor have its SDK."""
    from dovetail.providers.aws import AwsProvider

    try:
        from dovetail.aws.boto import Boto
    except ModuleNotFoundError as error:
        if error.name not in ("boto3", "botocore"):
            raise
        raise Misconfigured(
            "starting the aws provider: boto3 is not installed; run `pip install dovetail[aws]`"
        ) from error
    return AwsProvider(given, Boto())
