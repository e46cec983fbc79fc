"""The interruption bus under load (L1 to L6): real time, answers of AWS take 20 ms.

`DOVETAIL_BENCH_MINUTES=10` gives the steady load its ten minutes; without it, it gets one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.bus.generate import (
    GeneratedEvent,
    GeneratedFleet,
    generate_health_pages,
    generate_reclaim_storm,
    generate_steady_stream,
)
from dovetail.bus.ports import BusTally
from dovetail.runtime.clock import SystemClock

from .registry import Figure, scenario

TESTS = Path(__file__).parents[1]
RTT = 0.02
MINUTES = float(os.environ.get("DOVETAIL_BENCH_MINUTES", "1"))


def _p99(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)]


def _lost(aws: Any, happenings: list[GeneratedEvent]) -> int:
    """Events that their owner's queue has not got."""
    from support.queues import expected

    got = aws.sink if aws.sink is not None else aws.received()
    wanted = expected(aws.fleet, happenings)
    return sum(body not in got[name] for name, bodies in wanted.items() for body in bodies)


def _sink(fleet: GeneratedFleet) -> dict[str, set[str]]:
    return {name: set() for name in fleet.clusters}


@asynccontextmanager
async def _workers(aws: Any, count: int, **keys: Any) -> AsyncIterator[list[dict[str, Any]]]:
    """So many daemons in processes of their own; their numbers are there when the block has ended."""
    from support.queue_socket import listening
    from support.queues import document

    told: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        config, socket = Path(folder) / "config.json", str(Path(folder) / "socket")
        config.write_text(json.dumps(document(aws.fleet, **keys)))
        async with listening(aws, socket):
            started = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "support.bus_worker", socket, str(config)),
                    env={**os.environ, "PYTHONPATH": str(TESTS)},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for _ in range(count)
            ]
            for process in started:
                assert process.stdout is not None
                assert (await process.stdout.readline()).strip() == b"ready"
            yield told
            for process in started:
                answer, _ = await process.communicate(b"\n")
                told.append(json.loads(answer))


async def _steady(seconds: float) -> tuple[dict[str, Any], int, float]:
    """1,000 events a second on 500 clusters with 100,000 instances: the worker's numbers, losses, cores."""
    from support.queues import FleetAws

    fleet = GeneratedFleet.generate_fleet(500, 100_000)
    aws = FleetAws(fleet, SystemClock(), rtt=RTT)
    aws.sink = _sink(fleet)
    windows = {"urgent": {"window": "75ms"}, "bulk": {"window": "75ms"}}
    async with _workers(aws, 1, batch=windows, parallel=1000) as told:
        for _ in range(600):  # a steady load finds a warm cache
            if aws.requests["ec2:DescribeInstances"] >= 100:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        stream = generate_steady_stream(fleet, rate=1000.0, start=datetime.now(UTC))
        count, began = int(1000 * seconds), time.monotonic()
        for number, happening in enumerate(islice(stream, count)):
            if number % 50 == 0:
                await asyncio.sleep(max(0.0, began + happening.at - time.monotonic()))
            aws.put(happening)
        await aws.drained(120.0)
    delivered = sum(map(len, aws.sink.values()))
    return told[0], count - delivered, told[0]["cpu"] / told[0]["seconds"]


@scenario("bus: 1,000 events a second, 500 clusters, 100,000 instances (L1)")
def the_steady_load() -> Iterator[Figure]:
    told, lost, cores = asyncio.run(_steady(60 * MINUTES))
    for lane in ("urgent", "bulk"):
        # Without the call that sent it; waiting for a batch to fill is the router's own time.
        own = told["latency"][lane]["p99"]
        yield Figure(f"{lane}: p99 from receive to sent, without AWS", 1e3 * own, "ms", 250)
    yield Figure("cores", cores, "", 2)
    yield Figure("memory", told["rss_mb"], "MB", 300)
    yield Figure("events lost", lost, "", 0)


async def _storm(prefetch: str) -> tuple[BusTally, int, int]:
    from support.queues import FleetAws

    fleet, counts = GeneratedFleet.generate_fleet(200, 10_000), BusTally()
    aws = FleetAws(fleet, SystemClock(), rtt=RTT)
    async with aws.routing(aws.config(ec2__prefetch=prefetch), counts) as daemon:
        storm = list(generate_reclaim_storm(fleet, start=datetime.now(UTC)))
        await aws.play(storm)
        await aws.drained(120.0)
        for line in daemon._lines:
            line._receiving = 0  # no one waits for the last polls of a benchmark
    return counts, aws.requests["ec2:DescribeInstances"], _lost(aws, storm)


@scenario("bus: a storm of 40,000 events in a minute, cold (L2)")
def the_storm() -> Iterator[Figure]:
    for prefetch, named in (("15m", "prefetching"), ("0s", "asking as it goes")):
        counts, calls, lost = asyncio.run(_storm(prefetch))
        for lane, budget in (("urgent", 2), ("bulk", 30)):
            latency = _p99(counts.observed["latency_seconds", lane, "receive_to_sent"])
            yield Figure(f"{named}: {lane} p99", latency, "s", budget)
        yield Figure(f"{named}: EC2 calls", calls, "", 120)
        yield Figure(f"{named}: events lost", lost, "", 0)


