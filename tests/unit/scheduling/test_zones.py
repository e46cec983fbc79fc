"""The zone a waiting pod is bound for."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import NodeSelector, PersistentVolumeClaimSource, Volume
from dovetail.scheduling.model.snapshot import Storage
from dovetail.scheduling.sequential.pending_zones import find_effective_zone
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from support.builders import nodepool, pod
from support.worlds import Z1, Z2, Z3, World, apart, near, node_affinity, running, spread, term

ZONE = names.ZONE
DB = {"app": "db"}


def in_zones(*zones: str) -> Storage:
    """A claim on a volume that can be reached from these zones."""
    selector = NodeSelector(node_selector_terms=(term((ZONE, "In", *zones)),))
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default", annotations={names.BIND_COMPLETED: "yes"}),
        spec=PersistentVolumeClaimSpec(volume_name="pv"),
    )
    volume = PersistentVolume(
        metadata=ObjectMeta(name="pv"),
        spec=PersistentVolumeSpec(node_affinity=VolumeNodeAffinity(required=selector)),
    )
    return Storage(claims={"default/data": claim}, volumes={"pv": volume})


DATA = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data"))


def databases(*zones: str) -> list[Any]:
    return [
        running(f"n-{z}", pod(f"db-{z}", cpu="1m", memory="1M", labels=DB, node="x"), zone=z) for z in zones
    ]


@pytest.mark.spec("T-272")
@pytest.mark.parametrize(
    ("wishes", "world", "zone"),
    [
        pytest.param({}, {}, "flexible", id="no constraint"),
        pytest.param({"node_selector": {ZONE: Z2}}, {}, Z2, id="a selector"),
        pytest.param(
            {"affinity": node_affinity(preferred=[(1, [(ZONE, "In", Z1)])])}, {}, "flexible", id="a wish"
        ),
        pytest.param({"volumes": (DATA,)}, {"storage": in_zones(Z1)}, Z1, id="a volume"),
        pytest.param({"volumes": (DATA,)}, {"storage": in_zones(Z1, Z2)}, "flexible", id="two zones"),
        pytest.param(
            {"volumes": (DATA,), "node_selector": {ZONE: Z1}}, {"storage": in_zones(Z2)}, "none", id="torn"
        ),
        pytest.param({"affinity": near(ZONE, app="db")}, {"nodes": databases(Z1)}, Z1, id="near"),
        pytest.param({"affinity": apart(ZONE, app="db")}, {"nodes": databases(Z1, Z2)}, Z3, id="apart"),
        pytest.param({"affinity": near(ZONE, app="db")}, {}, "none", id="near nobody"),
        pytest.param(
            {"affinity": apart(ZONE, app="db")}, {"nodes": databases(Z1, Z2, Z3)}, "none", id="apart from all"
        ),
        pytest.param(
            {"topology_spread_constraints": (spread("unknown"), spread(ZONE))},
            {"nodes": []},
            "flexible",
            id="a spread with room everywhere",
        ),
    ],
)
def test_the_zone_left_to_a_pod_is_told(wishes: dict[str, Any], world: dict[str, Any], zone: str) -> None:
    waiting = pod("web", labels={"app": "web"}, **wishes)
    run = SequentialScheduler(World(**world).snapshot(waiting))
    assert find_effective_zone(run, run.shapes.find_shape(waiting)) == zone


@pytest.mark.spec("T-272")
def test_a_spread_that_cannot_be_met_leaves_no_zone() -> None:
    rule = spread(ZONE)
    waiting = pod("web", labels={"app": "web"}, topology_spread_constraints=(rule,))
    run = SequentialScheduler(World(nodepool(ready=False)).snapshot(waiting))
    assert find_effective_zone(run, run.shapes.find_shape(waiting)) == "none"
