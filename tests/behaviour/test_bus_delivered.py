"""Nothing is remembered as delivered that was not: what was set aside is news when it is replayed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from dovetail.bus.generate import (
    GeneratedEvent,
    GeneratedFleet,
    generate_fis_experiment,
    generate_health_pages,
)
from dovetail.bus.operator_tools import ReplayFilter, replay_queue
from dovetail.bus.ports import BusTally
from dovetail.sim.clock import VirtualClock, run_virtual
from support.queues import BULK, DLQ, PARK, URGENT, FleetAws

SOON = {"reload": "10s"}
A, B = "cluster-000", "cluster-001"


def bare(instances: int = 6) -> tuple[FleetAws, VirtualClock]:
    clock = VirtualClock()
    return FleetAws(GeneratedFleet.generate_fleet(2, instances), clock), clock


def warning(aws: FleetAws, cluster: str, clock: VirtualClock) -> GeneratedEvent:
    mine = aws.fleet.clusters[cluster][0]
    (found,) = [
        each
        for each in generate_fis_experiment(aws.fleet, [mine], start=clock.now())
        if each.kind == "spot_interrupted"
    ]
    return found


def page(aws: FleetAws, clock: VirtualClock) -> GeneratedEvent:
    (found,) = generate_health_pages(aws.fleet, pages=1, backup=False, start=clock.now())
    return found


def told(aws: FleetAws, cluster: str) -> Counter[str]:
    """Instances of Health events in a cluster's queue, counted."""
    return Counter(
        entity["entityValue"]
        for body in aws.bodies(cluster)
        for entity in json.loads(body)["detail"]["affectedEntities"]
    )


def tag(aws: FleetAws, cluster: str) -> None:
    aws.queue(cluster).tags.update({"dovetail.sh/bus": "true", "dovetail.sh/cluster": cluster})


async def replayed(aws: FleetAws, config: Any, clock: VirtualClock) -> int:
    return (await replay_queue(aws, config, PARK, ReplayFilter(), clock=clock)).moved


def test_a_warning_parked_for_want_of_a_queue_arrives_when_it_is_replayed() -> None:
    async def story() -> None:
        aws, clock = bare()
        config = aws.config(destinations=[], registry={"discover": True, **SOON})
        event = warning(aws, A, clock)
        async with aws.routing(config):
            aws.put(event)
            await aws.drained(60.0)
            assert aws.bodies(PARK) == [event.body]

            tag(aws, A)
            await clock.sleep(11.0)
            assert await replayed(aws, config, clock) == 1
            await aws.drained(60.0)

        assert aws.bodies(A) == [event.body]
        assert aws.bodies(PARK) == aws.bodies(DLQ) == []

    run_virtual(story())


def test_a_warning_parked_because_its_queue_was_gone_arrives_when_it_is_replayed() -> None:
    async def story() -> None:
        aws, clock = bare()
        config, event = aws.config(), warning(aws, A, clock)
        gone = aws.sim.queues.by_name.pop(A)
        async with aws.routing(config):
            aws.put(event)
            await aws.drained(60.0)
            assert aws.bodies(PARK) == [event.body]

            aws.sim.queues.by_name[A] = gone
            assert await replayed(aws, config, clock) == 1
            await aws.drained(60.0)

        assert (aws.bodies(A), aws.bodies(PARK)) == ([event.body], [])

    run_virtual(story())


def test_events_parked_during_a_pause_arrive_when_they_are_replayed() -> None:
    async def story() -> None:
        aws, clock = bare()
        item: dict[str, Any] = {
            "pk": {"S": f"{aws.fleet.account}#{aws.region}#{A}"},
            "queueUrl": {"S": aws.queue(A).url},
        }
        aws.tables["registry"] = {"a": item | {"paused": {"BOOL": True}}}
        config = aws.config(destinations=[], registry={"dynamodb": "registry", **SOON})
        event = warning(aws, A, clock)
        async with aws.routing(config):
            aws.put(event)
            await aws.drained(60.0)
            assert aws.bodies(PARK) == [event.body]

            aws.tables["registry"] = {"a": item}
            await clock.sleep(11.0)
            assert await replayed(aws, config, clock) == 1
            await aws.drained(60.0)

        assert (aws.bodies(A), aws.bodies(PARK)) == ([event.body], [])

    run_virtual(story())