async def _backlog(workers: int) -> tuple[float, float, int]:
    """Seconds until 15,000 queued messages are gone, those of the busiest's processor, and how many got lost.

    One process shares its processor with the queues it reads, and is charged for both.
    """
    from support.queues import FleetAws

    fleet = GeneratedFleet.generate_fleet(100, 5_000)
    aws = FleetAws(fleet, SystemClock(), rtt=RTT)
    aws.sink = _sink(fleet)
    queued = list(islice(generate_steady_stream(fleet, start=datetime.now(UTC)), 15_000))
    if workers == 1:
        async with aws.routing() as daemon:
            await asyncio.sleep(1.0)
            begun = time.process_time()
            for each in queued:
                aws.put(each)
            took = await aws.drained(120.0)
            spent = time.process_time() - begun
            for line in daemon._lines:
                line._receiving = 0
        return took, spent, _lost(aws, queued)
    async with _workers(aws, workers) as told:
        await asyncio.sleep(1.0)
        for each in queued:
            aws.put(each)
        took = await aws.drained(120.0)
    return took, max(each["cpu"] for each in told), _lost(aws, queued)


@scenario("bus: a backlog of 15,000 messages (L3)")
def the_backlog() -> Iterator[Figure]:
    for workers, budget in ((1, 15), (4, 5)):
        took, spent, lost = asyncio.run(_backlog(workers))
        named = "one process" if workers == 1 else f"{workers} processes"
        # Of the processor: four processes on two cores that do other things as well wait for each other.
        yield Figure(f"{named}: processor of the busiest", spent, "s", budget)
        yield Figure(f"{named}: drained", took, "s", budget)
        yield Figure(f"{named}: events lost", lost, "", 0)


async def _pages() -> tuple[int, int]:
    from support.queues import FleetAws

    fleet = GeneratedFleet.generate_fleet(80, 1_200)
    aws, counts = FleetAws(fleet, SystemClock(), rtt=RTT), BusTally()
    async with aws.routing(counts=counts) as daemon:
        await aws.play(each._replace(at=0.0) for each in generate_health_pages(fleet))
        await aws.drained(60.0)
        for line in daemon._lines:
            line._receiving = 0
    told = [
        (name, entity["entityValue"])
        for name in fleet.clusters
        for body in aws.bodies(name)
        for entity in json.loads(body)["detail"]["affectedEntities"]
    ]
    wanted = Counter((name, id) for name, ids in fleet.clusters.items() for id in ids)
    got = Counter(told)
    return (wanted - got).total(), (got - wanted).total()


@scenario("bus: a Health event about 1,200 instances of 80 clusters (L4)")
def the_pages() -> Iterator[Figure]:
    missing, more = asyncio.run(_pages())
    yield Figure("entities missing", missing, "", 0)
    yield Figure("entities told twice or to others", more, "", 0)


async def _beside(failing: bool) -> float:
    from support.queues import FleetAws

    fleet, counts = GeneratedFleet.generate_fleet(50, 2_000), BusTally()
    aws = FleetAws(fleet, SystemClock(), rtt=RTT)
    if failing:
        aws.failing.add("cluster-000")
    async with aws.routing(counts=counts) as daemon:
        await asyncio.sleep(1.0)
        await aws.play(islice(generate_steady_stream(fleet, rate=300.0, start=datetime.now(UTC)), 6_000))
        await asyncio.sleep(3.0)
        for line in daemon._lines:
            line._receiving = 0
            line._work.clear()
    return _p99(counts.observed["latency_seconds", "urgent", "receive_to_sent"])


@scenario("bus: one destination of fifty always fails (L5)")
def the_bad_neighbour() -> Iterator[Figure]:
    alone, beside = asyncio.run(_beside(failing=False)), asyncio.run(_beside(failing=True))
    yield Figure("the others' p99 without it", alone, "s")
    yield Figure("the others' p99 beside it", beside, "s")
    yield Figure("of what it was", 100 * beside / alone, "%", 110)


async def _silent(instances: int) -> tuple[int, int, float, float]:
    """With EC2 silent for 90 s: warnings, warnings missed, the shortest notice left, and broadcasts."""
    from support.queues import FleetAws

    fleet, counts = GeneratedFleet.generate_fleet(200, instances), BusTally()
    aws, owner = FleetAws(fleet, SystemClock(), rtt=RTT), fleet.map_owners()
    aws.ec2_down = True
    aws.sink = seen = _sink(fleet)
    async with aws.routing(aws.config(parallel=200), counts) as daemon:
        storm = list(generate_reclaim_storm(fleet, start=datetime.now(UTC)))
        playing = asyncio.create_task(aws.play(storm))
        await asyncio.sleep(90.0)
        aws.ec2_down = False
        await playing
        await aws.drained(300.0, ("dovetail-bus-urgent",))
        for line in daemon._lines:
            line._receiving = 0
            line._work.clear()
    warnings = [each for each in storm if each.kind == "spot_interrupted"]
    missed = sum(each.body not in seen[owner[each.instances[0]]] for each in warnings)
    left = min(counts.observed["deadline_remaining_seconds", "spot_interrupted"])
    return len(warnings), missed, left, counts.totals.get(("broadcast_total",), 0.0)


@scenario("bus: EC2 answers no one for 90 s during a storm (L6)")
def the_silence() -> Iterator[Figure]:
    warnings, missed, left, told = asyncio.run(_silent(int(os.environ.get("DOVETAIL_BENCH_SILENT", "2500"))))
    yield Figure("warnings", warnings, "")
    yield Figure("of them broadcast to 200 clusters", told, "")
    yield Figure("warnings missed", missed, "", 0)
    yield Figure("least notice left", left, "s", 30, more_is_better=True)
