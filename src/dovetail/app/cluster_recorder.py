"""Recording a cluster that is only looked at: its caches are kept up to date, and looked at regularly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from dovetail.api.core import Namespace, Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.cluster_context import DISPENSABLE, ClusterContext
from dovetail.app.cluster_source import ClusterSource
from dovetail.app.fleet_notes import NOMINATED, FleetNotes
from dovetail.app.given_pools import GivenPools, install_pools, refuse_own_pools
from dovetail.app.live_cluster import OURS, LiveCluster, open_cluster, refresh_provider, take_situation
from dovetail.app.recordings import open_place
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, DovetailError, Gone, NotAuthorized
from dovetail.history.adopted_fleet import FleetAdopter
from dovetail.ports import RecordingPlace
from dovetail.runtime.events import CoreV1Event
from dovetail.runtime.informer import Informer
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.settings.decision_log import LogPlace

__all__ = ["ClusterRecorder", "RecordingPace", "record_cluster", "record_open_cluster"]

# Prices and availability are asked for again after this long. Seconds.
LEARN = 300.0
CLUSTER_NAMESPACE = "kube-system"
OPTIONAL: frozenset[type[Object]] = DISPENSABLE | {ZoneShift, CoreV1Event}
# Of a calm cluster an eager recorder writes this often that nothing differs.
CONFIRM = timedelta(seconds=30)
# How long the last look may take when recording ends. Seconds.
LAST_LOOK = 10.0


@dataclass(frozen=True, slots=True)
class RecordingPace:
    """How often a cluster is looked at, and how long segments in a folder are kept; None is for good."""

    every: timedelta
    keep: timedelta | None = None


async def record_cluster(
    where: ClusterSource,
    place: LogPlace,
    pace: RecordingPace,
    stop: asyncio.Event,
    remark: Callable[[str], None],
) -> int:
    """Record a cluster until told to stop; the number of looks. Nothing is written to the cluster."""
    async with open_cluster(where) as cluster:
        opened = open_place(place, cluster.sight.clock, asyncio.to_thread, None)
        return await record_open_cluster(cluster, opened, pace, stop, remark)


async def record_open_cluster(
    cluster: LiveCluster,
    place: RecordingPlace,
    pace: RecordingPace,
    stop: asyncio.Event,
    remark: Callable[[str], None],
    *,
    eager: bool = False,
    check: Callable[[ClusterContext], None] | None = None,
    given: GivenPools | None = None,
) -> int:
    """Record a cluster that is open already.

    An eager recorder looks at once when a node comes or goes and once more in the end, confirms that nothing
    differs, and notes when machines ended and which NodeClaims pods were nominated to; `check` is told when
    all is listed, before the first look, and may refuse the cluster. With pools that are `given`, the
    cluster's nodes are recorded as if these had made them.
    """
    sight = cluster.sight
    settings = {"PROVIDER": sight.settings.provider, **sight.settings.list_deciding()}
    writer = RecordingWriter(
        place,
        sight.clock,
        asyncio.to_thread,
        RecordingOptions(
            every=pace.every,
            confirm=CONFIRM if eager else None,
            keep=pace.keep,
            settings=settings,
            identity=f"dovetail record {cluster.name}",
        ),
    )
    recorder = ClusterRecorder(cluster, writer, remark, eager=eager, check=check, given=given)
    work = asyncio.create_task(recorder.run())
    ending = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((work, ending), return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            work.result()
        await recorder.look_last()
    finally:
        for task in (work, ending):
            task.cancel()
        await asyncio.gather(work, ending, return_exceptions=True)
    return writer.written


class ClusterRecorder:
    """Follows a cluster, and hands a writer what it sees."""

    def __init__(
        self,
        cluster: LiveCluster,
        writer: RecordingWriter,
        remark: Callable[[str], None],
        *,
        eager: bool = False,
        check: Callable[[ClusterContext], None] | None = None,
        given: GivenPools | None = None,
    ) -> None:
        self._cluster = cluster
        self._sight = cluster.sight
        self._writer = writer
        self._remark = remark
        self._remarked: set[str] = set()
        self._shifts = Informer(ZoneShift)
        self._eager = eager
        self._given = given
        self._adopter = FleetAdopter()
        self._check = check
        self._moved = asyncio.Event()
        self._looking = False
        self._events = Informer(CoreV1Event)
        self._notes = FleetNotes(self._sight.clock, writer.note_record, cluster.name)

    async def run(self) -> None:
        """Record until cancelled."""
        given = self._given
        kinds: dict[type[Object], Informer[Any]] = dict(self._sight.informers)
        if given is not None:
            await refuse_own_pools(self._sight)
            kinds = {kind: each for kind, each in kinds.items() if not given.lists_kind(kind)}
        kinds[ZoneShift] = self._shifts
        if self._eager:
            kinds[CoreV1Event] = self._events
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in kinds.items():
                tasks.create_task(self._build_follower(kind, informer).run())
            for informer in kinds.values():
                await informer.wait_synced()
            if given is not None:
                install_pools(self._sight, given)
            await self._sight.provider.prepare()
            await self._refresh_provider()
            if self._check is not None:
                self._check(self._sight)
            tasks.create_task(self._refresh_regularly())
            home = self._sight.get_informer(Namespace).get(CLUSTER_NAMESPACE)
            self._writer.begin_term(home.uid if home is not None else "")
            tasks.create_task(self._writer.run())
            tasks.create_task(self._writer.take_looks(self._take_situation))
            if self._eager:
                self._sight.get_informer(Node).on_change(self._notice_node)
                self._sight.get_informer(NodeClaim).on_change(self._notice_claim)
                self._events.on_change(lambda before, after: self._notes.hear_event(after))
                tasks.create_task(self._look_at_once())
                self._looking = True

    async def look_last(self) -> None:
        """One more look, as recording ends: what came since the last one is not lost."""
        if self._looking:
            with suppress(TimeoutError, DovetailError):
                async with asyncio.timeout(LAST_LOOK):
                    self._writer.note_look(await self._take_situation())

    def _notice_node(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None:
            self._moved.set()

    def _notice_claim(self, before: NodeClaim | None, after: NodeClaim | None) -> None:
        if self._notes.hear_claim(before, after):
            self._moved.set()

    async def _look_at_once(self) -> None:
        """Look whenever a machine came or went, but not more often than once a second."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            self._writer.note_look(await self._take_situation())
            await self._sight.clock.sleep(1.0)

    async def _take_situation(self) -> Situation:
        situation = await take_situation(self._sight, tuple(self._shifts), self._remark_once)
        return self._adopter.adopt(situation) if self._given is not None else situation

    def _remark_once(self, text: str) -> None:
        if text not in self._remarked:
            self._remarked.add(text)
            self._remark(text)

    async def _refresh_regularly(self) -> None:
        while True:
            await self._sight.clock.sleep(LEARN)
            await self._refresh_provider()

    async def _refresh_provider(self) -> None:
        for assumed in await refresh_provider(self._sight):
            self._remark_once(assumed)

    def _build_follower(self, kind: type[Object], informer: Informer[Any]) -> Follower[Any]:
        def trouble(error: DovetailError) -> None:
            # A cluster without NodePools of its own need not know any kind of ours.
            ours = kind.KIND.group in OURS and self._given is None
            unknown = isinstance(error, Gone) and not ours
            if unknown or (kind in OPTIONAL and isinstance(error, NotAuthorized)):
                if not informer.synced:
                    informer.begin_list()
                    informer.end_list()
            elif not isinstance(error, BadInput):
                self._remark_once(f"the {kind.KIND.plural} cannot be read: {error}")

        # Of events, only those that say which node a pod waits for: a cluster has very many others.
        fields = f"reason={NOMINATED}" if kind is CoreV1Event else ""
        return Follower(
            self._sight.kube,
            kind,
            informer,
            clock=self._sight.clock,
            rng=Random(0),
            options=WatchOptions(fields=fields, on_trouble=trouble),
        )