def test_the_parked_part_of_a_health_event_arrives_and_the_others_are_not_told_again() -> None:
    async def story() -> None:
        aws, clock = bare()
        tag(aws, A)
        config = aws.config(destinations=[], registry={"discover": True, **SOON})
        async with aws.routing(config):
            aws.put(page(aws, clock))
            await aws.drained(60.0)
            assert len(aws.bodies(PARK)) == 1

            tag(aws, B)
            await clock.sleep(11.0)
            assert await replayed(aws, config, clock) == 1
            await aws.drained(60.0)
            aws.put(page(aws, clock))  # and the whole once more, as SQS may
            await aws.drained(60.0)

        for cluster, instances in aws.fleet.clusters.items():
            assert told(aws, cluster) == Counter(instances)

    run_virtual(story())


def test_a_part_that_was_replayed_does_not_silence_the_rest_of_its_health_event() -> None:
    async def story() -> None:
        aws, clock = bare()
        tag(aws, A)
        config = aws.config(destinations=[], registry={"discover": True, **SOON})
        aws.failing.add(A)
        async with aws.routing(config):
            aws.put(page(aws, clock))
            await clock.sleep(20.0)
            assert len(aws.bodies(PARK)) == 1

            tag(aws, B)
            await clock.sleep(11.0)
            assert await replayed(aws, config, clock) == 1
            await clock.sleep(20.0)
            aws.failing.clear()
            await aws.drained(600.0)

        assert told(aws, A) == Counter(aws.fleet.clusters[A])
        assert set(told(aws, B)) == set(aws.fleet.clusters[B])

    run_virtual(story())


def test_an_attempt_that_failed_for_one_cluster_tells_the_others_once() -> None:
    async def story() -> None:
        aws, clock = bare()
        aws.failing.add(A)
        async with aws.routing():
            aws.put(page(aws, clock))
            await clock.sleep(400.0)  # two attempts
            assert aws.bodies(A) == []
            aws.failing.clear()
            await aws.drained(600.0)

        for cluster, instances in aws.fleet.clusters.items():
            assert told(aws, cluster) == Counter(instances)

    run_virtual(story())


def test_a_broadcast_is_delivered_to_those_it_reached_and_to_nobody_else() -> None:
    async def story() -> None:
        aws, clock = bare()
        tag(aws, B)
        config = aws.config(destinations=[], registry={"discover": True, **SOON})
        event, counts = warning(aws, A, clock), BusTally()
        hidden = aws.tags.pop(event.instances[0])
        aws.ids.remove(event.instances[0])
        async with aws.routing(config, counts):
            aws.put(event)
            await aws.drained(60.0)
            assert counts.totals["broadcast_total",] == 1

            aws.tags[event.instances[0]] = hidden
            tag(aws, A)
            await clock.sleep(40.0)
            aws.put(event)
            await aws.drained(60.0)

        assert aws.bodies(A) == aws.bodies(B) == [event.body]

    run_virtual(story())


def test_an_event_dropped_as_no_ones_is_looked_at_again_when_it_comes_again() -> None:
    async def story() -> None:
        aws, clock = bare()
        event = warning(aws, A, clock)
        tags, aws.tags[event.instances[0]] = aws.tags[event.instances[0]], {"Name": "untagged"}
        counts = BusTally()
        async with aws.routing(aws.config(ec2__prefetch="0s", dedupe__window="3600s"), counts):
            aws.put(event)
            await aws.drained(60.0)
            assert counts.totals["dropped_total", "foreign"] == 1

            aws.tags[event.instances[0]] = tags
            await clock.sleep(601.0)
            aws.put(event)
            await aws.drained(60.0)

        assert aws.bodies(A) == [event.body]

    run_virtual(story())


def test_a_message_whose_deletion_failed_is_recognised_and_told_once() -> None:
    async def story() -> None:
        aws, clock = bare()
        event, counts = warning(aws, A, clock), BusTally()
        aws.sim.faults.refuse("InternalError", "sqs:DeleteMessageBatch", 3)
        async with aws.routing(counts=counts):
            aws.put(event)
            await aws.drained(120.0)

        assert aws.bodies(A) == [event.body]
        assert counts.totals["duplicates_total",] >= 1
        assert aws.bodies(URGENT) == aws.bodies(BULK) == []

    run_virtual(story())
