"""The interruption bus: the pure road, the arithmetic of requests, a cold function."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.bus.destinations import BusCluster
from dovetail.bus.events import ReceivedMessage
from dovetail.bus.generate import GeneratedFleet, generate_reclaim_storm, generate_steady_stream
from dovetail.runtime.clock import SystemClock
from dovetail.sim.clock import VirtualClock, run_virtual

from .registry import Figure, scenario

ROOT = Path(__file__).parents[2]
MANY, BATCH = 50_000, 1_000


class _Nowhere:
    """A shell that is told nothing of use."""

    undeleted = None

    def settle_done(self, message: ReceivedMessage) -> None:
        """It would be deleted."""

    def settle_failed(self, message: ReceivedMessage, urgent: bool) -> None:
        raise AssertionError("nothing fails here")


def _pure() -> float:
    """Events a second through parse, dedupe, memory and route, in processor time."""
    from support.queues import FleetAws

    fleet = GeneratedFleet.generate_fleet(200, 10_000)
    messages = [
        ReceivedMessage(str(n), each.body)
        for n, each in enumerate(islice(generate_steady_stream(fleet), MANY))
    ]
    pipeline, now, nowhere = FleetAws(fleet, SystemClock()).pipeline(), time.time(), _Nowhere()
    for id, name in fleet.map_owners().items():
        pipeline.owners.set_owned(id, (BusCluster(fleet.account, fleet.region, name),), now)
    gc.collect()
    spent = 0.0
    for start in range(0, MANY, BATCH):
        begun = time.process_time()
        plan = pipeline.plan_batch("bulk", messages[start : start + BATCH], nowhere)
        spent += time.process_time() - begun
        assert len(plan.copies) == BATCH
        for flight in plan.flights:
            pipeline._end_flight(flight)
    return MANY / spent


@scenario("bus: parse, deduplicate and route with a warm cache")
def the_pure_road() -> Iterator[Figure]:
    async def measured() -> float:
        return max(_pure() for _ in range(5))

    yield Figure("events a second and core", asyncio.run(measured()), "/s", 50_000, more_is_better=True)


async def _consumed(aws: object, name: str) -> int:
    """What Karpenter does with its queue: receive in tens, delete one by one. The requests it makes."""
    from support.queues import FleetAws

    assert isinstance(aws, FleetAws)
    queue, requests = aws.queue(name), 0
    while messages := queue.receive_messages(10):
        requests += 1 + len(messages)
        for message in messages:
            queue.delete(message, message.handle)
    return requests + 1  # the poll that found nothing


def _requests(clusters: int, instances: int) -> tuple[int, int]:
    """Requests for one storm: with a rule set for every cluster, and with the bus. Counted, both."""
    from support.queues import FleetAws

    async def separate() -> int:
        fleet, clock = GeneratedFleet.generate_fleet(clusters, instances), VirtualClock()
        aws, requests = FleetAws(fleet, clock, rtt=0.0), 0
        for happening in generate_reclaim_storm(fleet, start=clock.now()):
            for name in fleet.clusters:  # every cluster's rules match every event
                aws.queue(name).send(happening.body)
                requests += 1
        return requests + sum([await _consumed(aws, name) for name in fleet.clusters])

    async def together() -> int:
        fleet, clock = GeneratedFleet.generate_fleet(clusters, instances), VirtualClock()
        aws = FleetAws(fleet, clock)
        async with aws.routing():
            sent = await aws.play(generate_reclaim_storm(fleet, start=clock.now()))
            await aws.drained()
        ours = sum(aws.requests.values())
        return sent + ours + sum([await _consumed(aws, name) for name in fleet.clusters])

    return run_virtual(separate()), run_virtual(together())


@scenario("bus: requests for a reclaim storm, counted")
def the_arithmetic() -> Iterator[Figure]:
    for clusters, instances in ((60, 1_000), (200, 1_000)):
        apart, shared = _requests(clusters, instances)
        named = f"{clusters} clusters, {instances:,} instances"
        yield Figure(f"{named}: a rule set each", apart, "requests")
        yield Figure(f"{named}: the bus", shared, "requests")
        yield Figure(f"{named}: times fewer", apart / shared, "×", 10, more_is_better=True)


COLD = """
import json, sys, time
begun, worked = time.perf_counter(), time.process_time()
sys.path.insert(0, {package!r})
from dovetail.bus.handler import lambda_handler
from dovetail.aws.slim import SlimAws
ready, prepared = time.perf_counter(), time.process_time()
class Context:
    def get_remaining_time_in_millis(self): return 5000
