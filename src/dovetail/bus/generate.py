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

from dovetail.aws.messages import Kind
from dovetail.bus.events import Lane

__all__ = ["Fleet", "Happening", "fis", "health_pages", "reclaim_storm", "steady"]

START = datetime(2026, 2, 3, 10, tzinfo=UTC)
HOST_ACCOUNT = "123456789012"
BACKUP = {"us-west-2": "us-east-1"}


class Happening(NamedTuple):
    """An event, when it reaches its queue (in seconds from the start), which one, and whose it is."""

    at: float
    lane: Lane
    body: str
    instances: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """Clusters and their instances in one account and region."""

    clusters: Mapping[str, tuple[str, ...]]
    account: str = HOST_ACCOUNT
    region: str = "us-east-2"

    @staticmethod
    def made(clusters: int, instances: int, seed: int = 0) -> Fleet:
        """So many clusters that share so many instances, evenly."""
        chance = Random(seed)
        ids: list[str] = []
        seen: set[str] = set()
        while len(ids) < instances:
            id = f"i-0{chance.getrandbits(64):016x}"
            if id not in seen:
                seen.add(id)
                ids.append(id)
        named = {f"cluster-{number:03d}": tuple(ids[number::clusters]) for number in range(clusters)}
        return Fleet(named)

    @property
    def instances(self) -> list[str]:
        return [id for ids in self.clusters.values() for id in ids]

    def owner(self) -> dict[str, str]:
        return {id: cluster for cluster, ids in self.clusters.items() for id in ids}

    def tags(self, cluster: str) -> dict[str, str]:
        """What Karpenter puts on an instance."""
        return {"eks:eks-cluster-name": cluster, f"kubernetes.io/cluster/{cluster}": "owned"}


class _Writer:
    """Makes events, each with an id of its own."""

    def __init__(self, fleet: Fleet, seed: int, start: datetime) -> None:
        self._fleet, self._chance, self._start = fleet, Random(seed), start

    def one(self, at: float, kind: Kind, instance: str, **detail: str) -> Happening:
        named = NAMES[kind]
        body = self._body(at, "aws.ec2", named, [self._arn(instance)], {"instance-id": instance, **detail})
        urgent = kind in (Kind.SPOT_INTERRUPTED, Kind.CAPACITY_RESERVATION_INTERRUPTED)
        return Happening(at, Lane.URGENT if urgent else Lane.BULK, body, (instance,), kind.value)

    def page(
        self, at: float, instances: Sequence[str], about: Mapping[str, Any], *, delivered: str = ""
    ) -> Happening:
        detail = {**about, "affectedEntities": [{"entityValue": id, "status": "PENDING"} for id in instances]}
        body = self._body(at, "aws.health", "AWS Health Event", list(instances), detail, region=delivered)
        return Happening(at, Lane.BULK, body, tuple(instances), Kind.SCHEDULED_CHANGE.value)

    def _body(
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
            "id": self._id(),
            "detail-type": named,
            "source": source,
            "account": self._fleet.account,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": region or self._fleet.region,
            "resources": resources,
            "detail": detail,
        }
        return json.dumps(event, separators=(",", ":"))

    def _id(self) -> str:
        text = f"{self._chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _arn(self, instance: str) -> str:
        return f"arn:aws:ec2:{self._fleet.region}:{self._fleet.account}:instance/{instance}"


NAMES = {
    Kind.SPOT_INTERRUPTED: "EC2 Spot Instance Interruption Warning",
    Kind.CAPACITY_RESERVATION_INTERRUPTED: "EC2 Capacity Reservation Instance Interruption Warning",
    Kind.REBALANCE_RECOMMENDATION: "EC2 Instance Rebalance Recommendation",
    Kind.INSTANCE_STOPPED: "EC2 Instance State-change Notification",
    Kind.INSTANCE_TERMINATED: "EC2 Instance State-change Notification",
}


def reclaim_storm(
    fleet: Fleet, seed: int = 0, *, within: float = 60.0, start: datetime = START
) -> Iterator[Happening]:
    """Every instance of the fleet is taken back: four events each, all within some seconds, in no order."""
    writer, chance = _Writer(fleet, seed, start), Random(seed + 1)
    happenings = []
    for instance in fleet.instances:
        times = sorted(chance.uniform(0, within) for _ in range(4))
        happenings += [
            writer.one(times[0], Kind.REBALANCE_RECOMMENDATION, instance),
            writer.one(times[1], Kind.SPOT_INTERRUPTED, instance, **{"instance-action": "terminate"}),
            writer.one(times[2], Kind.INSTANCE_TERMINATED, instance, state="shutting-down"),
            writer.one(times[3], Kind.INSTANCE_TERMINATED, instance, state="terminated"),
        ]
    yield from sorted(happenings)


def steady(
    fleet: Fleet, seed: int = 0, *, rate: float = 1000.0, start: datetime = START
) -> Iterator[Happening]:
    """Events without end, so many a second: a quarter are warnings."""
    writer, chance, instances, at = _Writer(fleet, seed, start), Random(seed + 1), fleet.instances, 0.0
    kinds: tuple[tuple[Kind, dict[str, str]], ...] = (
        (Kind.REBALANCE_RECOMMENDATION, {}),
        (Kind.SPOT_INTERRUPTED, {"instance-action": "terminate"}),
        (Kind.INSTANCE_STOPPED, {"state": "stopping"}),
        (Kind.INSTANCE_TERMINATED, {"state": "shutting-down"}),
    )
    while True:
        kind, detail = chance.choice(kinds)
        yield writer.one(at, kind, chance.choice(instances), **detail)
        at += 1 / rate


def health_pages(
    fleet: Fleet, seed: int = 0, *, pages: int = 5, backup: bool = True, start: datetime = START
) -> Iterator[Happening]:
    """One retirement notice for the whole fleet, in pages, each also delivered in the backup region."""
    writer, chance = _Writer(fleet, seed, start), Random(seed + 1)
    instances = fleet.instances
    chance.shuffle(instances)
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
        yield writer.page(float(page), some, about)
        if backup:
            there = BACKUP.get(fleet.region, "us-west-2")
            yield writer.page(page + 0.5, some, {**about, "backupEvent": "true"}, delivered=there)


def fis(
    fleet: Fleet, instances: Sequence[str], *, seed: int = 0, notice: float = 120.0, start: datetime = START
) -> Iterator[Happening]:
    """What `aws:ec2:send-spot-instance-interruptions` causes: a recommendation, the warning, the end."""
    writer = _Writer(fleet, seed, start)
    ends = max(notice, 120.0)
    happenings = []
    for instance in instances:
        happenings += [
            writer.one(0.0, Kind.REBALANCE_RECOMMENDATION, instance),
            writer.one(ends - 120.0, Kind.SPOT_INTERRUPTED, instance, **{"instance-action": "terminate"}),
            writer.one(ends, Kind.INSTANCE_TERMINATED, instance, state="shutting-down"),
            writer.one(ends + 20.0, Kind.INSTANCE_TERMINATED, instance, state="terminated"),
        ]
    yield from sorted(happenings, key=lambda each: each.at)
