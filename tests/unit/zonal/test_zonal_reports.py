"""What is told of pods that wait for a zone that is shifted away, and conditions that keep their time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dovetail.api.core import ReplicaSet
from dovetail.api.labels import ZONE
from dovetail.api.meta import Condition, Object
from dovetail.runtime.compute import inline
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.sim.clock import VirtualClock
from dovetail.zonal.controller.rehearsal import ClusterView
from dovetail.zonal.controller.reports import ZonePendingPods
from dovetail.zonal.model.records import set_condition
from support.builders import NOW, owner, pod
from support.stage import virtual
from support.world import sample
from support.worlds import Z1, Z2, World

AWAY = {"az1": Z1}


class NoReplicaSets:
    """A cluster whose pods come from StatefulSets."""

    def get(self, name: str, namespace: str = "") -> ReplicaSet | None:
        return None

    def __iter__(self) -> Iterator[ReplicaSet]:
        return iter(())

    def by(self, index: str, value: str) -> tuple[ReplicaSet, ...]:
        return ()


class Heard:
    """Every event as it is handed over, before the recorder leaves out what it told before."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def publish_event(self, obj: Object, reason: str, note: str, **more: Any) -> None:
        self.events.append((f"{obj.KIND.kind}/{obj.name}", reason, note))


class Waiting:
    """Two pods of one workload and one of another, all of zone 1."""

    def __init__(self) -> None:
        self.looks, self.heard, self.clock = 0, Heard(), VirtualClock()
        view = ClusterView(self._look, inline, NoReplicaSets())
        self.report = ZonePendingPods(view, self.clock, self.heard)

    async def _look(self) -> Snapshot:
        self.looks += 1
        bound: dict[str, Any] = {"node_selector": {ZONE: Z1}}
        web, db = owner("StatefulSet", "web"), owner("StatefulSet", "db")
        waiting = [pod(name, owned_by=web, **bound) for name in ("web-0", "web-1")]
        free = pod("free", node_selector={ZONE: Z2})
        return World().snapshot(*waiting, pod("db-0", owned_by=db, **bound), free)


@virtual
async def test_each_workload_is_told_of_once_for_as_long_as_the_zone_is_away() -> None:
    waiting = Waiting()
    await waiting.report.report_pods(AWAY)
    told = [
        ("StatefulSet/web", "WaitingForZone", "web-0"),
        ("StatefulSet/db", "WaitingForZone", "db-0"),
    ]
    heard = [
        (about, reason, note.split(":")[0].removeprefix("pod "))
        for about, reason, note in waiting.heard.events
    ]
    assert heard == told
    assert sample("dovetail_zonal_shift_pods_waiting_for_zone", zone=Z1) == 3
    for _ in range(3):
        await waiting.clock.sleep(31)
        await waiting.report.report_pods(AWAY)
    assert (waiting.looks, len(waiting.heard.events)) == (4, 2)
    # It is over, nobody waits any more; and away again: another story.
    await waiting.report.report_pods({})
    assert sample("dovetail_zonal_shift_pods_waiting_for_zone", zone=Z1) == 0
    await waiting.report.report_pods(AWAY)
    assert (waiting.looks, len(waiting.heard.events)) == (6, 4)


@virtual
async def test_nobody_looks_more_often_than_every_half_minute_while_nothing_changes() -> None:
    waiting = Waiting()
    await waiting.report.report_pods({})
    assert waiting.looks == 0
    for _ in range(3):
        await waiting.report.report_pods(AWAY)
        await waiting.clock.sleep(9)
    assert waiting.looks == 1
    await waiting.report.report_pods({**AWAY, "az2": Z2})
    assert waiting.looks == 2


@virtual
async def test_who_sees_no_cluster_says_nothing() -> None:
    heard = Heard()
    await ZonePendingPods(None, VirtualClock(), heard).report_pods(AWAY)
    assert heard.events == []


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    others = Condition(
        type="Other", status="False", reason="Other", last_transition_time=NOW - timedelta(hours=1)
    )
    first = set_condition([others], "Ours", "True", "Begun", "", NOW)
    assert [(each.type, each.last_transition_time) for each in first] == [
        ("Other", others.last_transition_time),
        ("Ours", NOW),
    ]
    later = NOW + timedelta(minutes=5, microseconds=3)
    assert set_condition(first, "Ours", "True", "Begun", "", later) is first
    reworded = set_condition(first, "Ours", "True", "Going", "more", later)
    assert [(each.type, each.reason, each.last_transition_time) for each in reworded] == [
        ("Other", "Other", others.last_transition_time),
        ("Ours", "Going", NOW),
    ]
    ended = set_condition(first, "Ours", "False", "Over", "", later)
    assert ended[-1].last_transition_time == NOW + timedelta(minutes=5)
