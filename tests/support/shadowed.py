"""A shadow beside a simulated cluster: a scenario is played, and watched by one that may only read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.app.cluster_recorder import CONFIRM, ClusterRecorder
from dovetail.app.live_cluster import LiveCluster, build_sight
from dovetail.controllers.provider_port import MakeProvider
from dovetail.history.recording.reader import SegmentSource
from dovetail.history.shadow import ShadowFold
from dovetail.play import ScenarioRun, play_scenario, read_scenario
from dovetail.play.shadowing import SegmentFeed, TeePlace
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.kubeconfig import Connection
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import RecordingFolder, read_recording
from dovetail.settings import Settings, read_settings
from dovetail.sim.scenario import Scenario
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.read_only import ReadOnlyTransport, ReadVerbsOnly

__all__ = [
    "SCENARIOS",
    "ClaimLedger",
    "ClusterShadow",
    "WatchedStory",
    "list_sources",
    "read_story",
    "watch_story",
]

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
PRICE = "eks-node-viewer/instance-price"


async def run_at_once(work: Any) -> Any:
    return work()


class ClaimLedger:
    """What nodes really cost: by what the API server commits, and by nothing that the shadow uses."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._claims: dict[str, dict[str, Any]] = {}
        self._gone: dict[str, datetime] = {}
        self._prices: dict[str, float] = {}
        world.server.store.on_commit(self._note, "nodeclaims.karpenter.sh", "nodes")

    def _note(self, event: Any) -> None:
        obj = event.new.obj
        if event.new.info.plural == "nodes":
            price = (obj["metadata"].get("labels") or {}).get(PRICE)
            if price:
                self._prices[obj["spec"].get("providerID", "")] = float(price)
            return
        uid = obj["metadata"]["uid"]
        self._claims[uid] = obj
        if event.type == "DELETED":
            self._gone[uid] = self._clock.now()

    def sum_paid(self, since: datetime, until: datetime) -> float:
        """Each NodeClaim from its Launched to its InstanceTerminating, or to its deletion, at its price."""
        total = 0.0
        for uid, claim in self._claims.items():
            said = {
                each["type"]: datetime.fromisoformat(each["lastTransitionTime"])
                for each in (claim.get("status") or {}).get("conditions") or ()
                if each["status"] == "True"
            }
            if "Launched" not in said:
                continue
            ends = [each for each in (self._gone.get(uid), said.get("InstanceTerminating")) if each]
            length = (min([*ends, until]) - max(said["Launched"], since)).total_seconds()
            price = self._prices.get(claim["status"].get("providerID", ""))
            if length > 0 and price is not None:
                total += length / 3600 * price
        return total


class _MortalPlace:
    """A place of a recording whose process may die: from then on nothing reaches it."""

    def __init__(self, folder: Path) -> None:
        self._inner = RecordingFolder(folder, run_at_once)
        self.dead = False

    async def begin_segment(self, name: str) -> None:
        if not self.dead:
            await self._inner.begin_segment(name)

    async def append_bytes(self, data: bytes) -> None:
        if not self.dead:
            await self._inner.append_bytes(data)

    async def end_segment(self) -> None:
        if not self.dead:
            await self._inner.end_segment()

    async def forget_before(self, time: datetime) -> None:
        """It keeps all."""


@dataclass
class ClusterShadow:
    """A shadow of a simulated cluster, with a transport that refuses writes.

    It begins `after` so many seconds. It is killed without a word at each of `kills`, seconds after the
    start, and is `away` for a while each time.
    """

    folder: Path
    after: float = 0.0
    kills: tuple[float, ...] = ()
    away: float = 10.0
    client: str = "shadow"
    # Whether what it records is compared while it watches.
    follows: bool = True
    fold: ShadowFold = field(default_factory=ShadowFold)
    remarks: list[str] = field(default_factory=list)
    settings: Settings = field(default_factory=lambda: read_settings((), {}, provider="kwok"))
    make: MakeProvider = KwokProvider

    def start(self, world: World) -> None:
        """Begin to watch, from outside."""
        self.rights = ReadVerbsOnly(self.client)
        world.server.faults = self.rights
        self.transport = ReadOnlyTransport(LocalTransport(world.server, f"{self.client}/1"))
        self.task = asyncio.get_running_loop().create_task(self._watch(world))

    async def stop(self) -> None:
        """End with the end of a segment, as on Ctrl-C."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _watch(self, world: World) -> None:
        clock, began = world.clock, world.clock.now()
        await clock.sleep(self.after)
        for kill in self.kills:
            place = _MortalPlace(self.folder)
            work = asyncio.create_task(self._build_recorder(world, place).run())
            await clock.sleep(kill - (clock.now() - began).total_seconds())
            place.dead = True
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await clock.sleep(self.away)
        await self._build_recorder(world, _MortalPlace(self.folder)).run()

    def _build_recorder(self, world: World, place: _MortalPlace) -> ClusterRecorder:
        sight = build_sight(self.transport, self.settings, self.make, clock=world.clock)
        sight.kube._may_write = lambda: True  # so that an attempt is seen
        tee = TeePlace(place, [SegmentFeed(self.fold)] if self.follows else [])
        told = {"PROVIDER": self.settings.provider, **self.settings.list_deciding()}
        options = RecordingOptions(settings=told, confirm=CONFIRM)
        writer = RecordingWriter(tee, world.clock, run_at_once, options)
        cluster = LiveCluster(
            Connection("http://it.example", lambda: pytest.fail("nobody signs in")), "it", sight
        )
        return ClusterRecorder(cluster, writer, self.remarks.append, eager=True)


@dataclass
class WatchedStory:
    """A scenario that was played, its shadow, and what its nodes really cost."""

    shadow: ClusterShadow
    ledger: ClaimLedger

    @property
    def fold(self) -> ShadowFold:
        """What the shadow found while it watched."""
        return self.shadow.fold


def read_story(name: str, duration: str, **settings: str) -> Scenario:
    """A shipped scenario, for so long, with these settings of its controller."""
    story = read_scenario(SCENARIOS / f"{name}.yaml")
    return replace(story, duration=duration, settings={**story.settings, **settings})


def watch_story(
    story: Scenario,
    shadow: ClusterShadow,
    *others: ClusterShadow,
    on_start: Callable[[World], object] = lambda world: None,
) -> WatchedStory:
    """Play a scenario with shadows beside it."""
    ledgers: list[ClaimLedger] = []

    def start(run: ScenarioRun) -> None:
        on_start(run.world)
        ledgers.append(ClaimLedger(run.world))
        for each in (*others, shadow):
            each.start(run.world)

    play_scenario(story, on_start=start)
    return WatchedStory(shadow, ledgers[0])


def list_sources(folder: Path) -> list[SegmentSource]:
    """The segments of a recording, the oldest first."""
    return [segment.source for segment in read_recording(str(folder)).segments]
