"""Dovetail as the autoscaler: nothing is bought in a zone that is shifted away, and nothing is disturbed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.api.crds import build_zonal_manifest
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.live_cluster import take_situation
from dovetail.errors import BadInput
from dovetail.runtime import logs
from support.aws import CLUSTER
from support.aws_world import CLAIMS, POOLS, AwsWorld
from support.stage import virtual

A, B = "us-west-2a", "us-west-2b"
ZONE = "topology.kubernetes.io/zone"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


def world_of(*flags: str) -> AwsWorld:
    world = AwsWorld(0, "--enable-zonal-shift=true", *flags)
    world.api.create(CRDS, build_zonal_manifest())
    return world


def zones(world: AwsWorld) -> set[str]:
    return {each["metadata"]["labels"].get(ZONE, "") for each in world.nodes}


async def shift(world: AwsWorld, zone: str, lasts: str = "12h") -> None:
    arn = world.aws.eks.clusters[CLUSTER].arn
    asked = {
        "resourceIdentifier": arn,
        "awayFrom": world.aws.network.zone_ids[zone],
        "expiresIn": lasts,
        "comment": "",
    }
    await world.aws.call("arc-zonal-shift", "StartZonalShift", asked)


def spread(world: AwsWorld, count: int) -> None:
    """Pods that want to be in every zone, while they may."""
    world.pods(count, cpu="1")
    constraint: dict[str, Any] = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    patch = {"spec": {"template": {"spec": {"topologySpreadConstraints": [constraint]}}}}
    world.api.patch("deployments.apps", "web", patch, "default")


@pytest.mark.spec("aws-231")
@virtual
async def test_nothing_is_bought_in_the_zone_and_the_pool_is_told() -> None:
    async with world_of().running() as world:
        world.default()
        await shift(world, A)
        gates = world.dovetail.gates
        await world.until(lambda: gates.is_launch_closed(world.aws.network.zone_ids[A]), within=40)
        before = world.listed(POOLS)[0]["spec"]
        spread(world, 12)
        await world.until(lambda: world.placed() == 12, within=180)

        assert A not in zones(world)
        assert world.listed(POOLS)[0]["spec"] == before, "no pool is edited"
        assert world.events().count("ZonalShiftActive") == 1


@virtual
async def test_nodes_of_the_zone_are_not_taken_away_by_choice_until_the_shift_is_over() -> None:
    async with world_of().running() as world:
        world.default(requirements=[{"key": ZONE, "operator": "In", "values": [A]}], expireAfter="2h")
        world.pods(6, cpu="1")
        await world.until(lambda: world.placed() == 6, within=180)
        claims = {each["metadata"]["name"] for each in world.claims}
        await shift(world, A)
        gates = world.dovetail.gates
        await world.until(lambda: gates.is_disruption_closed(A), within=40)
        world.scale(0)
        await world.until(lambda: world.placed() == 0, within=180)
        # Empty for hours, and past their expiry: and yet they stay.
        await world.world.settle(7500)
        assert {each["metadata"]["name"] for each in world.claims} == claims
        assert "TerminateInstances" not in {each.operation for each in world.aws.calls}

        arn = world.aws.eks.clusters[CLUSTER].arn
        managed = world.aws.shifts.find_resource(arn)
        assert managed is not None
        (active,) = world.aws.shifts.list_active(managed)
        await world.aws.call("arc-zonal-shift", "CancelZonalShift", {"zonalShiftId": active.id})
        await world.until(lambda: not world.listed(CLAIMS), within=2 * 3600, step=10)


@virtual
async def test_pods_of_a_healthy_zone_are_not_moved_into_the_one_that_is_shifted_away() -> None:
    async with world_of().running() as world:
        world.default()
        spread(world, 9)
        await world.until(lambda: world.placed() == 9 and A in zones(world), within=240)
        await shift(world, A)
        await world.until(lambda: world.dovetail.gates.is_disruption_closed(A), within=40)
        there = _pods_in(world, A)
        world.scale(5)
        await world.world.settle(1200)
        assert _pods_in(world, A) <= there, "a pod was moved into the zone"
        assert A in zones(world), "the zone's nodes are left alone"
        (shift_object,) = world.listed("zoneshifts.dovetail.sh")
        assert int(shift_object["status"]["impact"]["pods"]) == len(there)
        assert "ZonalShiftImpact" in world.events()


def _pods_in(world: AwsWorld, zone: str) -> set[str]:
    there = {n["metadata"]["name"] for n in world.nodes if n["metadata"]["labels"].get(ZONE) == zone}
    return {p["metadata"]["name"] for p in world.listed("pods") if p["spec"].get("nodeName") in there}


@virtual
async def test_a_cluster_that_arc_does_not_know_starts_all_the_same() -> None:
    world = world_of()
    world.aws.eks.clusters[CLUSTER].zonal_shift = False
    async with world.running():
        world.default()
        world.pods(2, cpu="1")
        await world.until(lambda: world.placed() == 2, within=180)
        await world.world.settle(60)
        assert "ZonalShiftUnregistered" in world.events()


@virtual
async def test_without_the_kind_installed_everything_else_goes_on() -> None:
    async with AwsWorld(0, "--enable-zonal-shift=true").running() as world:
        world.default()
        world.pods(2, cpu="1")
        await world.until(lambda: world.placed() == 2, within=180)
        assert world.ready() >= 1
        await shift(world, A)
        await world.until(lambda: world.dovetail.gates.is_disruption_closed(A), within=60)
        world.pods(6, name="more", cpu="1")
        await world.until(lambda: world.placed() == 8, within=180)


@virtual
async def test_a_restarted_process_buys_nothing_in_the_zone_before_it_has_looked() -> None:
    async with world_of().running() as world:
        world.default()
        await shift(world, A)
        await world.until(lambda: world.dovetail.gates.is_disruption_closed(A), within=40)
        spread(world, 6)
        await world.killed(30)
        await world.until(lambda: world.placed() == 6, within=240)
        assert A not in zones(world)


@virtual
async def test_an_edit_of_our_own_makes_no_node_drifted() -> None:
    async with world_of("--zonal-shift-mode=Both").running() as world:
        world.default(requirements=[{"key": ZONE, "operator": "In", "values": [A, B]}])
        spread(world, 8)
        await world.until(lambda: world.placed() == 8 and A in zones(world), within=240)
        claims = {each["metadata"]["name"] for each in world.claims}
        await shift(world, A)
        edited = {"key": ZONE, "operator": "NotIn", "values": [A]}

        def requirements() -> list[Any]:
            return list(world.listed(POOLS)[0]["spec"]["template"]["spec"]["requirements"])

        await world.until(lambda: edited in requirements(), within=60)
        # Longer than drift takes to be looked at again.
        await world.world.settle(400)
        assert [world.says(each, "Drifted") for each in world.claims] == [""] * len(claims)
        assert {each["metadata"]["name"] for each in world.claims} == claims


@pytest.mark.spec("FN-3")
@virtual
async def test_who_only_looks_plans_no_purchase_in_the_zone() -> None:
    async with world_of().running() as world:
        world.default()
        await shift(world, A)
        await world.until(lambda: world.dovetail.gates.is_disruption_closed(A), within=40)
        await world.world.settle(30)
        shifts = await world.dovetail.kube.list(ZoneShift)

        async def offered(known: tuple[ZoneShift, ...]) -> set[str]:
            # A process that looks has gates of its own, all open, and only the ZoneShifts to go by.
            world.dovetail.gates.set_closed(frozenset(), frozenset(), {})
            found = (await take_situation(world.dovetail, known, lambda text: None)).snapshot
            return {
                offering.zone
                for types in found.catalogs
                for each in types
                for offering in each.offerings
                if offering.available
            }

        assert A in await offered(())
        seen = await offered(shifts)
        assert B in seen
        assert A not in seen


@pytest.mark.spec("FN-7")
@virtual
async def test_every_write_is_on_record_at_any_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("error")
    async with world_of("--zonal-shift-mode=Both").running() as world:
        world.default(requirements=[{"key": ZONE, "operator": "In", "values": [A, B]}])
        await shift(world, A)
        await world.until(lambda: world.dovetail.gates.is_disruption_closed(A), within=40)
        await world.world.settle(60)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    written = [each for each in lines if each["message"] == "zonal shift wrote"]
    (edit,) = (each for each in written if each["field"] == "requirements")
    assert (edit["logger"], edit["object"]) == ("controller.audit", "NodePool/default")
    away = {"key": ZONE, "operator": "NotIn", "values": [A]}
    assert away in edit["after"]
    assert away not in edit["before"]
    assert edit["shift"]
    assert edit["reason"]


@virtual
async def test_a_plan_tells_every_write_of_a_shift_that_nobody_asked_for_and_makes_none() -> None:
    async with world_of("--zonal-shift-mode=Both", "--enable-do-not-disrupt=true").running() as world:
        world.default(requirements=[{"key": ZONE, "operator": "In", "values": [A, B]}])
        spread(world, 4)
        await world.until(lambda: world.placed() == 4 and A in zones(world), within=240)
        assert world.dovetail.zonal is not None
        controller, zone = world.dovetail.zonal.controller, world.aws.network.zone_ids[A]
        before = [*world.nodes, *world.listed(POOLS)]
        lines = await controller.plan_shift(zone)

        inside = [each["metadata"]["name"] for each in world.nodes if each["metadata"]["labels"][ZONE] == A]
        marked = {line.partition(" ")[0] for line in lines if line.startswith("Node/")}
        assert marked == {f"Node/{name}" for name in inside}
        assert [line for line in lines if line.startswith("NodePool/default requirements:")]
        assert [*world.nodes, *world.listed(POOLS)] == before
        assert not world.listed("zoneshifts.dovetail.sh")
        assert not world.dovetail.gates.is_launch_closed(zone)
        with pytest.raises(BadInput, match="the cluster has no such zone; it has"):
            await controller.plan_shift("mars1-az1")
