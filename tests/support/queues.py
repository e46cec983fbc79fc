"""A small AWS for the bus: simulated queues and rules, a fleet in a table, answers that take their time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

from dovetail.aws import Answer, aws_error
from dovetail.bus.config import BusConfig, read_config
from dovetail.bus.daemon import RouterDaemon
from dovetail.bus.generate import GeneratedEvent, GeneratedFleet
from dovetail.bus.handler import RouterFunction
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.ports import BusClock, BusTally, RouterContext
from dovetail.ports import Clock as FullClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.messaging.queues import SimQueue

__all__ = ["BULK", "CENTRAL", "DLQ", "PARK", "URGENT", "FleetAws", "document", "expected", "quiet"]

CENTRAL = URGENT, BULK = ("dovetail-bus-urgent", "dovetail-bus-bulk")
PARK, DLQ = "dovetail-bus-park", "dovetail-bus-dlq"
LAUNCHED = datetime(2025, 1, 1, tzinfo=UTC)


def quiet(line: str) -> None:
    """Where log lines go when no one reads them."""


class FleetAws:
    """The Aws port: queues are the simulator's, instances come from a fleet, every answer takes `rtt`."""

    def __init__(
        self,
        fleet: GeneratedFleet,
        clock: FullClock,
        *,
        rtt: float = 0.02,
        seed: int = 0,
        visibility: tuple[int, int] = (30, 180),
        receives: tuple[int, int] = (10, 5),
        world: SimulatedAws | None = None,
    ) -> None:
        self.fleet, self.clock, self.rtt = fleet, clock, rtt
        self.sim = world or SimulatedAws(clock, seed, fleet.region, fleet.account)
        self.sim.calls = deque(maxlen=0)  # benchmarks make millions
        self.requests: Counter[str] = Counter()
        self.failing: set[str] = set()
        # Set to have cluster queues keep bodies and nothing else: a broadcast makes a million copies.
        self.sink: dict[str, set[str]] | None = None
        self.denied: set[str] = set()
        self.ec2_down = self.silenced = False
        self.ec2_denied = False
        self.tags = {id: fleet.build_tags(cluster) for cluster, ids in fleet.clusters.items() for id in ids}
        self.ids = list(self.tags)
        self.tables: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._found_queues(visibility, receives)

    def _found_queues(self, visibility: tuple[int, int], receives: tuple[int, int]) -> None:
        dead = self.sim.queues.add(DLQ, {"MessageRetentionPeriod": "1209600"})
        self.sim.queues.add(PARK, {"MessageRetentionPeriod": "1209600"})
        for name, seconds, most in zip(CENTRAL, visibility, receives, strict=True):
            policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": most})
            self.sim.queues.add(name, {"VisibilityTimeout": str(seconds), "RedrivePolicy": policy})
        for cluster in self.fleet.clusters:
            self.sim.queues.add(cluster)

    @property
    def region(self) -> str:
        return self.fleet.region

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> FleetAws:
        return self

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if self.silenced:
            raise asyncio.CancelledError  # whoever asks is no longer there
        self.requests[f"{service}:{operation}"] += 1
        if self.rtt:
            await self.clock.sleep(self.rtt)
        if operation == "DescribeInstances":
            return self._described(parameters)
        if service == "dynamodb":
            return self._table(operation, parameters)
        if operation == "SendMessageBatch":
            name = str(parameters["QueueUrl"]).rpartition("/")[2]
            if name in self.failing:
                raise aws_error("sqs:SendMessageBatch", "RequestThrottled", "slow down", 400)
            if name in self.denied:
                raise aws_error("sqs:SendMessageBatch", "AccessDenied", "not yours", 403)
            if self.sink is not None and name in self.sink:
                self.sink[name].update(entry["MessageBody"] for entry in parameters["Entries"])
                return {"Successful": [{"Id": entry["Id"]} for entry in parameters["Entries"]]}
        return await self.sim.call(service, operation, parameters)

    def _described(self, asked: Mapping[str, Any]) -> Answer:
        if self.ec2_down:
            raise aws_error("ec2:DescribeInstances", "RequestLimitExceeded", "slow down", 503)
        if self.ec2_denied:
            raise aws_error("ec2:DescribeInstances", "UnauthorizedOperation", "not you", 403)
        if asked.get("DryRun"):
            raise aws_error("ec2:DescribeInstances", "DryRunOperation", "it would have worked", 412)
        (wanted,) = asked["Filters"]
        if wanted["Name"] == "instance-id":
            assert len(wanted["Values"]) <= 200
            return {
                "Reservations": [
                    {"Instances": [self._shown(id) for id in wanted["Values"] if id in self.tags]}
                ]
            }
        start, size = int(asked.get("NextToken", "0")), asked["MaxResults"]
        some = self.ids[start : start + size]
        more = {"NextToken": str(start + size)} if start + size < len(self.ids) else {}
        return {"Reservations": [{"Instances": [self._shown(id) for id in some]}], **more}

    def _shown(self, id: str) -> dict[str, Any]:
        tags = [{"Key": key, "Value": value} for key, value in self.tags[id].items()]
        return {"InstanceId": id, "Tags": tags, "LaunchTime": LAUNCHED, "State": {"Name": "running"}}

    def _table(self, operation: str, asked: Mapping[str, Any]) -> Answer:
        if operation == "Scan":
            return {"Items": list(self.tables.get(asked["TableName"], {}).values())}
        ((name, requests),) = asked["RequestItems"].items()
        assert operation == "BatchGetItem"
        assert len(requests["Keys"]) <= 100
        table = self.tables.get(name, {})
        return {"Responses": {name: [table[k["id"]["S"]] for k in requests["Keys"] if k["id"]["S"] in table]}}

    def queue(self, name: str) -> SimQueue:
        return self.sim.queues.by_name[name]

    def put(self, happening: GeneratedEvent) -> None:
        """An event reaches the central queue its rule names."""
        self.queue(CENTRAL[0] if happening.lane == "urgent" else CENTRAL[1]).send(happening.body)

    def bodies(self, name: str) -> list[str]:
        """What lies in a queue."""
        return [message.body for message in self.queue(name).messages.values()]

    def received(self) -> dict[str, Counter[str]]:
        """Bodies in each cluster's queue, counted."""
        return {cluster: Counter(self.bodies(cluster)) for cluster in self.fleet.clusters}

    def waiting(self) -> int:
        """Messages that lie in the central queues, seen or not."""
        return sum(len(self.queue(name).messages) for name in CENTRAL)

    def config(self, **keys: Any) -> BusConfig:
        return read_config(document(self.fleet, **keys), {})

    def daemon(
        self,
        config: BusConfig | None = None,
        counts: BusTally | None = None,
        clock: BusClock | None = None,
        *,
        reread: Callable[[], BusConfig] | None = None,
    ) -> RouterDaemon:
        return RouterDaemon(self.context(config, counts, clock), reread=reread)

    def context(
        self,
        config: BusConfig | None = None,
        counts: BusTally | None = None,
        clock: BusClock | None = None,
    ) -> RouterContext:
        return RouterContext(
            config or self.config(), self, clock or self.clock, counts or BusTally(), Random(1)
        )

    @asynccontextmanager
    async def routing(
        self, config: BusConfig | None = None, counts: BusTally | None = None
    ) -> AsyncIterator[RouterDaemon]:
        """A daemon at work, until the block ends."""
        async with self.running(self.daemon(config, counts)) as daemon:
            yield daemon

    @asynccontextmanager
    async def running(self, daemon: RouterDaemon) -> AsyncIterator[RouterDaemon]:
        """This daemon at work, until the block ends."""
        stop = asyncio.Event()
        await daemon.prepare()
        task = asyncio.create_task(daemon.run(stop))
        try:
            yield daemon
        finally:
            stop.set()
            await task

    async def play(self, happenings: Iterable[GeneratedEvent]) -> int:
        """Put events into the central queues at their times, from now on; returns how many."""
        began, count = self.clock.monotonic(), 0
        for happening in happenings:
            wait = began + happening.at - self.clock.monotonic()
            if wait > 0:
                await self.clock.sleep(wait)
            self.put(happening)
            count += 1
        return count

    async def drained(self, within: float = 600.0, names: tuple[str, ...] = CENTRAL) -> float:
        """Wait until the central queues are empty; returns how long it took."""
        began = self.clock.monotonic()
        while left := sum(len(self.queue(name).messages) for name in names):
            assert self.clock.monotonic() - began < within, f"{left} messages are still there"
            await self.clock.sleep(0.05)
        return self.clock.monotonic() - began

    def function(self, config: BusConfig | None = None, counts: BusTally | None = None) -> RouterFunction:
        return RouterFunction(self.context(config, counts))

    def pipeline(
        self, config: BusConfig | None = None, counts: BusTally | None = None, **more: Any
    ) -> Pipeline:
        return Pipeline(self.context(config, counts), self.queue(PARK).url, **more)


def document(fleet: GeneratedFleet, **keys: Any) -> dict[str, Any]:
    """A configuration for the fleet's clusters; keys are given with their dots as `__`."""
    made: dict[str, Any] = {
        "region": fleet.region,
        "accounts": [{"id": fleet.account}],
        "destinations": [
            {"cluster": name, "queueUrl": f"https://sqs.{fleet.region}.amazonaws.com/{fleet.account}/{name}"}
            for name in fleet.clusters
        ],
    }
    for path, value in keys.items():
        *above, last = path.split("__")
        inner = made
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return {"bus": made}


def expected(fleet: GeneratedFleet, happenings: Iterable[GeneratedEvent]) -> dict[str, Counter[str]]:
    """What each cluster's queue should hold in the end, for events about one instance."""
    owner = fleet.map_owners()
    wanted: dict[str, Counter[str]] = {cluster: Counter() for cluster in fleet.clusters}
    for each in happenings:
        wanted[owner[each.instances[0]]][each.body] += 1
    return wanted
