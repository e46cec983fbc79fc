"""The wiring: settings in, a runnable Dovetail out. The only file that knows everyone.

The same Dovetail runs in production over HTTP, and in the simulator in virtual time: what differs is
handed in (transport, clock, chance, compute).
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from dovetail import __version__
from dovetail.api import core
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.aws import Aws
from dovetail.controllers.baditems import BadItems
from dovetail.controllers.base import SINGLETON, Controller
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
from dovetail.controllers.owning import BY_PROVIDER_ID, provider_id_of_claim, provider_id_of_node
from dovetail.controllers.provided import MakeProvider
from dovetail.controllers.provisioning import Provisioning
from dovetail.controllers.registry import Parts, controllers
from dovetail.controllers.zonal.controller import ZonalShift
from dovetail.controllers.zonal.elsewhere import Elsewhere, ShiftedCloud
from dovetail.controllers.zonal.rehearsing import Rehearsing
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.errors import BadInput, DovetailError, NotAuthorized
from dovetail.metrics import gauge
from dovetail.ports import Clock, Cloud, Compute
from dovetail.providers.making import CLASSES, maker
from dovetail.runtime import logs, metrics
from dovetail.runtime.compute import inline
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.manager import Manager, at_once
from dovetail.runtime.queue import WorkQueue
from dovetail.runtime.sight import DISPENSABLE, Indexes, Sight
from dovetail.runtime.transport import Transport
from dovetail.runtime.watch import Follower
from dovetail.runtime.zonal import Zonal
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.device_records import ResourceSlice
from dovetail.scheduling.snapshot import Snapshot
from dovetail.settings import Settings

__all__ = ["Dovetail"]

# How long caches may take to fill before that is worth a line in the log. Seconds.
PATIENCE = 30.0
GRANT = "cannot follow a kind; grant get, list and watch on it to the controller's service account"

INDEXES: Indexes = {
    core.VolumeAttachment: {BY_NODE: node_of_attachment},
    Node: {BY_PROVIDER_ID: provider_id_of_node},
    NodeClaim: {BY_PROVIDER_ID: provider_id_of_claim},
    ResourceSlice: {SLICES_BY_NODE: nodes_of_slice},
}
BUILD = gauge("karpenter_build_info", "What this process is.", ("version", "goversion", "goarch", "commit"))


class Dovetail(Sight):
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
    ) -> None:
        class_kind = CLASSES[provider]
        super().__init__(
            settings,
            transport,
            clock=clock,
            chance=chance,
            class_kind=class_kind,
            make=make or maker(provider),
            record=lambda kube: self._recording(kube, chance),
            indexes=_indexes(provider),
            authority=authority,
            may_write=may_write,
        )
        self._chance = chance
        self._log = logs.get("controller")
        self.manager = Manager(clock, chance)
        self.parts = self._parts(compute, class_kind)
        self._seeing = Seeing(self._world, compute, self.informer(core.ReplicaSet))
        self.zonal = self._zonal(transport)
        self.controllers = self._controllers()
        self._reporters: list[NodeGauges | PodMetrics | Pricing | StatusMetrics] = [
            *self._node_gauges(),
            *(each for each in self.controllers if isinstance(each, PodMetrics | Pricing | StatusMetrics)),
        ]
        BUILD.labels(__version__, f"python{platform.python_version()}", platform.machine(), "").set(1)
        for controller in self.controllers:
            self._connect(controller, self.manager.add(Calling(controller)))
        unread = BadItems(self.recorder, clock, "informer")
        for kind, informer in self.informers.items():
            informer.on_change(unread.hear)
            informer.on_failure = unread.fail
            follower = Follower(
                self.kube, kind, informer, clock=clock, chance=chance, on_trouble=self._trouble(kind)
            )
            self.manager.serve(follower.run)
        self.manager.serve(self.recorder.run)
        for service in self.zonal.services if self.zonal is not None else ():
            self.manager.serve(service)

    def _controllers(self) -> tuple[Controller, ...]:
        return *controllers(self.parts), *self.provider.controllers(self.parts), *self._zonal_controllers()

    def _zonal_controllers(self) -> Iterator[Controller]:
        if self.zonal is None:
            return
        yield self.zonal.controller
        schedule = self.zonal.options.rehearsal
        if schedule is not None and self.zonal.options.enabled:
            yield Rehearsing(self._seeing, self.informer(NodePool), schedule, self.clock, self.recorder)

    def _zonal(self, transport: Transport) -> Zonal | None:
        """Zonal shifts: as ARC says, or elsewhere as operators do, where that is asked for."""
        aws: Aws | None = getattr(self.provider, "aws", None)
        if aws is None and not self.settings.enable_zonal_shift:
            return None
        return Zonal(
            self.settings,
            aws or Elsewhere(self._zones_sold),
            kube=self.kube,
            receiving=KubeClient(transport, self.clock),
            clock=self.clock,
            chance=self._chance,
            recorder=self.recorder,
            gates=self.gates,
            nodes=self.informer(Node),
            claims=self.informer(NodeClaim),
            seeing=self._seeing,
        )

    async def _world(self) -> Snapshot:
        """The cluster as it is now, with what can be bought."""
        pools = [pool for pool in self.informer(NodePool) if self.ownership.of_pool(pool)]
        offers = [(pool, await self._types(pool)) for pool in pools]
        return self.capture.snapshot(offers, self.options(self.clock.now()))

    async def _types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self.parts.cloud.instance_types(pool)
        except DovetailError:
            return ()  # a pool whose class is not ready sells nothing yet

    async def _zones_sold(self) -> frozenset[str]:
        listed = [await self._types(pool) for pool in self.informer(NodePool)]
        return frozenset(each.zone for types in listed for one in types for each in one.offerings)

    def _recording(self, kube: KubeClient, chance: Random) -> EventRecorder:
        self.recorder = EventRecorder(kube, self.clock, chance)
        return self.recorder

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

    def _served(self) -> Cloud:
        """The cloud as controllers call it: counted, and with overlays in force if there are any."""
        metered: Cloud = MeteredCloud(self.cloud, self.clock)
        if self.settings.enable_zonal_shift and getattr(self.provider, "aws", None) is None:
            metered = ShiftedCloud(metered, self.gates)
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
            buffers=self.buffers,
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
        if isinstance(controller, Provisioning) and self.buffers is not None:
            self.buffers.on_resolved(controller.woken_by(queue.add))
        if isinstance(controller, ZonalShift):
            controller.on_wake(partial(queue.add, SINGLETON))
        if getattr(controller, "singleton", False):
            queue.add(SINGLETON)

    def _trouble(self, kind: type[Object]) -> Callable[[DovetailError], None]:
        informer = self.informers[kind]

        def tell(error: DovetailError) -> None:
            if isinstance(error, BadInput):
                return  # one object, which is named where it is heard of
            if kind in DISPENSABLE and isinstance(error, NotAuthorized):
                if not informer.synced:
                    about = {"kind": kind.__name__, "error": error}
                    self._log.warning("going on without a kind we may not see", **about)
                    informer.begin()
                    informer.end()
                return
            # What a person can mend is said as what to do.
            mend = GRANT if isinstance(error, NotAuthorized) else "cannot follow a kind for now"
            self._log.error(mend, kind=kind.__name__, error=error)

        return tell


def _indexes(provider: str) -> Indexes:
    """By what objects are looked up; a provider's own ways with it."""
    if provider != "aws":
        return INDEXES
    from dovetail.providers.aws.interruption import BY_INSTANCE, instance_of_claim

    return {**INDEXES, NodeClaim: {**INDEXES[NodeClaim], BY_INSTANCE: instance_of_claim}}
