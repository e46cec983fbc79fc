"""What happens to a cluster beside its demand happens to its twin at the same time, or is told."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.history.shadow_claim import find_wrong_assumptions
from dovetail.play.shadow_twins import CALIBRATION, ShadowTwins, TwinConsumer, replay_span
from dovetail.play.shadowing import SegmentFeed, feed_segments
from dovetail.sim.cluster.kubelet import Kubelet
from dovetail.sim.scenario import (
    ReplicaCurve,
    Scenario,
    ScenarioEvent,
    ScenarioRollout,
    ScenarioShift,
    ScenarioWorkload,
)
from dovetail.sim.world import World
from support.shadowed import ClusterShadow, list_sources, read_story, watch_story

ZONE = "test-zone-a"
# A look is taken every ten seconds.
LOOK = timedelta(seconds=11)
SHIFTED, BACK, ROLLED_OUT = timedelta(minutes=20), timedelta(minutes=80), timedelta(minutes=95)


class NodeWatch:
    """When nodes of the zone came and went, and when ReplicaSets were made, by what is committed."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self.came: list[tuple[datetime, str]] = []
        self.marked: list[tuple[datetime, str]] = []
        self.sets: dict[str, datetime] = {}
        self._cordons: list[tuple[datetime, str, bool | None]] = []
        self._known = {
            each["metadata"]["name"] for each in world.api.list("nodeclaims.karpenter.sh") if self._zone(each)
        }
        world.server.store.on_commit(self._note, "nodeclaims.karpenter.sh", "replicasets.apps")
        for node in world.api.list("nodes"):
            self._note_cordon(node, gone=False)
        world.server.store.on_commit(
            lambda event: self._note_cordon(event.new.obj, gone=event.type == "DELETED"), "nodes"
        )

    def _note(self, event: Any) -> None:
        obj, now = event.new.obj, self._clock.now()
        meta = obj["metadata"]
        if event.new.info.plural == "replicasets":
            self.sets.setdefault(meta["name"].partition(".")[0], now)
            return
        zone = self._zone(obj)
        if zone and meta["name"] not in self._known:
            self._known.add(meta["name"])
            self.came.append((now, zone))
        reasons = {each["type"] for each in (obj.get("status") or {}).get("conditions") or ()}
        if zone and event.type != "DELETED" and "DisruptionReason" in reasons:
            self.marked.append((now, zone))

    def _note_cordon(self, node: Any, *, gone: bool) -> None:
        if self._zone(node) == ZONE:
            cordoned = None if gone else bool(node["spec"].get("unschedulable"))
            self._cordons.append((self._clock.now(), node["metadata"]["name"], cordoned))

    def list_cordons(self, at: datetime) -> list[bool]:
        """Whether each node of the zone was cordoned at a time."""
        known = {name: cordoned for time, name, cordoned in self._cordons if time <= at}
        return [cordoned for cordoned in known.values() if cordoned is not None]

    @staticmethod
    def _zone(claim: Any) -> str:
        return str((claim["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone", ""))

    def list_zones(self, what: str, since: datetime, until: datetime) -> list[str]:
        """The zones of nodes that came, or that were disrupted by choice, in a time."""
        return [zone for at, zone in getattr(self, what) if since <= at < until]


def build_story() -> Scenario:
    """Half of the pods go while a zone is shifted away, and others come; then all are rolled out anew."""
    story = read_story("zonal-shift", "110m")
    falls = ReplicaCurve(curve="bursty", base=20, burst=80, every="5h", lasts="25m")
    comes = ReplicaCurve(curve="bursty", base=30, burst=0, every="5h", lasts="30m")
    web = replace(story.workloads[0], replicas=falls)
    late = ScenarioWorkload(name="late", cpu="3", memory="4Gi", replicas=comes)
    shift = ScenarioEvent(at="20m", zonal_shift=ScenarioShift(zone=ZONE, lasts="60m"))
    rollout = ScenarioEvent(at="95m", rollout=ScenarioRollout(workload="web"))
    return replace(
        story,
        settings={"FEATURE_GATES": "NodeRepair=true", "ENABLE_DO_NOT_DISRUPT": "true"},
        pools=[replace(story.pools[0], consolidate_after="1m", budgets=[{"nodes": "100%"}])],
        workloads=[web, late],
        events=[shift, rollout],
    )


@pytest.mark.spec("SH-9")
def test_a_zonal_shift_and_a_rollout_happen_in_the_twin_at_the_same_time(tmp_path: Path) -> None:
    story = build_story()
    real: list[NodeWatch] = []
    twin: list[NodeWatch] = []
    shadow = ClusterShadow(tmp_path / "recording", after=300.0)
    watch_story(story, shadow, on_start=lambda world: real.append(NodeWatch(world)))
    consumer = TwinConsumer("dovetail", ShadowTwins())
    taken = consumer.add_look

    def add_look(look: Any) -> None:
        taken(look)
        if not twin:
            assert consumer._run is not None
            twin.append(NodeWatch(consumer._run.world))

    consumer.add_look = add_look  # type: ignore[method-assign]
    feed_segments(list_sources(shadow.folder), (SegmentFeed(consumer),))
    consumer.catch_up()
    consumer.close()
    began, ended = story.start + SHIFTED + LOOK, story.start + BACK - LOOK
    for watch in (*real, *twin):
        elsewhere = watch.list_zones("came", began, ended)
        assert elsewhere, "nodes were bought meanwhile"
        assert ZONE not in elsewhere
        assert ZONE not in watch.list_zones("marked", began, ended)
        assert watch.list_zones("marked", began, ended), "nodes of other zones were consolidated meanwhile"
        # Nothing is moved to a node that is there, either: each is cordoned, and released when all is over.
        assert set(watch.list_cordons(began - 2 * LOOK)) == {False}
        for share in (0.1, 0.5, 1.0):
            assert set(watch.list_cordons(began + share * (ended - began))) == {True}
        assert True not in watch.list_cordons(story.start + timedelta(minutes=109))
    rolled = [name for name, at in real[0].sets.items() if at >= story.start + ROLLED_OUT]
    assert rolled
    for name in rolled:
        assert abs(twin[0].sets[name] - real[0].sets[name]) <= LOOK


async def change_boots(world: World, registers: str, ready: float) -> None:
    """From the first second on machines take so long until they register, and then until they are ready."""
    await world.clock.sleep(0.5)
    patch = {"spec": {"nodeRegistrationDelay": registers}}
    world.api.patch("kwoknodeclasses.karpenter.kwok.sh", "default", patch)
    kubelet = world.neighbours["kubelet"]
    assert isinstance(kubelet, Kubelet)
    kubelet.options = dataclasses.replace(kubelet.options, node_ready=ready)


@pytest.mark.spec("SH-6")
@pytest.mark.parametrize(
    ("boots", "said"),
    [
        (
            ("10m", 600.0),
            ["boot time: nodes took 20 min from launch to ready on 2026-01-05, and the model assumed 40 s"],
        ),
        (("30s", 10.0), []),
    ],
)
def test_slow_boots_are_noticed_the_same_day_and_named(
    tmp_path: Path, boots: tuple[str, float], said: list[str]
) -> None:
    """Nobody has seen a machine boot when the shadow begins; how the report says it is a unit test."""
    bursts = ReplicaCurve(curve="bursty", base=4, burst=16, every="40m", lasts="15m")
    story = replace(
        read_story("inflate", "70m"),
        workloads=[ScenarioWorkload(name="web", cpu="1500m", memory="2Gi", replicas=bursts)],
        step="1m",
    )
    shadow, tasks = ClusterShadow(tmp_path / "recording"), []

    def begin(world: World) -> None:
        tasks.append(asyncio.get_running_loop().create_task(change_boots(world, *boots)))

    watch_story(story, shadow, on_start=begin)
    assert [task.exception() for task in tasks] == [None]
    bill = replay_span(list_sources(shadow.folder), CALIBRATION, ShadowTwins())
    assert bill is not None
    assert sum(each.nodes for each in bill.boots) >= 3
    assert find_wrong_assumptions(bill) == said
