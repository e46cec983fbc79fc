"""What a shift brings besides gates and edits: words on workloads, numbers, and room bought beforehand."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from dovetail.api.crds import build_zonal_manifest
from dovetail.history.record import RecordKind
from dovetail.history.ring import HistoryQuery
from dovetail.runtime.metrics import render_exposition
from support.aws_world import AwsWorld
from support.stage import virtual

Json = dict[str, Any]
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"
ZONE = "topology.kubernetes.io/zone"
CRDS, SHIFTS = "customresourcedefinitions.apiextensions.k8s.io", "zoneshifts.dovetail.sh"
BUFFERS = "capacitybuffers.autoscaling.x-k8s.io"
PRESCALE = ("--feature-gates=CapacityBuffer=true", "--zonal-shift-prescale=true")


def world_of(*flags: str) -> AwsWorld:
    world = AwsWorld(0, "--enable-zonal-shift=true", *flags)
    world.api.create(CRDS, build_zonal_manifest())
    return world


def local(world: AwsWorld, zone: str, name: str = "away", **spec: Any) -> None:
    told = {"zoneId": world.aws.network.zone_ids[zone], "kind": "LOCAL", **spec}
    world.api.create(SHIFTS, {"metadata": {"name": name}, "spec": told})


def spread(world: AwsWorld, count: int) -> None:
    world.pods(count, cpu="1")
    constraint: Json = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    patch = {"spec": {"template": {"spec": {"topologySpreadConstraints": [constraint]}}}}
    world.api.patch("deployments.apps", "web", patch, "default")


def pinned(world: AwsWorld, name: str, zone: str, count: int = 1) -> None:
    world.pods(count, name=name, cpu="1")
    patch = {"spec": {"template": {"spec": {"nodeSelector": {ZONE: zone}}}}}
    world.api.patch("deployments.apps", name, patch, "default")


def zone_of(world: AwsWorld) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["labels"].get(ZONE, "") for each in world.nodes}


def in_zone(world: AwsWorld, zone: str) -> int:
    zones = zone_of(world)
    return sum(zones.get(pod["spec"].get("nodeName", "")) == zone for pod in world.listed("pods"))


def phase(world: AwsWorld, name: str = "away") -> str:
    found = [each for each in world.listed(SHIFTS) if each["metadata"]["name"] == name]
    return str(found[0].get("status", {}).get("phase", "")) if found else ""


def told(world: AwsWorld, reason: str) -> list[Json]:
    return [each for each in world.listed("events.events.k8s.io") if each["reason"] == reason]


def value(name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(render_exposition().decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


# Pods that wait for the zone


@virtual
async def test_a_workload_that_can_only_run_in_the_zone_is_told_once_and_counted() -> None:
    async with world_of().running() as world:
        world.default()
        local(world, A)
        await world.until(
            lambda: world.dovetail.gates.is_launch_closed(world.aws.network.zone_ids[A]), within=60
        )
        pinned(world, "picky", A, 3)
        pinned(world, "fine", B)
        await world.until(lambda: told(world, "WaitingForZone"), within=90)
        await world.world.settle(300)
        (event,) = told(world, "WaitingForZone")
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Deployment", "picky")
        assert "its node selector names the zone: name another, or none" in event["note"]
        assert event.get("series") is None, "not said again in each turn"
        assert value("dovetail_zonal_shift_pods_waiting_for_zone", zone=A) == 3
        world.scale(0, "picky")
        await world.world.settle(60)
        assert value("dovetail_zonal_shift_pods_waiting_for_zone", zone=A) == 0


@virtual
async def test_pods_that_wait_for_the_zone_are_set_aside_until_it_is_back() -> None:
    async with world_of("--zonal-shift-min-hold=0s").running() as world:
        world.default()
        local(world, A)
        await world.until(
            lambda: world.dovetail.gates.is_launch_closed(world.aws.network.zone_ids[A]), within=60
        )
        pinned(world, "picky", A, 2)
        pinned(world, "fine", B)
        await world.until(lambda: world.placed() == 1, within=120)
        await world.world.settle(60)
        # The cluster's own scheduler says so, too; this is about ours.
        ours = [
            each for each in told(world, "FailedScheduling") if each["note"].startswith("Failed to schedule")
        ]
        assert ours == [], "nobody looked for a place for them"
        await world.world.settle(30)
        asked = HistoryQuery(kinds=frozenset((RecordKind.POD_UNSCHEDULABLE,)))
        noted = world.dovetail.history.ring.find_records(asked)
        why = [each.message for each in noted if "picky" in each.subject]
        assert len(why) == 2
        assert all(f"it can only run in zone {A}, which is shifted away" in text for text in why)
        assert value("karpenter_scheduler_pending_pods_by_effective_zone_count", zone=A) == 2
        world.api.patch(SHIFTS, "away", {"spec": {"expires": "2026-01-01T00:00:30Z"}})
        await world.until(lambda: world.placed() == 3, within=1800, step=5)


# Room bought beforehand


def buffers(world: AwsWorld) -> dict[str, int]:
    return {each["spec"]["scalableRef"]["name"]: each["spec"]["replicas"] for each in world.listed(BUFFERS)}


@virtual
async def test_what_losing_the_zone_would_take_is_bought_elsewhere_and_given_up_at_the_end() -> None:
    async with world_of(*PRESCALE, "--enable-do-not-disrupt=true").running() as world:
        world.default()
        spread(world, 9)
        await world.until(lambda: world.placed() == 9 and in_zone(world, A) >= 2, within=240)
        await world.world.settle(60)
        there, before = in_zone(world, A), len(world.nodes)
        local(world, A)
        await world.until(lambda: buffers(world), within=60)
        assert 0 < buffers(world)["web"] <= there
        await world.until(lambda: len(world.nodes) > before, within=240)
        zones = zone_of(world)
        fresh = [name for name in zones if zones[name] != A]
        assert len(fresh) > before - sum(zone == A for zone in zones.values())
        status = next(each["status"] for each in world.listed(SHIFTS))
        assert int(status["impact"]["nodesNeeded"]) > 0
        assert B in status["impact"]["freeAddresses"]
        assert A not in status["impact"]["freeAddresses"]

        # What leaves the zone takes the room: it is not bought a second time.
        for pod in world.listed("pods"):
            if zones.get(pod["spec"].get("nodeName", "")) == A:
                world.api.delete("pods", pod["metadata"]["name"], "default")
        await world.until(lambda: world.placed() == 9 and in_zone(world, A) == 0, within=240)
        await world.until(lambda: buffers(world).get("web") == 0, within=90)

        world.api.delete(SHIFTS, "away")
        await world.until(lambda: not world.listed(BUFFERS), within=900)
        reasons = [each.reason for each in _audits(world) if each.object.startswith("CapacityBuffer/")]
        assert (reasons[0], reasons[-1]) == ("prescaled", "removed")


def _audits(world: AwsWorld) -> list[Any]:
    assert world.dovetail.zonal is not None
    return list(world.dovetail.zonal.controller.writer.audits)


@virtual
async def test_a_process_that_starts_again_neither_buys_twice_nor_forgets_to_give_up() -> None:
    async with world_of(*PRESCALE).running() as world:
        world.default()
        spread(world, 9)
        await world.until(lambda: world.placed() == 9 and in_zone(world, A) >= 2, within=240)
        await world.world.settle(60)
        local(world, A)
        await world.until(lambda: buffers(world), within=60)
        await world.world.settle(200)
        bought, count = buffers(world), len(world.nodes)
        await world.killed(30)
        await world.world.settle(200)
        assert (buffers(world), len(world.nodes)) == (bought, count)
        world.api.delete(SHIFTS, "away")
        await world.killed(5)
        await world.until(lambda: not world.listed(BUFFERS), within=900)


@virtual
async def test_a_dry_run_says_which_room_it_would_buy_and_buys_none() -> None:
    async with world_of(*PRESCALE, "--zonal-shift-dry-run=true").running() as world:
        world.default()
        spread(world, 9)
        await world.until(lambda: world.placed() == 9 and in_zone(world, A) >= 2, within=240)
        await world.world.settle(60)
        local(world, A)

        def plan() -> list[str]:
            return [line for each in world.listed(SHIFTS) for line in each.get("status", {}).get("plan", ())]

        await world.until(lambda: any("CapacityBuffer/default/" in line for line in plan()), within=90)
        await world.world.settle(120)
        assert world.listed(BUFFERS) == []


@virtual
async def test_a_zone_that_may_not_be_stepped_out_of_is_not_prepared_for() -> None:
    async with world_of(*PRESCALE).running() as world:
        world.default()
        spread(world, 9)
        await world.until(lambda: world.placed() == 9 and in_zone(world, A) >= 2, within=240)
        for number, zone in enumerate(sorted(world.aws.network.zone_ids)):
            local(world, zone, f"away-{number}")
        phases = {f"away-{number}" for number in range(len(world.aws.network.zone_ids))}
        await world.until(lambda: any(phase(world, each) == "Refused" for each in phases), within=60)
        await world.world.settle(120)
        refused = [each for each in phases if phase(world, each) == "Refused"]
        mine = {each["metadata"]["labels"]["zonalshift.dovetail.sh/shift"] for each in world.listed(BUFFERS)}
        assert refused
        assert not mine & set(refused)


# How the cluster lies when a zone is back


@virtual
async def test_how_uneven_zones_are_is_told_when_a_shift_is_over() -> None:
    async with world_of("--zonal-shift-rebalance=Report", "--zonal-shift-min-hold=0s").running() as world:
        world.default()
        spread(world, 6)
        await world.until(lambda: world.placed() == 6, within=240)
        local(world, A)
        await world.until(lambda: phase(world) == "Active", within=60)
        world.api.patch(SHIFTS, "away", {"spec": {"expires": "2026-01-01T00:00:30Z"}})
        await world.until(lambda: phase(world) == "Restored", within=1800, step=5)
        await world.until(lambda: told(world, "ZonalShiftSkew"), within=60)
        (event,) = told(world, "ZonalShiftSkew")
        assert f"{A}: " in event["note"]
        assert "an hour" in event["note"]
        assert value("dovetail_zonal_shift_zone_share", zone=B, of="pods") is not None


def apart(world: AwsWorld, count: int) -> None:
    """Pods that want a node each."""
    world.pods(count, cpu="1")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    patch = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    world.api.patch("deployments.apps", "web", patch, "default")


async def grown_without(world: AwsWorld, zone: str) -> None:
    """Everything was bought while the zone was away; then it came back."""
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    world.default(requirements=[on_demand])
    local(world, zone)
    await world.until(
        lambda: world.dovetail.gates.is_launch_closed(world.aws.network.zone_ids[zone]), within=60
    )
    apart(world, 8)
    await world.until(lambda: world.placed() == 8, within=240)
    world.api.patch(SHIFTS, "away", {"spec": {"expires": "2026-01-01T00:00:30Z"}})
    await world.until(lambda: phase(world) == "Restored", within=1800, step=5)
    assert in_zone(world, zone) == 0


@virtual
async def test_a_zone_that_is_back_is_filled_again_slowly_where_that_is_wanted() -> None:
    flags = ("--zonal-shift-rebalance=Gradual", "--zonal-shift-min-hold=0s")
    async with world_of(*flags).running() as world:
        await grown_without(world, A)
        most = 0
        while in_zone(world, A) < 2:
            assert world.clock.monotonic() < 8000, zone_of(world)
            await world.world.settle(20)
            most = max(most, sum("deletionTimestamp" in each["metadata"] for each in world.claims))
        await world.until(lambda: world.placed() == 8, within=240)
        assert most <= 1, "no faster than the budget of the pool allows"
        await world.world.settle(1800)
        counts = [
            sum(zone == each for zone in zone_of(world).values()) for each in {*zone_of(world).values()}
        ]
        assert sum(counts) == 8
        assert max(counts) - in_zone(world, A) <= 1


@virtual
async def test_a_zone_that_is_back_is_left_empty_where_nothing_else_is_wanted() -> None:
    async with world_of("--zonal-shift-min-hold=0s").running() as world:
        await grown_without(world, A)
        await world.world.settle(1800)
        assert in_zone(world, A) == 0


# Rehearsals by a schedule


@virtual
async def test_zones_are_rehearsed_by_the_schedule_and_a_fall_is_told_on_the_pools() -> None:
    async with world_of("--zonal-shift-rehearsal=@hourly").running() as world:
        world.default()
        spread(world, 6)
        await world.until(lambda: world.placed() == 6 and in_zone(world, A) >= 1, within=240)
        await world.world.settle(120)
        assert value("dovetail_zonal_readiness", zone=A) == 1.0
        assert told(world, "ZonalReadinessFell") == []
        pinned(world, "picky", A, 2)
        await world.until(lambda: world.placed() == 8, within=240)
        await world.world.settle(3700)
        ready = value("dovetail_zonal_readiness", zone=A)
        assert ready is not None
        assert 0 < ready < 1
        (event,) = told(world, "ZonalReadinessFell")
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("NodePool", "default")
        assert "2 by selector" in event["note"]
