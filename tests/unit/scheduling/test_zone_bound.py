"""Pods that could only run in a zone: by volume, selector, affinity or spread."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import codec, labels
from dovetail.api.core import PersistentVolume, PersistentVolumeClaim
from dovetail.api.pod import Pod, PodSpec
from dovetail.scheduling.model.snapshot import Storage
from dovetail.scheduling.zone_bound import (
    FIXES,
    defer_zone_bound_pods,
    find_tie,
    find_tie_and_zone,
    find_zone_bound_pods,
)
from dovetail.zonal.model.rehearsal import rehearse
from support.builders import pod
from support.disruption import pool, scene, state
from support.worlds import instance_type, node_affinity, offering, spread

A, B = "test-zone-a", "test-zone-b"
AWAY = {"az1": A}
SOLD = instance_type(
    "medium", 4, "32Gi", 110, offerings=[offering(zone, "on-demand", 2.0) for zone in (A, B)]
)


def storage(zone: str) -> Storage:
    """A claim that is bound to a volume of the zone."""
    where = {"key": labels.ZONE, "operator": "In", "values": [zone]}
    volume: dict[str, Any] = {
        "metadata": {"name": "pv"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}},
    }
    claim: dict[str, Any] = {
        "metadata": {
            "name": "data",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    return Storage(
        claims={"default/data": codec.convert(PersistentVolumeClaim, claim)},
        volumes={"pv": codec.convert(PersistentVolume, volume)},
    )


def on_volume(name: str = "db", **about: Any) -> Pod:
    listed = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    return pod(name, volumes=codec.convert(PodSpec, listed).volumes, **about)


ONE_OF_TWO = node_affinity([(labels.ZONE, "In", A)], [(labels.ZONE, "In", B)])
ONLY = node_affinity([(labels.ZONE, "In", A)], [(labels.ZONE_ID, "In", "az1")])


@pytest.mark.parametrize(
    ("one", "tie"),
    [
        (pod("free"), ""),
        (pod("picked", node_selector={labels.ZONE: A}), "selector"),
        (pod("picked", node_selector={labels.ZONE_ID: "az1"}), "selector"),
        (pod("elsewhere", node_selector={labels.ZONE: B}), ""),
        (pod("either", affinity=ONE_OF_TWO), ""),
        (pod("only", affinity=ONLY), "affinity"),
        (on_volume(), "volume"),
    ],
)
def test_what_keeps_a_pod_in_a_zone(one: Pod, tie: str) -> None:
    assert find_tie(one, AWAY, storage(A)) == tie
    assert find_tie_and_zone(one, AWAY, storage(A))[1] == (A if tie else "")


def test_a_volume_elsewhere_keeps_nobody_here() -> None:
    assert find_tie(on_volume(), AWAY, storage(B)) == ""


def test_waiting_pods_are_told_with_their_zone_and_every_tie_has_a_way_out() -> None:
    waiting = [on_volume(), pod("free"), pod("picked", node_selector={labels.ZONE: A})]
    world = scene(types=(SOLD,), pending=waiting, snapshot={"storage": storage(A)}).snapshot
    found = find_zone_bound_pods(world, AWAY)
    assert [(each.pod.name, each.zone, each.tie) for each in found] == [
        ("db", A, "volume"),
        ("picked", A, "selector"),
    ]
    assert find_zone_bound_pods(world, {}) == ()
    assert all(FIXES[each.tie] for each in found)


def test_pods_that_wait_for_a_zone_are_set_aside_and_nobody_else() -> None:
    waiting = [on_volume(), pod("free"), pod("picked", node_selector={labels.ZONE: A})]
    world = scene(types=(SOLD,), pending=waiting, snapshot={"storage": storage(A)}).snapshot
    left, aside = defer_zone_bound_pods(world, AWAY)
    assert [each.name for each in left.pods] == ["free"]
    assert str(aside[1]).startswith(f"it can only run in zone {A}, which is shifted away: its node selector")
    assert defer_zone_bound_pods(world, {}) == (world, ())
    assert defer_zone_bound_pods(left, AWAY) == (left, ())


def test_a_hard_spread_that_only_the_lost_zone_could_even_out_waits_for_it() -> None:
    spreading = spread(labels.ZONE)
    web: dict[str, Any] = {"labels": {"app": "web"}, "topology_spread_constraints": (spreading,)}
    there = [state("a", of=SOLD, zone=A), state("b", pod("b0", node="b", **web), of=SOLD, zone=B)]
    world = scene(*there, types=(SOLD,), pending=[pod("next", **web)]).snapshot
    assert [(each.pod.name, each.tie) for each in find_zone_bound_pods(world, AWAY)] == [("next", "spread")]
    even = [state("a", pod("a0", node="a", **web), of=SOLD, zone=A), there[1]]
    assert (
        find_zone_bound_pods(scene(*even, types=(SOLD,), pending=[pod("next", **web)]).snapshot, AWAY) == ()
    )


# A rehearsal says the same of those it finds no home for


def lost(one: Pod, **about: Any) -> Any:
    more: dict[str, Any] = {"snapshot": about.pop("snapshot", None), "pools": about.pop("pools", ())}
    states = [state("a", one, of=SOLD, zone=A), state("b", pod("full", cpu="3", node="b"), of=SOLD, zone=B)]
    types = about.pop("types", (SOLD,))
    return rehearse(scene(*states, types=types, **more).snapshot, A, **about)


def test_why_pods_would_have_no_home_is_told_in_one_word_each() -> None:
    pinned = lost(pod("picked", cpu="2", node="a", node_selector={labels.ZONE: A}))
    assert dict(pinned.kinds) == {"default/picked": "selector"}
    stuck = lost(on_volume(cpu="2", node="a"), snapshot={"storage": storage(A)})
    assert (dict(stuck.kinds), stuck.count_by_reason("volume")) == ({"default/db": "volume"}, 1)
    limited = lost(pod("more", cpu="2", node="a"), pools=[pool(limits={"cpu": "1"})])
    assert (dict(limited.kinds), limited.limited) == ({"default/more": "limits"}, ("default",))


def test_what_is_sold_one_way_only_there_is_missed_elsewhere() -> None:
    ways = [offering(A, "spot", 1.0), offering(B, "on-demand", 2.0)]
    types = (instance_type("medium", 4, "32Gi", 110, offerings=ways),)
    spot = pod("spot", cpu="2", node="a", node_selector={labels.CAPACITY_TYPE: "spot"})
    assert dict(lost(spot, types=types).kinds) == {"default/spot": "capacity type"}


def test_subnets_without_addresses_leave_pods_without_a_home() -> None:
    one = pod("web", cpu="2", node="a")
    assert lost(one, addresses={B: 2}).passed
    crowded = lost(one, addresses={B: 1})
    assert (crowded.passed, crowded.crowded, dict(crowded.kinds)) == (
        False,
        (B,),
        {"default/web": "addresses"},
    )
    assert "1 addresses left, and 2 are needed" in crowded.homeless["default/web"]


def test_the_time_it_takes_follows_the_rate_of_launches() -> None:
    one = pod("web", cpu="2", node="a")
    assert lost(one, launches=0.5).minutes == lost(one, launches=1.0).minutes + 1.0
