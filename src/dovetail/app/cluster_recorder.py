"""Recording a cluster that is only looked at: its caches are kept up to date, and looked at regularly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from dovetail.app.live_cluster import OURS, LiveCluster, open_cluster, refresh_provider, take_situation
from dovetail.app.recordings import open_place
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, DovetailError, Gone, NotAuthorized
from dovetail.ports import RecordingPlace
from dovetail.runtime.informer import Informer
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.settings.decision_log import LogPlace

__all__ = ["ClusterRecorder", "RecordingPace", "record_cluster", "record_open_cluster"]

# Prices and availability are asked for again after this long. Seconds.
LEARN = 300.0
CLUSTER_NAMESPACE = "kube-system"
OPTIONAL: frozenset[type[Object]] = DISPENSABLE | {ZoneShift}


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
) -> int:
    """Record a cluster that is open already.

    An eager recorder looks at once when a node comes or goes; `check` is told when all is listed, before the
    first look, and may refuse the cluster.
    """
    sight = cluster.sight
    settings = {"PROVIDER": sight.settings.provider, **sight.settings.list_deciding()}
    writer = RecordingWriter(
        place,
        sight.clock,
        asyncio.to_thread,
        RecordingOptions(
            every=pace.every,
            keep=pace.keep,
            settings=settings,
            identity=f"dovetail record {cluster.name}",
        ),
    )
    recorder = ClusterRecorder(cluster, writer, remark, eager=eager, check=check)
    work = asyncio.create_task(recorder.run())
    ending = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((work, ending), return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            work.result()
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
    ) -> None:
        self._cluster = cluster
        self._sight = cluster.sight
        self._writer = writer
        self._remark = remark
        self._remarked: set[str] = set()
        self._shifts = Informer(ZoneShift)
        self._eager = eager
        self._check = check
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Record until cancelled."""
        kinds: dict[type[Object], Informer[Any]] = dict(self._sight.informers)
        kinds[ZoneShift] = self._shifts
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in kinds.items():
                tasks.create_task(self._build_follower(kind, informer).run())
            for informer in kinds.values():
                await informer.wait_synced()
            await self._sight.provider.prepare()
            await refresh_provider(self._sight)
            if self._check is not None:
                self._check(self._sight)
            tasks.create_task(self._refresh_regularly())
            home = self._sight.get_informer(Namespace).get(CLUSTER_NAMESPACE)
            self._writer.begin_term(home.uid if home is not None else "")
            tasks.create_task(self._writer.run())
            tasks.create_task(self._writer.take_looks(self._take_situation))
            if self._eager:
                self._sight.get_informer(Node).on_change(self._notice_machine)
                self._sight.get_informer(NodeClaim).on_change(self._notice_machine)
                tasks.create_task(self._look_at_once())

    def _notice_machine(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None:
            self._moved.set()

    async def _look_at_once(self) -> None:
        """Look whenever a machine came or went, but not more often than once a second."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            self._writer.note_look(await self._take_situation())
            await self._sight.clock.sleep(1.0)

    async def _take_situation(self) -> Situation:
        return await take_situation(self._sight, tuple(self._shifts), self._remark_once)

    def _remark_once(self, text: str) -> None:
        if text not in self._remarked:
            self._remarked.add(text)
            self._remark(text)

    async def _refresh_regularly(self) -> None:
        while True:
            await self._sight.clock.sleep(LEARN)
            await refresh_provider(self._sight)

    def _build_follower(self, kind: type[Object], informer: Informer[Any]) -> Follower[Any]:
        def trouble(error: DovetailError) -> None:
            unknown = isinstance(error, Gone) and kind.KIND.group not in OURS
            if unknown or (kind in OPTIONAL and isinstance(error, NotAuthorized)):
                if not informer.synced:
                    informer.begin_list()
                    informer.end_list()
            elif not isinstance(error, BadInput):
                self._remark_once(f"the {kind.KIND.plural} cannot be read: {error}")

        return Follower(
            self._sight.kube,
            kind,
            informer,
            clock=self._sight.clock,
            rng=Random(0),
            options=WatchOptions(on_trouble=trouble),
        )
