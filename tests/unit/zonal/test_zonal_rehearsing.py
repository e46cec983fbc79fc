"""Zones are rehearsed at the start and by the schedule, and one that became less ready is told of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import cron, labels
from dovetail.api.core import ReplicaSet
from dovetail.api.meta import Object
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.errors import Misconfigured
from dovetail.metrics import REGISTRY
from dovetail.runtime.compute import inline
from dovetail.runtime.informer import Informer
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.zonal import options
from dovetail.zonal.controller.rehearsal import ClusterView, RehearsalController
from support.builders import nodepool, pod
from support.disruption import scene, state
from support.stage import virtual
from support.worlds import instance_type, offering

A, B = "test-zone-a", "test-zone-b"
SOLD = instance_type(
    "medium", 4, "32Gi", 110, offerings=[offering(zone, "on-demand", 2.0) for zone in (A, B)]
)


def readiness(zone: str) -> float | None:
    return REGISTRY.get_sample_value("dovetail_zonal_readiness", {"zone": zone})


class Told:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def publish_event(self, obj: Object, reason: str, note: str, **about: Any) -> None:
        self.events.append((obj.name, reason, note))


class Rehearsed:
    """The controller over a world that a test may change."""

    def __init__(self, schedule: str = "@weekly") -> None:
        self.clock, self.told, self.looks = VirtualClock(), Told(), 0
        self.pods: list[Pod] = []
        pools: Informer[NodePool] = Informer(NodePool)
        pools.begin_list()
        pools.add_listed([nodepool()])
        pools.end_list()
        seeing = ClusterView(self._look, inline, Informer(ReplicaSet))
        self.controller = RehearsalController(
            seeing, pools, cron.parse_schedule(schedule), self.clock, self.told
        )

    async def _look(self) -> Snapshot:
        self.looks += 1
        if not self.pods:
            return scene(types=(SOLD,)).snapshot
        return scene(
            state("a", *self.pods, of=SOLD, zone=A), state("b", of=SOLD, zone=B), types=(SOLD,)
        ).snapshot

    async def turn(self) -> float:
        result = await self.controller.reconcile("")
        assert result.after is not None
        return result.after.total_seconds()


@virtual
async def test_a_zone_that_became_less_ready_is_told_of_once() -> None:
    world = Rehearsed()
    assert await world.turn() == 60, "nothing is there yet"
    world.pods = [pod("free", node="a")]
    assert await world.turn() == 3600
    assert (world.told.events, readiness(A)) == ([], 1.0)
    looks = world.looks
    await world.turn()
    assert world.looks == looks, "not before the schedule says so"

    world.pods.append(pod("picked", node="a", node_selector={labels.ZONE: A}))
    for _ in range(2):
        await world.clock.sleep(timedelta(days=7).total_seconds())
        await world.turn()
    ((name, reason, note),) = world.told.events
    assert (name, reason) == ("default", "ZonalReadinessFell")
    assert note.startswith(f"losing {A} would now leave 1 of 2 pods unschedulable (1 by selector)")
    assert readiness(A) == 0.5
    assert readiness(B) == 1.0


def test_a_schedule_that_makes_no_sense_is_told_at_the_start() -> None:
    assert options.parse_schedule("") is None
    with pytest.raises(Misconfigured, match="must be a cron schedule such as @weekly"):
        options.parse_schedule("weekly")


def test_room_cannot_be_bought_without_buffers() -> None:
    settings = read_settings(("--cluster-name=x", "--zonal-shift-prescale=true"), {}, provider="aws")
    with pytest.raises(Misconfigured, match="add CapacityBuffer=true to FEATURE_GATES"):
        options.check_prescale(settings)
