"""What ARC says, when it says it, and what it does not say: the edge cases of the specification by number."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec
from dovetail.zonal import shift_metrics
from dovetail.zonal.model.events import parse_signal
from dovetail.zonal.model.shifts import ShiftPolicies
from support.stage import virtual
from support.zonal import SHIFTS, A, B, C, D, Shifted, entry


def event(world: Shifted, named: str, zone: str, identity: str = "e1", resources: Any = None) -> str:
    """A message as EventBridge writes it."""
    return json.dumps(
        {
            "version": "0",
            "id": identity,
            "detail-type": named,
            "source": "aws.arc-zonal-shift",
            "account": world.aws.account,
            "time": world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": world.aws.region,
            "resources": [world.arn] if resources is None else resources,
            "detail": {
                "version": "0.0.1",
                "data": "",
                "metadata": {"awayFrom": world.ids(zone), "notes": ""},
            },
        }
    )


def signals(world: Shifted) -> list[Any]:
    return [each for each in world.api.list(SHIFTS) if each["spec"]["kind"] == "SIGNAL"]


def stale() -> float:
    return sum(
        sample.value
        for family in shift_metrics.SIGNALS.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["result"] == "stale"
    )


@pytest.mark.spec("zonal-E1")
@virtual
async def test_e1_two_zones_at_once_are_a_union_and_each_ends_alone() -> None:
    world = Shifted(observer=True, policies=ShiftPolicies(observer="Enforce"))
    world.pool("default", entry("In", A, B, C, D))
    world.subnets((A, B, C, D))
    async with world.running():
        before = world.wanted()
        world.aws.shifts.start_autoshift(world.ids(B))
        await world.shift(A)
        await world.until(lambda: (world.phase(A), world.phase(B)) == ("Active", "Active"), within=120)

        assert world.away() == [A, B]
        assert world.protected() == ["a0", "a1", "b0", "b1"]
        assert len(world.shifts()) == 2
        await world.settle(300)
        await world.cancel()
        await world.restored(A)
        assert (world.away(), world.protected(), world.phase(B)) == ([B], ["b0", "b1"], "Active")
        world.aws.shifts.end_autoshift(world.ids(B))
        await world.restored(B)
        assert world.wanted() == before


@pytest.mark.spec("zonal-E2")
@virtual
async def test_e2_a_waiting_autoshift_of_another_zone_applies_before_the_first_is_let_go() -> None:
    world = Shifted(mode="Both")
    world.pool()
    async with world.running():
        await world.shift(A)
        world.autoshift(B)  # waits behind the person's
        await world.until(lambda: world.phase(A) == "Active", within=60)
        assert world.phase(B) == ""
        await world.settle(300)
        await world.cancel()
        never_open = True

        def applied() -> bool:
            nonlocal never_open
            never_open &= world.gates.is_launch_closed(world.ids(A)) or world.gates.is_launch_closed(
                world.ids(B)
            )
            return world.phase(B) == "Active"

        await world.until(applied, within=120)
        assert never_open
        await world.restored(A)
        assert (world.away(), world.gates.is_launch_closed(world.ids(B))) == ([B], True)
        assert not world.gates.is_launch_closed(world.ids(A))


@pytest.mark.spec("zonal-E3")
@virtual
async def test_e3_the_last_zone_is_refused_and_people_are_warned() -> None:
    world = Shifted(mode="Both")
    world.pool()
    async with world.running():
        zones = sorted(world.aws.network.zone_ids)
        for zone in zones:
            world.local(zone)
            await world.settle(2)
        await world.until(
            lambda: all(world.phase(zone) in ("Active", "Refused") for zone in zones), within=60
        )

        phases = [world.phase(zone) for zone in zones]
        assert phases == ["Active"] * (len(zones) - 1) + ["Refused"]
        assert not world.gates.is_launch_closed(world.ids(zones[-1]))
        assert world.condition("Confirmed", zones[-1]) == "False"
        assert len(world.events("ZonalShiftRefused")) == 1


@pytest.mark.spec("zonal-E4")
@virtual
async def test_e4_the_same_event_three_times_by_queue_and_topic_is_one_signal() -> None:
    world = Shifted(queue=True)
    world.pool()
    async with world.running():
        told = event(world, "Manual Shift Started", A)
        wrapped = json.dumps({"Type": "Notification", "TopicArn": "arn:t", "Message": told})
        results = [
            await world.zonal.signals.put_signal(parse_signal(told, "sqs")),
            await world.zonal.signals.put_signal(parse_signal(wrapped, "sns")),
            await world.zonal.signals.put_signal(parse_signal(told, "sqs")),
        ]
        await world.settle(60)

        assert results == ["stored", "duplicate", "duplicate"]
        assert len(signals(world)) == 1
        assert [path for _, path in world.transport.written if "nodepools" in path or "/nodes/" in path] == []


@pytest.mark.spec("zonal-E4")
@virtual
async def test_e4_a_queue_brings_the_shift_within_five_seconds_and_is_emptied() -> None:
    world = Shifted(queue=True, mode="Both")
    world.pool()
    async with world.running():
        await world.settle(20)
        await world.shift(A)
        took = await world.until(lambda: world.gates.is_launch_closed(world.ids(A)), within=10, step=0.1)

        assert took < 5
        await world.settle(70)
        queue = world.aws.queues.by_name["zonal"]
        assert not queue.messages


@pytest.mark.spec("zonal-E5")
@virtual
async def test_e5_completed_before_in_progress_changes_nothing_that_polls_do_not_show() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        world.autoshift(A)
        await world.zonal.signals.put_signal(
            parse_signal(event(world, "Autoshift Completed", A, "e2"), "sqs")
        )
        await world.settle(5)
        await world.zonal.signals.put_signal(
            parse_signal(event(world, "Autoshift In Progress", A, "e1"), "sqs")
        )
        await world.until(lambda: world.phase() == "Active", within=10)
        await world.settle(600)
        assert world.phase() == "Active"


@pytest.mark.spec("zonal-E6")
@virtual
async def test_e6_a_start_that_comes_after_the_end_is_counted_as_stale_and_does_nothing() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        known = stale()
        await world.zonal.signals.put_signal(parse_signal(event(world, "Autoshift In Progress", A), "sqs"))
        await world.settle(60)

        assert world.shifts() == []
        assert stale() == known + 1
        assert world.away() == []


@pytest.mark.spec("zonal-E7")
@virtual
async def test_e7_an_end_nobody_tells_of_is_seen_by_the_next_polls() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        world.autoshift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(330)
        world.aws.shifts.autoshifts[0].ended = world.clock.now()
        took = await world.until(lambda: world.phase() == "Restoring", within=60)

        assert took <= 35
        assert world.status()["endReason"] == "Completed"


@pytest.mark.spec("zonal-E8", "aws-233")
@virtual
async def test_e8_a_shift_that_expires_without_a_word_is_restored() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        before = world.wanted()
        await world.shift(A, "10m")
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(560)
        assert world.phase() == "Active"
        await world.until(lambda: world.phase() in ("Restoring", "Restored"), within=60)

        assert world.status()["endReason"] == "Expired"
        await world.restored()
        assert world.wanted() == before


@pytest.mark.spec("zonal-E9")
@virtual
async def test_e9_a_shift_extended_just_before_its_expiry_stays() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        await world.shift(A, "10m")
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(555)
        await world.extend("2h")
        await world.settle(300)

        assert world.phase() == "Active"
        assert world.status()["expiryTime"] > world.clock.now().isoformat()


@pytest.mark.spec("zonal-E10")
@pytest.mark.parametrize("kind", ["PRACTICE_RUN", "FIS_EXPERIMENT"])
@virtual
async def test_e10_a_rolling_expiry_and_missed_polls_are_no_proof_of_the_end(kind: str) -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        begin = (
            world.aws.shifts.start_practice if kind == "PRACTICE_RUN" else world.aws.shifts.start_experiment
        )
        begin(world.managed, world.ids(A))
        await world.until(lambda: world.phase() == "Active", within=60)
        world.aws.refuse("ThrottlingException", "GetManagedResource", times=3)
        await world.settle(300)

        assert world.phase() == "Active"
        assert world.shifts()[0]["spec"]["kind"] == kind


@pytest.mark.spec("zonal-E11")
@virtual
async def test_e11_a_practice_run_taken_over_by_an_autoshift_of_the_same_zone_changes_kind_in_place() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        run = world.aws.shifts.start_practice(world.managed, world.ids(A))
        await world.until(lambda: world.phase() == "Active", within=60)
        written = len(world.transport.written)
        world.autoshift(A)
        world.aws.shifts.stop(world.managed, run, "CANCELED", "INTERRUPTED")
        await world.settle(120)

        (shift,) = world.shifts()
        assert (shift["spec"]["kind"], shift["status"]["phase"]) == ("ZONAL_AUTOSHIFT", "Active")
        touched = [path for _, path in world.transport.written[written:] if "zoneshifts" not in path]
        assert touched == []


@pytest.mark.spec("zonal-E23")
@virtual
async def test_e23_a_cluster_arc_does_not_know_still_has_local_shifts_and_says_so() -> None:
    world = Shifted(mode="Both")
    world.aws.eks.clusters["test"].zonal_shift = False
    world.pool()
    async with world.running():
        await world.settle(40)
        assert world.zonal.arc.registered is False
        assert [name for name, _ in world.events("ZonalShiftUnregistered")] == ["default"]
        world.local(A)
        await world.until(lambda: world.phase() == "Active", within=20)

        assert world.away() == [A]
        assert world.gates.is_launch_closed(world.ids(A))
        asked = [each for each in world.aws.calls if each.operation == "GetManagedResource"]
        await world.settle(600)
        assert len([each for each in world.aws.calls if each.operation == "GetManagedResource"]) == len(asked)


@pytest.mark.spec("zonal-E24")
@virtual
async def test_e24_a_zone_nobody_knows_is_refused_after_one_more_look() -> None:
    world = Shifted(mode="Both")
    world.pool()
    async with world.running():
        spec = {"zoneId": "mars1-az1", "kind": "LOCAL"}
        asked = len([each for each in world.aws.calls if each.operation == "DescribeAvailabilityZones"])
        world.api.create(SHIFTS, {"metadata": {"name": "nowhere"}, "spec": spec})
        await world.settle(30)

        (shift,) = world.shifts()
        assert shift["status"]["phase"] == "Refused"
        (confirmed,) = [each for each in shift["status"]["conditions"] if each["type"] == "Confirmed"]
        assert confirmed["reason"] == "UnknownZone"
        again = len([each for each in world.aws.calls if each.operation == "DescribeAvailabilityZones"])
        assert again - asked <= 1
        assert world.away() == []


@pytest.mark.spec("zonal-E25")
@virtual
async def test_e25_news_of_another_cluster_is_not_ours() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        await world.settle(5)
        other = world.arn.replace("cluster/test", "cluster/other")
        told = parse_signal(event(world, "Manual Shift Started", A, resources=[other]), "sqs")
        region = parse_signal(event(world, "Autoshift In Progress", A, "e9", resources=[]), "sqs")

        assert await world.zonal.signals.put_signal(told) == "foreign"
        assert await world.zonal.signals.put_signal(region) == "foreign"
        assert signals(world) == []


@pytest.mark.spec("zonal-E26")
@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException"])
@virtual
async def test_e26_while_arc_throttles_or_denies_what_is_in_force_is_held(code: str) -> None:
    world = Shifted(mode="Both")
    world.pool()
    async with world.running():
        await world.shift(A, "30m")
        await world.until(lambda: world.phase() == "Active", within=60)
        asked = len(world.aws.calls)
        world.aws.refuse(code, "GetManagedResource", times=None)
        await world.settle(1500)

        assert world.phase() == "Active"
        assert world.gates.is_launch_closed(world.ids(A))
        polls = [each for each in list(world.aws.calls)[asked:] if each.operation == "GetManagedResource"]
        assert len(polls) < 25, "it does not slow down"
        # Only when a person's own time is well over is it taken to have ended.
        await world.settle(300 + 400)
        assert world.phase() in ("Restoring", "Restored")


@pytest.mark.spec("zonal-E26")
@virtual
async def test_e26_an_autoshift_is_held_for_as_long_as_arc_is_silent() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        world.autoshift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        world.aws.refuse("InternalServerError", "*", times=None)
        await world.settle(3 * 3600)
        assert world.phase() == "Active"


@pytest.mark.spec("zonal-E31")
@pytest.mark.parametrize("minutes", [-5, 5])
@virtual
async def test_e31_a_clock_five_minutes_off_changes_timers_alone(minutes: int) -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        before = world.wanted()
        await world.shift(A, "20m")
        await world.until(lambda: world.phase() == "Active", within=60)
        # The process's clock is wrong; what ARC says of its shift is as long as before.
        world.clock.skew = timedelta(minutes=minutes)
        for each in world.managed.shifts:
            each.expires += timedelta(minutes=minutes)
        await world.settle(60)
        assert world.phase() == "Active"
        await world.cancel()
        await world.restored()
        assert world.wanted() == before


@virtual
async def test_a_start_is_believed_while_arc_is_silent_and_dropped_by_the_first_poll() -> None:
    world = Shifted(mode="Both")
    world.pool()
    async with world.running():
        await world.settle(5)
        world.aws.refuse("InternalServerError", "GetManagedResource", times=6)
        await world.zonal.signals.put_signal(parse_signal(event(world, "Autoshift In Progress", A), "sqs"))
        await world.until(lambda: world.gates.is_launch_closed(world.ids(A)), within=5)

        assert world.condition("Confirmed") == "Unknown"
        await world.until(lambda: world.phase() == "Restored", within=2400, step=5)
        assert world.away() == []


@virtual
async def test_the_clusters_arn_is_remembered_and_told_to_whoever_needs_it() -> None:
    world = Shifted()
    async with world.running():
        await world.settle(120)
        asked = len(world.aws.calls)
        assert await world.zonal.arc.resolve_arn() == world.arn
        assert len(world.aws.calls) == asked


@virtual
async def test_a_shift_that_somebody_writes_wakes_us_and_our_own_words_about_it_do_not() -> None:
    world, woken = Shifted(), list[bool]()
    async with world.running():
        controller = world.zonal.controller
        controller.on_wake(lambda: woken.append(True))
        one = ZoneShift(metadata=ObjectMeta(name="one"), spec=ZoneShiftSpec(zone_id="usw2-az1"))
        longer = replace(one, spec=replace(one.spec, comment="longer"))
        ended = replace(one, metadata=replace(one.metadata, deletion_timestamp=world.clock.now()))
        told = replace(one, status=replace(one.status, phase="Active"))
        news = [(None, one), (one, None), (one, longer), (one, ended)]
        for before, now, times in (*((*each, 1) for each in news), (one, told, 0)):
            woken.clear()
            controller.shift_changed(before, now)
            assert len(woken) == times, (before, now)
