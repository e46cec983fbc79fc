"""ReplayRun: recorded demand played under other rules, in virtual time, as looks come in.

    run = ReplayRun(looks[0], Variation(name="spot", settings=…, manifests=…), seed=1)
    for look in looks[1:]:
        run.feed(look)
    run.advance_to(looks[-1].at)
    run.bill()

The world is a simulated cluster with the controllers themselves. It begins as the first look was and then has
nothing in common with the recording but what it was asked for: which pods are wanted, what is sold at which
price, how long machines boot, and which of them the cloud takes back. A whole replay feeds all looks and
advances to the last; a twin beside a cluster feeds each look as it is made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Literal

from dovetail.api import codec, crds
from dovetail.api.commitment import Commitment
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.crds import find_provider_api
from dovetail.api.meta import Object
from dovetail.app.controller import Dovetail
from dovetail.controllers.disruption import DisruptionController
from dovetail.controllers.provider_port import ProviderContext
from dovetail.disruption.policy import read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.history.demand import DemandChange, DemandReader, RecordedWorkload
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.spot_choices import SpotChoices
from dovetail.history.supply import BootTimes, ReclaimReader, RecordedReclaim, SpotPlace
from dovetail.play.kept_pods import KeptPods
from dovetail.play.recorded_changes import apply_storage, apply_world_changes
from dovetail.play.recorded_cloud import Assumption, RecordedCloud
from dovetail.play.recorded_cordons import ZoneCordons
from dovetail.play.recorded_objects import build_pod, build_replicaset, name_replicaset
from dovetail.play.recorded_start import fill_world
from dovetail.play.replay_meter import ReplayBill, ReplayMeter
from dovetail.play.replay_settings import FOLLOWED_BY, build_environment
from dovetail.play.replayed_spot import SpotReclaims
from dovetail.play.started_world import ReplacedObjects, StartedWorld
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.settings import Settings, read_settings
from dovetail.sim.clock import VirtualClock, VirtualLoop
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.cluster.kubelet import KubeletOptions
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.transport import LocalTransport
from dovetail.sim.volatile_cloud import CatalogueProvider
from dovetail.sim.world import World

__all__ = ["ReplayFacts", "ReplayRun", "Variation", "learn_facts"]

Json = dict[str, Any]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
# As rarely as nodes may speak that are not to be taken for lost after 50 seconds.
HEARTBEAT = 40.0
# As rarely as watches bear: each tells that nothing happened.
BOOKMARKS = 60.0


@dataclass(frozen=True, slots=True)
class Variation:
    """The rules a replay follows.

    `settings` are those of the recording with what is tried; `recorded_settings` are those of the recording
    alone, which tell what its controller added to NodePools. `manifests` replace their namesakes. With
    `choices` `karpenter` the planner is Karpenter's and NodePools have no knobs of ours.
    """

    name: str = "dovetail"
    choices: Literal["dovetail", "karpenter"] = "dovetail"
    provider: str = "kwok"
    settings: Mapping[str, str] = field(default_factory=dict)
    recorded_settings: Mapping[str, str] = field(default_factory=dict)
    manifests: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """What is known of a recording when all of it can be read before any of it is played.

    A twin that is fed as things happen has none of it, and learns as it goes.
    """

    boots: BootTimes = field(default_factory=BootTimes)
    works: Mapping[str, float] = field(default_factory=dict)
    hazard: float | None = None
    places: frozenset[SpotPlace] = frozenset()


def learn_facts(looks: Iterable[RecordedLook]) -> ReplayFacts:
    """Read a recording to its end for what a replay of it should know from the start."""
    boots, demand, reclaims = BootTimes(), DemandReader(), ReclaimReader()
    for look in looks:
        boots.read_look(look.situation)
        demand.read_look(look.at, look.situation)
        reclaims.read_look(look.at, look.situation)
    return ReplayFacts(boots, dict(demand.works), reclaims.hazard, frozenset(reclaims.places))


@dataclass(slots=True)
class _FedLook:
    """A look that was fed, with what changed since the one before, until it is played."""

    at: datetime
    situation: Situation
    changes: list[DemandChange]
    reclaims: list[RecordedReclaim]


class ReplayRun:
    """One recording replayed under one variation. `feed` looks in their order, and `advance_to` a time.

    It runs its own event loop in virtual time, so its methods are called from outside of any other: a server
    that keeps one gives it a thread or a process. The same looks, variation, seed and assumption give the
    same bill, byte for byte. Call `close` in the end.
    """

    def __init__(
        self,
        start: RecordedLook,
        variation: Variation,
        seed: int = 0,
        assume: Assumption = "observed",
        facts: ReplayFacts | None = None,
    ) -> None:
        """Begin with the cluster as the start look has it, with its own nodes, pods and prices."""
        self.variation = variation
        self.facts = facts or ReplayFacts()
        self._learns = facts is None
        self._start = start
        self._assume: Assumption = assume
        self._seed = seed
        self._demand = DemandReader()
        self._reclaims = ReclaimReader()
        self._choices = SpotChoices()
        self._fed: deque[_FedLook] = deque()
        self._returned: dict[str, datetime] = {}
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._tasks: list[asyncio.Task[None]] = []
        self.world: World
        self.cloud: RecordedCloud
        self.spot: SpotReclaims
        self._runner.run(self._begin())

    @property
    def now(self) -> datetime:
        """The time that the replayed cluster has reached."""
        return self.world.clock.now()

    @property
    def hazard(self) -> float:
        """The share of spot nodes that is taken back in an hour, as far as it is known."""
        return self.facts.hazard if self.facts.hazard is not None else self._reclaims.hazard

    def feed(self, look: RecordedLook) -> None:
        """Take in the next look of the recording; what it says happens when its time comes."""
        situation = look.situation
        if self._learns:
            self.facts.boots.read_look(situation)
        self._choices.read_look(situation)
        self._fed.append(
            _FedLook(
                look.at,
                situation,
                self._demand.read_look(look.at, situation),
                self._reclaims.read_look(look.at, situation),
            )
        )

    def advance_to(self, time: datetime) -> None:
        """Let the replayed cluster live until this time, with all that was fed until then."""
        self._runner.run(self._advance(time))

    def bill(self) -> ReplayBill:
        """What it came to so far: dollars, node hours, evictions, waits, unplaced pods and repeated work."""
        return self._meter.build_bill(self._pods.job_hours, self._pods.repeated_hours)

    def look(self) -> Situation:
        """The replayed cluster's nodes, pods and PodDisruptionBudgets as they are now."""
        cluster = self._dovetail.cluster
        budgets = tuple(self._dovetail.get_informer(PodDisruptionBudget))
        nodes = tuple(tracked.state for tracked in cluster)
        return Situation(Snapshot(nodes=nodes, pods=cluster.pending, budgets=budgets))

    def close(self) -> None:
        """End the controllers and the event loop."""
        self._runner.run(self._end())
        self._runner.close()

    async def _begin(self) -> None:
        variation, start = self.variation, self._start
        clock = VirtualClock(start.at)
        world = World(clock, self._seed, options=SimClusterOptions(KubeletOptions(heartbeat=HEARTBEAT)))
        world.server.bookmark_every = BOOKMARKS
        self.world = world
        self.spot = SpotReclaims(world, Random(f"{self._seed} of a replay"))
        own = _list_own_kinds(variation)
        for definition in (*crds.build_manifests(variation.provider), *map(crds.build_own_manifest, own)):
            world.api.create(DEFINITIONS, definition)
        settings = _read_varied_settings(variation, own)
        recorded = read_settings(
            (), build_environment(variation.recorded_settings), provider=variation.provider
        )
        dovetail = Dovetail(
            settings,
            LocalTransport(world.server),
            clock=clock,
            chance=Random(self._seed),
            provider=variation.provider,
            make=self._make_provider,
        )
        dovetail.recorder.mute()
        if variation.choices == "karpenter":
            _drift_one_by_one(dovetail)
        self.cloud.keep_books(world.server.store)
        self._pods = KeptPods(world.manager)
        world.manager.add(self._pods)
        self._api = InternalApi(world.server, "replay", world.manager.templates)
        committed = _list_commitments(variation) if settings.commitments != "Off" else []
        self._meter = ReplayMeter(world.server.store, clock, committed)
        self._started = StartedWorld(
            world,
            self._api,
            find_provider_api(variation.provider).kind,
            read_default_annotations(recorded),
            variation.choices == "dovetail",
            ReplacedObjects.from_manifests(variation.manifests),
        )
        if self._learns:
            self.facts.boots.read_look(start.situation)
        self._choices.skip_nodes(start.situation)
        changes = self._demand.read_look(start.at, start.situation)
        self._reclaims.read_look(start.at, start.situation)
        self._dovetail = dovetail
        self._take_supply(start.situation)
        self._shift_zones(start.at, start.situation)
        fill_world(self._started, start.situation, changes, self._pods, self.facts.works)
        self._cordons = ZoneCordons(self._started)
        self._cordons.follow_look(start.situation)
        self._tasks = [
            asyncio.create_task(world.manager.run()),
            asyncio.create_task(world.server.run()),
            asyncio.create_task(dovetail.run()),
        ]
        await asyncio.sleep(0)

    def _make_provider(self, given: ProviderContext) -> CatalogueProvider:
        self.cloud = RecordedCloud(
            given, self.variation.provider, self._assume, self.facts.boots, self._choices
        )
        return CatalogueProvider(self.cloud)

    async def _end(self) -> None:
        self._dovetail.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _advance(self, time: datetime) -> None:
        while self._fed and self._fed[0].at <= time:
            look = self._fed.popleft()
            apply_storage(self._started, look.situation.snapshot.storage)  # before the pods that need it
            for change in look.changes:
                await self._live_until(change.at)
                self._apply_change(change)
            await self._live_until(look.at)
            self._apply_look(look)
        await self._live_until(time)

    async def _live_until(self, time: datetime) -> None:
        while (due := self.spot.find_next_end(time)) is not None:
            await self._sleep_until(due)
            self.spot.end_machines(due)
        await self._sleep_until(time)
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise RuntimeError("a part of the replayed cluster has ended") from task.exception()

    async def _sleep_until(self, time: datetime) -> None:
        left = (time - self.now).total_seconds()
        if left > 0:
            await self.world.clock.sleep(left)

    def _take_supply(self, situation: Situation) -> None:
        if self.cloud.take_offers(situation.snapshot, situation.closed_zones):
            self._meter.take_prices(situation, self._reclaims.places | self.facts.places)

    def _shift_zones(self, at: datetime, situation: Situation) -> None:
        """A zone that is shifted away in the recording is so here: nothing is launched or disrupted in it."""
        back = situation.returned_zones
        self._returned = {zone: self._returned.get(zone, at) for zone in sorted(back)}
        closed = situation.closed_zones
        self._dovetail.gates.set_closed(frozenset(closed), situation.excluded_zones, self._returned, closed)

    def _apply_look(self, look: _FedLook) -> None:
        self._take_supply(look.situation)
        self._shift_zones(look.at, look.situation)
        apply_world_changes(self._started, look.situation)
        self._cordons.follow_look(look.situation)
        for reclaim in look.reclaims:
            self.spot.reclaim_share(reclaim)
        self.spot.reclaim_unknown(look.at, self.hazard, self._reclaims.places | self.facts.places)

    def _apply_change(self, change: DemandChange) -> None:
        workload = change.workload
        if change.what == "scale":
            self._scale(workload, change)
        elif change.what == "come":
            job = workload.kind == "Job"
            self._started.ensure_namespace(workload.namespace)
            self._started.ensure_priority(change.pod)
            self._pods.keep_pod(
                change.slot, build_pod(change.pod, workload), job=job, work=self.facts.works.get(change.slot)
            )
        else:
            self._pods.drop_pod(change.slot, change.work)

    def _scale(self, workload: RecordedWorkload, change: DemandChange) -> None:
        name, namespace = name_replicaset(workload), workload.namespace
        stored = self.world.server.store.get("replicasets.apps", (namespace, name))
        if stored is None:
            pod = self._started.replaced.reshape_pod(workload, change.pod)
            self._started.ensure_namespace(namespace)
            self._started.ensure_priority(pod)
            family = self._started.ensure_family(workload, change.pod)
            self._api.insert("replicasets.apps", build_replicaset(workload, pod, change.count, family))
            return
        spec = {**stored.obj["spec"], "replicas": change.count}
        self._api.amend("replicasets.apps", (namespace, name), spec=spec)


def _drift_one_by_one(dovetail: Dovetail) -> None:
    """Karpenter takes one drifted node a turn, however many its budgets let go."""
    for controller in dovetail.controllers:
        if isinstance(controller, DisruptionController):
            controller.drift_at_once = 1


def _list_own_kinds(variation: Variation) -> list[type[Object]]:
    """The kinds of our own among what is tried."""
    kinds = {each.get("kind") for each in variation.manifests}
    return [kind for kind in FOLLOWED_BY if kind.KIND.kind in kinds]


def _read_varied_settings(variation: Variation, own: Sequence[type[Object]]) -> Settings:
    """What is tried is to be followed, unless the variation says otherwise."""
    followed = dict(FOLLOWED_BY[kind] for kind in own)
    environment = build_environment({**followed, **variation.settings}, variation.choices == "karpenter")
    return read_settings((), environment, provider=variation.provider)


def _list_commitments(variation: Variation) -> list[Commitment]:
    kind = Commitment.KIND.kind
    return [codec.convert(Commitment, each) for each in variation.manifests if each.get("kind") == kind]
