"""Believable event streams for tests, benchmarks and demonstrations: storms, Health pages, FIS sequences.

Shapes follow the public AWS documentation, values are made up from a seed: the same seed, the same stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from dovetail.aws.eventbridge import MessageKind
from dovetail.bus.events import Lane

__all__ = [
    "GeneratedEvent",
    "GeneratedFleet",
    "generate_fis_experiment",
    "generate_health_pages",
    "generate_reclaim_storm",
    "generate_steady_stream",
]

START = datetime(2026, 2, 3, 10, tzinfo=UTC)
HOST_ACCOUNT = "123456789012"
BACKUP = {"us-west-2": "us-east-1"}


class GeneratedEvent(NamedTuple):
    """An event, when it reaches its queue (in seconds from the start), which one, and whose it is."""

    at: float
    lane: Lane
    body: str
    instances: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class GeneratedFleet:
    """Clusters and their instances in one account and region."""

    clusters: Mapping[str, tuple[str, ...]]
    account: str = HOST_ACCOUNT
    region: str = "us-east-2"

    @staticmethod
    def generate_fleet(clusters: int, instances: int, seed: int = 0) -> GeneratedFleet:
        """So many clusters that share so many instances, evenly."""
        rng = Random(seed)
        ids: list[str] = []
        seen: set[str] = set()
        while len(ids) < instances:
            id = f"i-0{rng.getrandbits(64):016x}"
            if id not in seen:
                seen.add(id)
                ids.append(id)
        named = {f"cluster-{number:03d}": tuple(ids[number::clusters]) for number in range(clusters)}
        return GeneratedFleet(named)

    @property
    def instances(self) -> list[str]:
        return [id for ids in self.clusters.values() for id in ids]

    def map_owners(self) -> dict[str, str]:
        return {id: cluster for cluster, ids in self.clusters.items() for id in ids}

    def build_tags(self, cluster: str) -> dict[str, str]:
        """What Karpenter puts on an instance."""
        return {"eks:eks-cluster-name": cluster, f"kubernetes.io/cluster/{cluster}": "owned"}


class _EventWriter:
    """Makes events, each with an id of its own."""

    def __init__(self, fleet: GeneratedFleet, seed: int, start: datetime) -> None:
        self._fleet, self._chance, self._start = fleet, Random(seed), start

    def write_event(self, at: float, kind: MessageKind, instance: str, **detail: str) -> GeneratedEvent:
        named = NAMES[kind]
        body = self._build_body(
            at, "aws.ec2", named, [self._build_arn(instance)], {"instance-id": instance, **detail}
        )
        urgent = kind in (MessageKind.SPOT_INTERRUPTED, MessageKind.CAPACITY_RESERVATION_INTERRUPTED)
        return GeneratedEvent(at, Lane.URGENT if urgent else Lane.BULK, body, (instance,), kind.value)

    def write_health_page(
        self, at: float, instances: Sequence[str], about: Mapping[str, Any], *, delivered: str = ""
    ) -> GeneratedEvent:
        detail = {**about, "affectedEntities": [{"entityValue": id, "status": "PENDING"} for id in instances]}
        body = self._build_body(
            at, "aws.health", "AWS Health Event", list(instances), detail, region=delivered
        )
        return GeneratedEvent(at, Lane.BULK, body, tuple(instances), MessageKind.SCHEDULED_CHANGE.value)

    def _build_body(
        self,
        at: float,
        source: str,
        named: str,
        resources: list[str],
        detail: Mapping[str, Any],
        region: str = "",
    ) -> str:
        time = self._start + timedelta(seconds=at)
        event = {
            "version": "0",
            "id": self._build_id(),
            "detail-type": named,
            "source": source,
            "account": self._fleet.account,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": region or self._fleet.region,
            "resources": resources,
            "detail": detail,
        }
        return json.dumps(event, separators=(",", ":"))

    def _build_id(self) -> str:
        text = f"{self._chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _build_arn(self, instance: str) -> str:
        return f"arn:aws:ec2:{self._fleet.region}:{self._fleet.account}:instance/{instance}"


NAMES = {
    MessageKind.SPOT_INTERRUPTED: "EC2 Spot Instance Interruption Warning",
    MessageKind.CAPACITY_RESERVATION_INTERRUPTED: "EC2 Capacity Reservation Instance Interruption Warning",
    MessageKind.REBALANCE_RECOMMENDATION: "EC2 Instance Rebalance Recommendation",
    MessageKind.INSTANCE_STOPPED: "EC2 Instance State-change Notification",
    MessageKind.INSTANCE_TERMINATED: "EC2 Instance State-change Notification",
}


def generate_reclaim_storm(
    fleet: GeneratedFleet, seed: int = 0, *, within: float = 60.0, start: datetime = START
) -> Iterator[GeneratedEvent]:
    """Every instance of the fleet is taken back: four events each, all within some seconds, in no order."""
    writer, rng = _EventWriter(fleet, seed, start), Random(seed + 1)
    happenings = []
    for instance in fleet.instances:
        times = sorted(rng.uniform(0, within) for _ in range(4))
        happenings += [
            writer.write_event(times[0], MessageKind.REBALANCE_RECOMMENDATION, instance),
            writer.write_event(
                times[1], MessageKind.SPOT_INTERRUPTED, instance, **{"instance-action": "terminate"}
            ),
            writer.write_event(times[2], MessageKind.INSTANCE_TERMINATED, instance, state="shutting-down"),
            writer.write_event(times[3], MessageKind.INSTANCE_TERMINATED, instance, state="terminated"),
        ]
    yield from sorted(happenings)


def generate_steady_stream(
    fleet: GeneratedFleet, seed: int = 0, *, rate: float = 1000.0, start: datetime = START
) -> Iterator[GeneratedEvent]:
    """Events without end, so many a second: a quarter are warnings."""
    writer, rng, instances, at = _EventWriter(fleet, seed, start), Random(seed + 1), fleet.instances, 0.0
    kinds: tuple[tuple[MessageKind, dict[str, str]], ...] = (
        (MessageKind.REBALANCE_RECOMMENDATION, {}),
        (MessageKind.SPOT_INTERRUPTED, {"instance-action": "terminate"}),
        (MessageKind.INSTANCE_STOPPED, {"state": "stopping"}),
        (MessageKind.INSTANCE_TERMINATED, {"state": "shutting-down"}),
    )
    while True:
        kind, detail = rng.choice(kinds)
        yield writer.write_event(at, kind, rng.choice(instances), **detail)
        at += 1 / rate


def generate_health_pages(
    fleet: GeneratedFleet, seed: int = 0, *, pages: int = 5, backup: bool = True, start: datetime = START
) -> Iterator[GeneratedEvent]:
    """One retirement notice for the whole fleet, in pages, each also delivered in the backup region."""
    writer, rng = _EventWriter(fleet, seed, start), Random(seed + 1)
    instances = fleet.instances
    rng.shuffle(instances)
    per_page = -(-len(instances) // pages)
    code = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
    for page in range(pages):
        about = {
            "eventArn": f"arn:aws:health:{fleet.region}::event/EC2/{code}/{code}_{seed}",
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "communicationId": f"{seed:040x}-1",
            "eventRegion": fleet.region,
            "statusCode": "upcoming",
            "startTime": (start + timedelta(days=14)).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "endTime": (start + timedelta(days=14, hours=2)).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "eventDescription": [{"language": "en_US", "latestDescription": "An instance is to be retired."}],
            "affectedAccount": fleet.account,
            "page": str(page + 1),
            "totalPages": str(pages),
            "backupEvent": "false",
        }
        some = instances[page * per_page : (page + 1) * per_page]
        yield writer.write_health_page(float(page), some, about)
        if backup:
            there = BACKUP.get(fleet.region, "us-west-2")
            yield writer.write_health_page(
                page + 0.5, some, {**about, "backupEvent": "true"}, delivered=there
            )


def generate_fis_experiment(
    fleet: GeneratedFleet,
    instances: Sequence[str],
    *,
    seed: int = 0,
    notice: float = 120.0,
    start: datetime = START,
) -> Iterator[GeneratedEvent]:
    """What `aws:ec2:send-spot-instance-interruptions` causes: a recommendation, the warning, the end."""
    writer = _EventWriter(fleet, seed, start)
    ends = max(notice, 120.0)
    happenings = []
    for instance in instances:
        happenings += [
            writer.write_event(0.0, MessageKind.REBALANCE_RECOMMENDATION, instance),
            writer.write_event(
                ends - 120.0, MessageKind.SPOT_INTERRUPTED, instance, **{"instance-action": "terminate"}
            ),
            writer.write_event(ends, MessageKind.INSTANCE_TERMINATED, instance, state="shutting-down"),
            writer.write_event(ends + 20.0, MessageKind.INSTANCE_TERMINATED, instance, state="terminated"),
        ]
    yield from sorted(happenings, key=lambda each: each.at)