first = lambda_handler(json.load(open({event!r})), Context())
import resource
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
took = [ready - begun, time.perf_counter() - ready]
spent = [prepared - worked, time.process_time() - prepared]
print(json.dumps([took, spent, first, used]), file=sys.stderr)
"""


async def _cold_start() -> tuple[list[float], list[float], int, float]:
    """In a fresh interpreter, to import and for the first batch: seconds, and those of the processor.

    Then the size of the zip, and memory.
    """
    from support.router_kills import router_environment, serving

    fleet, package = (
        GeneratedFleet.generate_fleet(10, 100),
        ROOT / "build" / "lambda" / "interruption-bus.zip",
    )
    async with serving(fleet) as (aws, url):
        with TemporaryDirectory() as folder:
            zipfile.ZipFile(package).extractall(folder)
            records = [
                {
                    "messageId": str(n),
                    "body": each.body,
                    "eventSourceARN": "arn:aws:sqs:us-east-2:1:dovetail-bus-bulk",
                    "attributes": {"SenderId": "AIDAEVENTBRIDGE"},
                }
                for n, each in enumerate(generate_reclaim_storm(fleet))
            ][:100]
            event = Path(folder) / "event.json"
            event.write_text(json.dumps({"Records": records}))
            environment = router_environment(fleet, url) | {
                "DOVETAIL_BUS_REGION": fleet.region,
                "DOVETAIL_BUS_ACCOUNTS": json.dumps([{"id": fleet.account}]),
                "DOVETAIL_BUS_DESTINATIONS": json.dumps(
                    [
                        {"cluster": name, "queueUrl": f"{url}/{fleet.account}/{name}"}
                        for name in fleet.clusters
                    ]
                ),
            }
            # The site-packages of the runtime, and not the checkout: only what is in the zip is there.
            program = COLD.format(package=folder, event=str(event))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-S", "-c", _with_site(program)),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            _, told = await process.communicate()
            assert process.returncode == 0, told.decode()
            took, spent, answer, memory = json.loads(told.splitlines()[-1])
            assert answer == {"batchItemFailures": []}
            delivered = sum(len(aws.bodies(name)) for name in fleet.clusters)
            assert delivered == len(records)
    return took, spent, package.stat().st_size, memory


def _with_site(program: str) -> str:
    """Only botocore and what it needs, from where they are installed here."""
    import botocore

    site = str(Path(botocore.__file__).parents[1])
    return f"import sys; sys.path.append({site!r})\n{program}"


@scenario("bus: a cold function (L8)")
def a_cold_function() -> Iterator[Figure]:
    subprocess.run([sys.executable, ROOT / "hack" / "build_lambda.py"], check=True, capture_output=True)
    runs = [asyncio.run(_cold_start()) for _ in range(3)]
    # Of the processor: on a machine that does other things as well, the clock measures those.
    yield Figure("init, processor", 1e3 * min(run[1][0] for run in runs), "ms", 800)
    yield Figure("first batch of 100, processor", min(run[1][1] for run in runs), "s", 1.5)
    yield Figure("init", 1e3 * min(run[0][0] for run in runs), "ms")
    yield Figure("first batch of 100", min(run[0][1] for run in runs), "s", 1.5)
    yield Figure("memory", max(run[3] for run in runs), "MB", 256)
    yield Figure("package", runs[0][2] / 1024, "KiB", 1024)
