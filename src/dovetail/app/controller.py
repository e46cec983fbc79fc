"""The wiring: settings in, a runnable Dovetail out. The only file that knows everyone.

The same Dovetail runs in production over HTTP, and in the simulator in virtual time: what differs is
handed in (transport, clock, chance, compute).
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from dovetail import __version__
from dovetail.api import core
from dovetail.api.commitment import Commitment
from dovetail.api.core import Node
from dovetail.api.crds import find_provider_api, is_own_kind
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.app.cluster_context import DISPENSABLE, ClusterContext, ContextOptions
from dovetail.app.decision_log import LogPlumbing, build_decision_log
from dovetail.app.notifications import build_notifier
from dovetail.app.recordings import open_place, read_recording_options
from dovetail.controllers.base import SINGLETON, Controller
from dovetail.controllers.cloud_wrappers import CallerController, MeteredCloud
from dovetail.controllers.context import ControllerContext, TerminationVolumes
from dovetail.controllers.history import DecisionRecorder
from dovetail.controllers.node.drain import BY_NODE, index_attachment_by_node
from dovetail.controllers.nodeclaim.initialization import SLICES_BY_NODE, index_slice_by_nodes
from dovetail.controllers.nodeoverlay import OverlaidCloud
from dovetail.controllers.observing.nodes import NodeGauges
from dovetail.controllers.ownership import (
    BY_PROVIDER_ID,
    index_claim_by_provider_id,
    index_node_by_provider_id,
)
from dovetail.controllers.provider_port import Indexes, MakeProvider
from dovetail.controllers.registry import ControllerSet, GaugeReporter, build_controllers
from dovetail.controllers.set_aside import SetAsideReporter
from dovetail.errors import BadInput, DovetailError, NotAuthorized
from dovetail.logs import get_logger
from dovetail.metrics import gauge
from dovetail.ports import Clock, Cloud, Compute, RunBlocking
from dovetail.providers.factory import choose_provider, list_provider_indexes
from dovetail.runtime import metrics
from dovetail.runtime.compute import inline
from dovetail.runtime.decision_log import DecisionLog, run_inline
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.manager import Manager, at_once
from dovetail.runtime.queue import WorkQueue
from dovetail.runtime.recording import RecordingWriter, TakeSituation
from dovetail.runtime.transport import Transport
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.device_objects import ResourceSlice
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.settings import Settings
from dovetail.zonal.controller.controller import ShiftedCluster
from dovetail.zonal.controller.non_aws import NonAwsApi, ZoneExcludingCloud
from dovetail.zonal.controller.rehearsal import ClusterView, RehearsalController
from dovetail.zonal.wiring import ShiftClients, ZonalService

__all__ = ["Dovetail", "ProcessOptions"]

# How long caches may take to fill before that is worth a line in the log. Seconds.
PATIENCE = 30.0
# How long a new leader waits for the history of those before it. Seconds.
READ_BACK = 15.0
# A cluster is known by the uid of this namespace, which every cluster has and none may delete.
CLUSTER_NAMESPACE = "kube-system"
GRANT = "cannot follow a kind; grant get, list and watch on it to the controller's service account"

INDEXES: Indexes = {
    core.VolumeAttachment: {BY_NODE: index_attachment_by_node},
    Node: {BY_PROVIDER_ID: index_node_by_provider_id},
    NodeClaim: {BY_PROVIDER_ID: index_claim_by_provider_id},
    ResourceSlice: {SLICES_BY_NODE: index_slice_by_nodes},
}
BUILD = gauge("karpenter_build_info", "What this process is.", ("version", "goversion", "goarch", "commit"))


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What the process gives the controllers: trust, workers, and whether it leads and may write."""

    authority: str = ""
    compute: Compute = inline
    # For what is rare, may take long and nobody waits for.
    aside: Compute = inline
    may_write: Callable[[], bool] = lambda: True
    # What this process is called as a leader.
    identity: str = ""
    # Where work is done that waits for disks: in a thread, or at once in simulated time.
    in_thread: RunBlocking = run_inline


