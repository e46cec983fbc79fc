"""The function: partial failures, time that runs out, direct events; and the same sends as the daemon's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.bus.generate import (
    GeneratedEvent,
    GeneratedFleet,
    generate_fis_experiment,
    generate_health_pages,
    generate_reclaim_storm,
)
from dovetail.bus.ports import BusTally
from dovetail.sim.clock import VirtualClock, run_virtual
from support.queues import BULK, DLQ, PARK, URGENT, FleetAws, expected

SECONDS = {URGENT: 5.0, BULK: 30.0}
BATCH = {URGENT: 100, BULK: 1000}


async def invoke(aws: FleetAws, function: Any, name: str) -> tuple[int, list[str]]:
    """One turn of an event source mapping: receive, call, delete what did not fail; how many, what failed."""
    messages = aws.queue(name).receive_messages(BATCH[name])
    if not messages:
        return 0, []
    records = [
        {
            "messageId": message.id,
            "receiptHandle": message.handle,
            "body": message.body,
            "attributes": {
                "SentTimestamp": str(int(message.sent.timestamp() * 1000)),
                "ApproximateReceiveCount": str(message.received),
                "SenderId": "AIDA",
            },
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": aws.queue(name).arn,
        }
        for message in messages
    ]
    answer = await function.handle_call({"Records": records}, SECONDS[name])
    failed = [each["itemIdentifier"] for each in answer["batchItemFailures"]]
    for message in messages:
        if message.id not in failed:
            aws.queue(name).delete(message, message.handle)
    return len(messages), failed


async def mapped(aws: FleetAws, function: Any, turns: int = 60) -> None:
    """Event source mappings at work until there is nothing left."""
    for _ in range(turns):
        for name in (URGENT, BULK):
            await invoke(aws, function, name)
        if not aws.waiting():
            return
        await aws.clock.sleep(5.0)


def test_a_storm_through_the_function() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(20, 300), VirtualClock()
        aws = FleetAws(fleet, clock)
        storm = list(generate_reclaim_storm(fleet, within=10.0, start=clock.now()))
        await aws.play(storm)
        await mapped(aws, aws.function())
        assert aws.received() == expected(fleet, storm)

    run_virtual(story())


def test_only_what_failed_comes_again_and_a_warning_comes_again_soon() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(3, 30), VirtualClock()
        aws = FleetAws(fleet, clock)
        aws.failing.add("cluster-000")
        storm = [
            each
            for each in generate_reclaim_storm(fleet, within=1.0, start=clock.now())
            if each.lane == "urgent"
        ]
        await aws.play(storm)
        function = aws.function()

        count, failed = await invoke(aws, function, URGENT)

        assert (count, len(failed)) == (30, 10)
        assert aws.waiting() == 10
        assert aws.queue(URGENT).receive_messages(10) == []
        await clock.sleep(2.1)
        assert len(aws.queue(URGENT).receive_messages(10)) == 10

    run_virtual(story())


@pytest.mark.spec("bus-L6")
def test_a_function_tries_ec2_for_three_seconds_and_then_broadcasts() -> None:
    async def story() -> None:
        fleet, clock, counts = GeneratedFleet.generate_fleet(4, 8), VirtualClock(), BusTally()
        aws = FleetAws(fleet, clock)
        aws.ec2_down = True
        storm = list(generate_reclaim_storm(fleet, within=0.5, start=clock.now()))
        await aws.play(storm)
        function = aws.function(counts=counts)
        began = clock.monotonic()

        _, urgent = await invoke(aws, function, URGENT)
        took = clock.monotonic() - began
        _, bulk = await invoke(aws, function, BULK)

        assert (urgent, len(bulk)) == ([], 24)
        assert 3.0 <= took < 4.0
        assert counts.totals["broadcast_total",] == 8
        assert [len(aws.bodies(cluster)) for cluster in fleet.clusters] == [8] * 4

    run_virtual(story())


def test_when_time_runs_out_the_rest_is_reported_and_nothing_is_stuck() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(2, 10), VirtualClock()
        aws = FleetAws(fleet, clock, rtt=0.02)
        storm = [
            each
            for each in generate_reclaim_storm(fleet, within=0.5, start=clock.now())
            if each.lane == "bulk"
        ]
        await aws.play(storm)
        function = aws.function()
        await function.handle_call([], 30.0)  # a first call, so that the queues are known
        aws.rtt = 60.0  # AWS hangs

        _, failed = await invoke(aws, function, BULK)
        aws.rtt = 0.02
        await clock.sleep(200.0)
        await mapped(aws, function)

        assert len(failed) == len(storm)
        assert {cluster: set(bodies) for cluster, bodies in aws.received().items()} == {
            cluster: set(bodies) for cluster, bodies in expected(fleet, storm).items()
        }

    run_virtual(story())


def test_events_that_come_without_a_queue() -> None:
    async def story() -> None:
        fleet, clock = GeneratedFleet.generate_fleet(2, 4), VirtualClock()
        aws = FleetAws(fleet, clock)
        function = aws.function()
        (bare, notified, listed, *_) = [
            json.loads(each.body)
            for each in generate_fis_experiment(fleet, fleet.instances[:1], start=clock.now())
        ]
        sns = {"Type": "Notification", "Message": json.dumps(notified)}

        assert await function.handle_call(bare, 5.0) == {"batchItemFailures": []}
        assert await function.handle_call([sns, listed], 5.0) == {"batchItemFailures": []}
        record = {
            "Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps({**bare, "id": "new"})}}]
        }
        assert await function.handle_call(record, 5.0) == {"batchItemFailures": []}

        (owner,) = [name for name, ids in fleet.clusters.items() if fleet.instances[0] in ids]
        assert Counter(json.loads(body)["id"] for body in aws.bodies(owner)) == Counter(
            [bare["id"], notified["id"], listed["id"], "new"]
        )
        aws.failing.add(owner)
        with pytest.raises(RuntimeError, match="they must come again"):
            await function.handle_call({**bare, "id": "another"}, 5.0)

    run_virtual(story())


def outcomes(aws: FleetAws) -> dict[str, Counter[str]]:
    """Everything anywhere, as far as it does not depend on when things happened."""
    return {
        name: Counter(queue.body for queue in each.messages.values())
        for name, each in aws.sim.queues.by_name.items()
    }


def mixture(seed: int, fleet: GeneratedFleet, clock: VirtualClock) -> Iterable[GeneratedEvent]:
    storm = list(generate_reclaim_storm(fleet, seed, within=3.0, start=clock.now()))
    pages = list(generate_health_pages(fleet, seed, pages=2, start=clock.now()))
    odd = [
        GeneratedEvent(1.0, storm[0].lane, body, (), "odd")
        for body in (
            "poison",
            storm[0].body.replace("aws.ec2", "evil.ec2"),
            storm[1].body.replace(fleet.account, "666666666666"),
            storm[2].body.replace('"version":"0"', '"version":"7"'),
        )
    ]
    strangers = generate_fis_experiment(fleet, ["i-0nobody", "i-0bastion"], seed=seed + 1, start=clock.now())
    return sorted(
        [*storm, *pages, *odd, *(each._replace(at=1.0) for each in strangers)], key=lambda each: each.at
    )


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), denied=st.booleans(), clusters=st.integers(1, 6))
def test_the_function_and_the_daemon_send_the_same(seed: int, denied: bool, clusters: int) -> None:
    def through(daemon: bool) -> dict[str, Counter[str]]:
        async def story() -> dict[str, Counter[str]]:
            fleet, clock = GeneratedFleet.generate_fleet(clusters, 12, seed), VirtualClock()
            aws = FleetAws(fleet, clock)
            aws.tags["i-0bastion"] = {"Name": "bastion"}
            if denied:
                aws.denied.add("cluster-000")
            happenings = mixture(seed, fleet, clock)
            if daemon:
                async with aws.routing(aws.config(ec2__prefetch="0s")):
                    await aws.play(happenings)
                    await aws.drained(3600.0)
            else:
                await aws.play(happenings)
                await asyncio.wait_for(mapped(aws, aws.function(), 600), 3600.0)
            assert aws.waiting() == 0
            return outcomes(aws)

        return run_virtual(story())

    by_function, by_daemon = through(daemon=False), through(daemon=True)

    assert by_function == by_daemon
    assert by_daemon[DLQ].total() == 1
    assert by_daemon[PARK].total() >= 3
