"""The daemon in virtual time: every event to its owner once, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from dovetail.aws import Answer, aws_error
from dovetail.bus.generate import (
    GeneratedEvent,
    GeneratedFleet,
    generate_fis_experiment,
    generate_health_pages,
    generate_reclaim_storm,
    generate_steady_stream,
)
from dovetail.bus.ports import BusTally
from dovetail.sim.clock import VirtualClock, run_virtual
from support.queues import BULK, CENTRAL, DLQ, PARK, URGENT, FleetAws, expected


def one_warning(fleet: GeneratedFleet, instance: str, clock: VirtualClock) -> GeneratedEvent:
    (warning,) = [
        each
        for each in generate_fis_experiment(fleet, [instance], seed=99, start=clock.now())
        if each.kind == "spot_interrupted"
    ]
    return warning


@pytest.mark.spec("bus-L2")
def test_a_reclaim_storm_reaches_each_owner_once_and_no_one_else() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(20, 400), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, start=clock.now()))
        async with aws.routing(counts=counts):
            await aws.play(storm)
            await aws.drained()

        assert aws.received() == expected(fleet, storm)
        assert aws.bodies(DLQ) == aws.bodies(PARK) == []
        warnings = counts.observed["latency_seconds", "urgent", "receive_to_sent"]
        assert max(warnings) <= 2.0
        assert min(counts.observed["deadline_remaining_seconds", "spot_interrupted"]) > 115
        assert aws.requests["ec2:DescribeInstances"] <= 12

    run_virtual(story())


@pytest.mark.spec("bus-L2")
def test_a_cold_cache_without_prefetching_asks_in_hundreds() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(20, 1000), VirtualClock()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, start=clock.now()))
        async with aws.routing(aws.config(ec2__prefetch="0s")):
            await aws.play(storm)
            await aws.drained()

        assert aws.received() == expected(fleet, storm)
        assert aws.requests["ec2:DescribeInstances"] <= 120

    run_virtual(story())


@pytest.mark.spec("bus-L4")
def test_a_health_event_in_pages_with_backup_copies_reaches_each_cluster_once() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(80, 1200), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        async with aws.routing(counts=counts):
            await aws.play(generate_health_pages(fleet, start=clock.now()))
            await aws.drained()

        for cluster, instances in fleet.clusters.items():
            told = Counter(
                entity["entityValue"]
                for body in aws.bodies(cluster)
                for entity in json.loads(body)["detail"]["affectedEntities"]
            )
            assert told == Counter(instances)
            assert len(aws.bodies(cluster)) <= 5
        assert counts.totals["duplicates_total",] == 5

    run_virtual(story())


@pytest.mark.spec("bus-L5")
def test_a_destination_that_fails_always_slows_no_one_else() -> None:
    def worst(failing: bool) -> float:
        async def story() -> float:
            fleet, clock, counts = GeneratedFleet.generate_fleet(10, 200), VirtualClock(), BusTally()
            aws = FleetAws(fleet, clock)
            if failing:
                aws.failing.add("cluster-000")
            storm = list(generate_reclaim_storm(fleet, within=30.0, start=clock.now()))
            async with aws.routing(counts=counts):
                await aws.play(storm)
                await clock.sleep(10.0)
                wanted, got = expected(fleet, storm), aws.received()
                ill = got.pop("cluster-000")
                well = wanted.pop("cluster-000")
                assert got == wanted
                assert (ill == well) is not failing
                if failing:
                    assert aws.waiting() == well.total() - len(aws.bodies(DLQ))
            taken = sorted(counts.observed["latency_seconds", "urgent", "receive_to_sent"])
            return taken[int(0.99 * len(taken))]

        return run_virtual(story())

    assert worst(failing=True) <= 1.1 * worst(failing=False)


@pytest.mark.spec("bus-L6")
def test_while_ec2_answers_no_one_every_warning_is_broadcast_in_time() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(10, 300), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        aws.ec2_down = True
        storm = list(generate_reclaim_storm(fleet, start=clock.now()))
        warnings = {each.body: each for each in storm if each.kind == "spot_interrupted"}
        async with aws.routing(counts=counts):
            player = asyncio.create_task(aws.play(storm))
            await clock.sleep(90.0)
            aws.ec2_down = False
            await player
            await aws.drained(1200.0)

        owner = fleet.map_owners()
        for body, warning in warnings.items():
            assert body in aws.bodies(owner[warning.instances[0]])
        assert min(counts.observed["deadline_remaining_seconds", "spot_interrupted"]) >= 30
        assert counts.totals["broadcast_total",] > 50
        assert aws.bodies(DLQ) == []
        # Held for up to a minute, and seen by no one else meanwhile.
        assert len(aws.bodies("cluster-000")) < 2 * len(storm)

    run_virtual(story())


def test_a_warning_that_comes_late_waits_for_an_answer_that_is_on_its_way() -> None:
    """A router that was down for a minute and knows nothing tells only the owners."""

    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(5, 50), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock, rtt=1.5)
        storm = [one_warning(fleet, instance, clock) for instance in fleet.instances]
        await clock.sleep(70.0)
        async with aws.routing(aws.config(ec2__prefetch="0s"), counts=counts):
            for warning in storm:
                aws.put(warning)
            await aws.drained()

        assert aws.received() == expected(fleet, storm)
        assert ("broadcast_total",) not in counts.totals

    run_virtual(story())


def test_a_warning_waits_hidden_while_it_is_held() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(2, 2), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        aws.ec2_down = True
        (mine,) = fleet.clusters["cluster-001"]
        async with aws.routing(counts=counts):
            aws.put(one_warning(fleet, mine, clock))
            await clock.sleep(50.0)
            (message,) = aws.queue(URGENT).messages.values()
            assert message.received == 1
            aws.ec2_down = False
            await aws.drained()

        assert len(aws.bodies("cluster-001")) == 1
        assert aws.bodies("cluster-000") == []
        assert ("broadcast_total",) not in counts.totals

    run_virtual(story())


@pytest.mark.parametrize(("rtt", "visibility", "parallel"), [(0.2, 2, 32), (0.5, 2, 32), (0.2, 2, 4)])
def test_a_backlog_that_is_hidden_only_briefly_is_received_once(
    rtt: float, visibility: int, parallel: int
) -> None:
    """Many receivers and a slow AWS: what is held must not come again from under the router."""

    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(40, 400), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock, rtt=rtt, visibility=(visibility, visibility))
        stream = generate_steady_stream(fleet, start=clock.now())
        queued = [next(stream) for _ in range(1_500)]
        for event in queued:
            aws.put(event)
        config = aws.config(receivers__urgent=32, receivers__bulk=32, parallel=parallel)
        async with aws.routing(config, counts):
            while aws.waiting():
                await clock.sleep(0.5)
                central = (message for name in CENTRAL for message in aws.queue(name).messages.values())
                assert max((message.received for message in central), default=1) == 1

        assert aws.received() == expected(fleet, queued)
        assert aws.bodies(DLQ) == []
        assert ("duplicates_total",) not in counts.totals

    run_virtual(story())


def test_a_warning_that_could_not_be_hidden_again_is_hidden_at_the_next_attempt() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(2, 2), VirtualClock()
        aws = FleetAws(fleet, clock)
        aws.ec2_down = True
        (mine,) = fleet.clusters["cluster-001"]
        refused = iter([True, False] * 4)

        async def call(service: str, operation: str, *rest: Any, **more: Any) -> Answer:
            if operation == "ChangeMessageVisibilityBatch" and next(refused, False):
                raise aws_error("sqs:ChangeMessageVisibilityBatch", "RequestThrottled", "slow down", 400)
            return await unhindered(service, operation, *rest, **more)

        unhindered = aws.call
        aws.call = call  # type: ignore[method-assign]
        async with aws.routing():
            aws.put(one_warning(fleet, mine, clock))
            await clock.sleep(50.0)
            (message,) = aws.queue(URGENT).messages.values()
            assert message.received == 1
            aws.ec2_down = False
            await aws.drained()

        assert len(aws.bodies("cluster-001")) == 1

    run_virtual(story())


def test_poison_ends_in_the_dead_letters_and_its_neighbours_get_through() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(3, 30), VirtualClock()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, within=5.0, start=clock.now()))
        async with aws.routing():
            for number in range(5):
                aws.queue(URGENT).send(f"poison {number} \ud800"[:-1])
                aws.queue(BULK).send('{"version":"0","time":"never"}')
            await aws.play(storm)
            await aws.drained(1200.0)

        assert aws.received() == expected(fleet, storm)
        assert len(aws.bodies(DLQ)) == 10

    run_virtual(story())


def test_what_no_queue_takes_is_parked_and_acknowledged() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(3, 9), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        aws.denied.add("cluster-000")
        del aws.sim.queues.by_name["cluster-001"]
        aws.tags["i-0stranger"] = {"eks:eks-cluster-name": "not-registered"}
        storm = list(generate_reclaim_storm(fleet, within=5.0, start=clock.now()))
        async with aws.routing(counts=counts):
            await aws.play(storm)
            aws.put(one_warning(fleet, "i-0stranger", clock))
            await aws.drained(60.0)

        reasons = {key[1]: amount for key, amount in counts.totals.items() if key[0] == "parked_total"}
        assert reasons == {"refused": 24, "no_destination": 1}
        assert len(aws.bodies(PARK)) == 25
        assert len(aws.bodies("cluster-002")) == 12

    run_virtual(story())


@pytest.mark.parametrize("policy", ["broadcast", "park"])
def test_a_warning_about_an_instance_ec2_does_not_know_is_told_to_all_or_parked(policy: str) -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(3, 3), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        happenings = list(generate_fis_experiment(fleet, ["i-0nobody"], start=clock.now()))
        async with aws.routing(aws.config(unresolvedUrgent=policy), counts):
            for each in happenings:
                aws.put(each)
            await aws.drained(60.0)

        told = [len(aws.bodies(cluster)) for cluster in fleet.clusters]
        assert told == ([1, 1, 1] if policy == "broadcast" else [0, 0, 0])
        assert len(aws.bodies(PARK)) == (0 if policy == "broadcast" else 1)
        assert counts.totals["dropped_total", "unresolvable"] == 3

    run_virtual(story())


def test_instances_of_no_cluster_are_dropped_and_counted() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(2, 2), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        aws.tags["i-0bastion"] = {"Name": "bastion"}
        async with aws.routing(counts=counts):
            await aws.play(
                each._replace(at=0.0)
                for each in generate_fis_experiment(fleet, ["i-0bastion"], start=clock.now())
            )
            await aws.drained(60.0)

        assert counts.totals["dropped_total", "foreign"] == 4
        assert all(not aws.bodies(cluster) for cluster in fleet.clusters)

    run_virtual(story())


def test_a_paused_cluster_has_its_events_parked() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(2, 4), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        config = aws.config()
        destinations = [dict(each) for each in config["destinations"]]
        destinations[0]["paused"] = True
        storm = list(generate_reclaim_storm(fleet, within=2.0, start=clock.now()))
        async with aws.routing(aws.config(destinations=destinations), counts):
            await aws.play(storm)
            await aws.drained(60.0)

        assert (len(aws.bodies("cluster-000")), len(aws.bodies("cluster-001")), len(aws.bodies(PARK))) == (
            0,
            8,
            8,
        )
        assert counts.totals["parked_total", "paused"] == 8

    run_virtual(story())


def test_copies_are_recognised_and_a_copy_of_what_failed_is_kept() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(1, 1), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        (mine,) = fleet.instances
        warning = one_warning(fleet, mine, clock)
        aws.failing.add("cluster-000")
        async with aws.routing(counts=counts):
            aws.put(warning)
            aws.put(warning)
            await clock.sleep(8.0)
            assert aws.waiting() == 2
            aws.failing.clear()
            await aws.drained(120.0)
            aws.put(warning)
            await aws.drained(60.0)

        assert aws.bodies("cluster-000") == [warning.body]
        assert counts.totals["duplicates_total",] >= 2

    run_virtual(story())


def test_the_end_is_orderly_and_what_is_not_finished_is_there_at_once() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(5, 100), VirtualClock()
        aws = FleetAws(fleet, clock)
        aws.failing.update(["cluster-000"])
        storm = list(generate_reclaim_storm(fleet, within=4.0, start=clock.now()))
        async with aws.routing():
            await aws.play(storm)
        ended = clock.monotonic()

        assert ended <= 4.0 + 26.0
        left = aws.queue(URGENT).receive_messages(10) + aws.queue(BULK).receive_messages(10)
        assert left
        got = aws.received()
        assert {name: got[name] for name in got if name != "cluster-000"} == {
            name: bodies for name, bodies in expected(fleet, storm).items() if name != "cluster-000"
        }
        assert aws.waiting() + sum(bodies.total() for bodies in got.values()) == len(storm)

    run_virtual(story())


def test_a_dry_run_sends_nothing_and_keeps_everything() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(2, 10), VirtualClock()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, within=2.0, start=clock.now()))
        async with aws.routing(aws.config(dryRun=True)):
            await aws.play(storm)
            await clock.sleep(20.0)

        assert aws.waiting() == len(storm)
        assert aws.requests["sqs:SendMessageBatch"] == 0
        assert all(not aws.bodies(cluster) for cluster in fleet.clusters)

    run_virtual(story())


def test_two_routers_share_the_queues_without_loss() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(10, 200), VirtualClock()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, within=20.0, start=clock.now()))
        async with aws.routing(), aws.routing():
            await aws.play(storm)
            await aws.drained()

        assert aws.received() == expected(fleet, storm)

    run_virtual(story())


@pytest.mark.spec("bus-L9")
def test_a_day_of_events_leaves_no_more_behind_than_an_hour() -> None:
    async def story() -> tuple[int, ...]:
        fleet, clock = GeneratedFleet.generate_fleet(20, 200), VirtualClock()
        aws = FleetAws(fleet, clock, rtt=0.0)
        sizes = []
        config = aws.config(receivers={"urgent": 1, "bulk": 1}, ec2__prefetch="1h")
        async with aws.routing(config) as daemon:
            pipeline = daemon.pipeline
            assert pipeline is not None
            stream = generate_steady_stream(fleet, rate=0.05, start=clock.now())
            for hour in (1, 24):
                while (happening := next(stream)).at < hour * 3600.0:
                    await clock.sleep(max(happening.at - clock.monotonic(), 0.0))
                    aws.put(happening)
                await aws.drained()
                for cluster in fleet.clusters:
                    aws.queue(cluster).purge()
                desks = pipeline.resolver._desks.values()
                sizes.append(
                    len(pipeline.delivered) + len(pipeline._pending) + sum(len(desk.wants) for desk in desks)
                )
                sizes.append(
                    len(pipeline.resolver._tasks)
                    + sum(len(line._held) + len(line._work) for line in daemon._lines)
                )
        return tuple(sizes)

    early, idle, late, still = run_virtual(story())

    assert late <= 1.2 * early
    assert still <= idle + 2