class Dovetail(ClusterContext):
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
        process: ProcessOptions = ProcessOptions(),  # noqa: B008 (frozen)
    ) -> None:
        class_kind = find_provider_api(provider).node_class
        super().__init__(
            settings,
            transport,
            clock=clock,
            rng=chance,
            record=lambda kube: self._create_recorder(kube, chance),
            options=ContextOptions(
                class_kind,
                make or choose_provider(provider),
                _list_indexes(provider),
                process.authority,
                process.may_write,
            ),
        )
        compute = process.compute
        self._chance = chance
        self._log = get_logger()
        self.manager = Manager(clock, chance)
        self.history = DecisionRecorder(settings, clock, process.identity)
        self.decision_log = self._build_decision_log(process)
        self.recording = self._build_recording(process)
        self.parts = replace(self._build_context(compute, class_kind), aside=process.aside)
        self._seeing = ClusterView(
            self._capture_snapshot, compute, self.get_informer(core.ReplicaSet), self.parts.cache
        )
        self.zonal = self._build_zonal(transport)
        built = build_controllers(self.parts)
        self.controllers: tuple[Controller, ...] = (
            *built.all,
            *self.provider.build_controllers(self.parts),
            *self._zonal_controllers(),
        )
        gauges: tuple[GaugeReporter, ...] = (self.history, *self._build_node_gauges())
        if self.decision_log is not None:
            gauges = (self.decision_log, *gauges)
        if self.recording is not None:
            gauges = (self.recording, *gauges)
        self._reporters = (*gauges, *built.reporters)
        BUILD.labels(__version__, f"python{platform.python_version()}", platform.machine(), "").set(1)
        self._claim_history = built.claim_history
        self.get_informer(NodeClaim).on_change(self._claim_history.observe_claim)
        self._connect_controllers(built)
        self.notifier = build_notifier(
            settings, clock, self.provider.aws, process.may_write, process.in_thread
        )
        for service in self._list_services(built.disruption.take_situation):
            self.manager.add_service(service)

    def _list_services(self, take_situation: TakeSituation) -> Iterator[Callable[[], Awaitable[None]]]:
        """Whatever runs beside the controllers: watches, events, notifications, a recording, zonal shifts."""
        unread = SetAsideReporter(self.recorder, self.clock, "informer")
        for kind, informer in self.informers.items():
            informer.on_change(unread.observe_object)
            informer.on_failure = unread.report_failure
            yield Follower(
                self.kube,
                kind,
                informer,
                clock=self.clock,
                rng=self._chance,
                options=WatchOptions(on_trouble=self._build_error_handler(kind), optional=is_own_kind(kind)),
            ).run
        yield self.recorder.run
        if self.notifier is not None:
            self.history.add_listener(self.notifier.note_record)
            yield self.notifier.run
        if self.recording is not None:
            yield self.recording.run
            yield partial(self.recording.take_looks, take_situation)
        yield from self.zonal.services if self.zonal is not None else ()

    @property
    def list_told(self) -> Callable[[str], tuple[str, ...]] | None:
        """Which sinks of notifications heard of a record, by its id; None without sinks."""
        return self.notifier.list_sinks_told if self.notifier is not None else None

    def _zonal_controllers(self) -> Iterator[Controller]:
        if self.zonal is None:
            return
        yield self.zonal.controller
        schedule = self.zonal.options.rehearsal
        if schedule is not None and self.zonal.options.enabled:
            yield RehearsalController(
                self._seeing, self.get_informer(NodePool), schedule, self.clock, self.recorder
            )

    def _build_zonal(self, transport: Transport) -> ZonalService | None:
        """Zonal shifts: as ARC says, or elsewhere as operators do, where that is asked for."""
        aws = self.provider.aws
        if aws is None and not self.settings.enable_zonal_shift:
            return None
        return ZonalService(
            self.settings,
            ShiftClients(
                aws or NonAwsApi(self._list_sold_zones), self.kube, KubeClient(transport, self.clock)
            ),
            ShiftedCluster(
                self.gates,
                self.get_informer(Node),
                self.get_informer(NodeClaim),
                self._seeing,
                self.history,
            ),
            clock=self.clock,
            rng=self._chance,
            recorder=self.recorder,
        )

    async def _capture_snapshot(self) -> Snapshot:
        """The cluster as it is now, with what can be bought."""
        pools = [pool for pool in self.get_informer(NodePool) if self.ownership.owns_pool(pool)]
        offers = [(pool, await self._list_instance_types(pool)) for pool in pools]
        return self.capture.take_snapshot(offers, self.build_options(self.clock.now()))

    async def _list_instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self.parts.cloud.list_instance_types(pool)
        except DovetailError:
            return ()  # a pool whose class is not ready sells nothing yet

    async def _list_sold_zones(self) -> frozenset[str]:
        listed = [await self._list_instance_types(pool) for pool in self.get_informer(NodePool)]
        return frozenset(each.zone for types in listed for one in types for each in one.offerings)

    def _create_recorder(self, kube: KubeClient, chance: Random) -> EventRecorder:
        self.recorder = EventRecorder(kube, self.clock, chance)
        return self.recorder

    async def run(self, elected: Callable[[], Awaitable[None]] = at_once) -> None:
        """Work until stopped: listen from now on; act once elected and once everything has been heard."""

        await self.provider.prepare()
        if self.zonal is not None:
            await self.zonal.prepare()

        async def ready() -> None:
            # An empty cache looks like a world without nodes: acting on it would end machines undrained.
            await self._wait_for_caches()
            await elected()
            await self._restore_history()
            self._begin_history()

        with metrics.register_reporter(self._report_gauges):
            await self.manager.run(ready)

    def _build_decision_log(self, process: ProcessOptions) -> DecisionLog | None:
        """The log of decisions, if one is asked for: it hears of every record, and writes beside the rest."""
        plumbing = LogPlumbing(self.clock, self.provider.aws, process.may_write, process.in_thread)
        log = build_decision_log(self.settings, plumbing)
        if log is not None:
            self.history.add_listener(log.note_record)
            for service in log.services:
                self.manager.add_service(service)
        return log

    async def _restore_history(self) -> None:
        """Remember what the leaders before recorded; a log that does not answer holds nobody up for long."""
        if self.decision_log is None or not self.settings.history_keep:
            return
        try:
            async with asyncio.timeout(READ_BACK):
                self.history.restore_records(
                    await self.decision_log.read_back(self.settings.history_keep, self.settings.history_most)
                )
        except TimeoutError:
            self._log.warning("history is not read back: the decision log does not answer")

    def _begin_history(self) -> None:
        """From now on this process leads, and records what it decides under the name of its cluster."""
        home = self.get_informer(core.Namespace).get(CLUSTER_NAMESPACE)
        uid = home.uid if home is not None else ""
        if self.recording is not None:
            self.recording.begin_term(uid)
        self.history.begin_term(uid)
        if self.history.restored:
            self._claim_history.catch_up(self.get_informer(NodeClaim))

    def _build_recording(self, process: ProcessOptions) -> RecordingWriter | None:
        """The recording of what decisions see, if one is asked for: it hears of every record, too."""
        settings = self.settings
        if settings.recording is None:
            return None
        writer = RecordingWriter(
            open_place(settings.recording, self.clock, process.in_thread, self.provider.aws),
            self.clock,
            process.in_thread,
            read_recording_options(settings, process.identity, self._chance),
        )
        self.history.add_listener(writer.note_record)
        return writer

    async def _wait_for_caches(self) -> None:
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

    def _build_node_gauges(self) -> tuple[NodeGauges, ...]:
        if self.settings.disable_cluster_state_observability:
            return ()
        each = self.settings.metrics_detail == "full"
        return (NodeGauges(self.cluster, self.cloud.flavour, self.clock, each=each),)

    def render_metrics(self) -> bytes:
        """The numbers, in as much detail as was asked for."""
        return metrics.render_exposition(brief=self.settings.metrics_detail == "brief")

    def _report_gauges(self) -> None:
        """Someone looks at the numbers: count what is only counted then."""
        for reporter in self._reporters:
            reporter.report()

    def stop(self) -> None:
        self.manager.stop()

    def _build_cloud(self) -> Cloud:
        """The cloud as controllers call it: counted, and without zones that are shifted away."""
        metered: Cloud = MeteredCloud(self.cloud, self.clock)
        if self.settings.enable_zonal_shift and self.provider.aws is None:
            metered = ZoneExcludingCloud(metered, self.gates)
        return metered

    def _build_context(self, compute: Compute, class_kind: type[Object]) -> ControllerContext:
        cloud = self._build_cloud()
        overlaid = OverlaidCloud(cloud) if NodeOverlay in self.informers else None
        return ControllerContext(
            settings=self.settings,
            kube=self.kube,
            cloud=overlaid or cloud,
            clock=self.clock,
            recorder=self.recorder,
            history=self.history,
            compute=compute,
            cluster=self.cluster,
            capture=self.capture,
            pods=self.get_informer(Pod),
            nodes=self.get_informer(Node),
            claims=self.get_informer(NodeClaim),
            volumes=TerminationVolumes(
                self.get_informer(core.VolumeAttachment), self.get_informer(core.PersistentVolumeClaim)
            ),
            slices=self.informers.get(ResourceSlice),
            pools=self.get_informer(NodePool),
            classes=self.get_informer(class_kind),
            class_kind=class_kind,
            overlays=self.informers.get(NodeOverlay),
            overlaid=overlaid,
            buffers=self.buffers,
            ownership=self.ownership,
            options=self.build_options,
            gates=self.gates,
            cache=DecisionCache(),
            spend=self.spend,
            spend_limits=self.informers.get(SpendLimit),
            commitments=self.informers.get(Commitment),
            recording=self.recording,
        )

    def _connect_controllers(self, built: ControllerSet) -> None:
        """Give every controller its queue, and wake it as its triggers and its colleagues say."""
        queues = {each.name: self.manager.add(CallerController(each)) for each in self.controllers}
        for controller in self.controllers:
            self._connect_triggers(controller, queues[controller.name])
        for source in built.item_sources:
            source.on_item(queues[source.name].add)
        if self.buffers is not None:
            provisioner = built.provisioner
            self.buffers.on_resolved(provisioner.woken_by(queues[provisioner.name].add))
        if self.zonal is not None:
            shifts = self.zonal.controller
            shifts.on_wake(partial(queues[shifts.name].add, SINGLETON))

    def _connect_triggers(self, controller: Controller, queue: WorkQueue) -> None:
        for trigger in controller.triggers:

            def heard(before: Any, after: Any, keys: Any = trigger.keys) -> None:
                for key in keys(before, after):
                    queue.add(key)

            self.informers[trigger.kind].on_change(heard)
        if controller.singleton:
            queue.add(SINGLETON)

    def _build_error_handler(self, kind: type[Object]) -> Callable[[DovetailError], None]:
        informer = self.informers[kind]

        def tell(error: DovetailError) -> None:
            if isinstance(error, BadInput):
                return  # one object, which is named where it is heard of
            if kind in DISPENSABLE and isinstance(error, NotAuthorized):
                if not informer.synced:
                    about = {"kind": kind.__name__, "error": error}
                    self._log.warning("going on without a kind we may not see", **about)
                    informer.begin_list()
                    informer.end_list()
                return
            # What a person can mend is said as what to do.
            mend = GRANT if isinstance(error, NotAuthorized) else "cannot follow a kind for now"
            self._log.error(mend, kind=kind.__name__, error=error)

        return tell


def _list_indexes(provider: str) -> Indexes:
    """By what objects are looked up; a provider's own ways with it."""
    own = list_provider_indexes(provider)
    return {kind: {**INDEXES.get(kind, {}), **own.get(kind, {})} for kind in {**INDEXES, **own}}
