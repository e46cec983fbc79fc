"""A NodePool's template in a replay changes when its recorded hash says so, and only then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.api.crds import find_provider_api
from dovetail.api.nodepool import NodePool
from dovetail.play.started_world import ReplacedObjects, StartedWorld
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.world import World
from support.builders import NOW, nodepool


def start() -> StartedWorld:
    world = World(VirtualClock(NOW))
    api = InternalApi(world.server, "replay", world.manager.templates)
    return StartedWorld(world, api, find_provider_api("kwok").kind, {}, True, ReplacedObjects())


def hashed(value: str, version: str = "v3") -> NodePool:
    made = nodepool("default")
    known = {"karpenter.sh/nodepool-hash": value, "karpenter.sh/nodepool-hash-version": version}
    return replace(made, metadata=replace(made.metadata, annotations=known if value else {}))


@pytest.mark.spec("RP-1")
@pytest.mark.parametrize(
    ("looks", "marks"),
    [
        ([hashed(""), hashed("1"), hashed("1")], ["", "", ""]),
        ([hashed("1"), hashed("2"), hashed("2"), hashed("1")], ["", "2", "2", "1"]),
        ([hashed("1"), hashed(""), hashed("1")], ["", "", ""]),
        ([hashed("1", "v3"), hashed("9", "v4"), hashed("8", "v4")], ["", "", "8"]),
    ],
    ids=["a new NodePool", "a change and its return", "a look without it", "another way to hash"],
)
def test_nodes_drift_when_the_hash_of_a_template_changes(looks: list[NodePool], marks: list[str]) -> None:
    started = start()
    assert [started.mark_template(pool) for pool in looks] == marks
