"""Interrupt some spot machines with FIS and see that the warnings come in time, to their own cluster alone.

    hack/check_fis.py --template EXT123 --cluster shop --queue shop --other web --other batch

`--template` is what deploy/terraform/interruption-experiment gives, or the stack or construct of that name.
Messages are looked at and left where they are. Where a controller empties the queue of the cluster, say
`--consumed`: then a successor has to be launched before a machine ends. Ends with 1 and a sentence for each
thing that is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.aws import Aws
from dovetail.aws.boto import BotoAws
from dovetail.ports import Clock
from dovetail.runtime.clock import SystemClock

REBALANCE = "EC2 Instance Rebalance Recommendation"
WARNING = "EC2 Spot Instance Interruption Warning"
NOTICE = timedelta(minutes=2)
# What has to be left of the two minutes when the warning is in the queue of its cluster.
LEAST_LEFT = timedelta(seconds=100)
PACE, GRACE = 1.0, 30.0


@dataclass(frozen=True)
class Seen:
    """An event in a queue: about whom, when it happened, and when it was there."""

    queue: str
    kind: str
    instance: str
    happened: datetime
    arrived: datetime


@dataclass
class Watched:
    """What an experiment did and what came of it."""

    instances: set[str] = field(default_factory=set)
    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    successors: list[datetime] = field(default_factory=list)
    failure: str = ""


def complaints(watched: Watched, queue: str, *, consumed: bool = False) -> list[str]:
    """Everything that is not as it should be."""
    if watched.failure:
        return [watched.failure]
    seen = list(watched.seen.values())
    found = [
        f"{each.queue} got the {each.kind} of {each.instance}, which is not its business"
        for each in seen
        if each.queue != queue and each.instance in watched.instances
    ]
    mine = [each for each in seen if each.queue == queue]
    return found + (_late(watched) if consumed else _missing(watched, mine)) + _hurried(mine)


def _missing(watched: Watched, mine: Sequence[Seen]) -> list[str]:
    told = {(each.kind, each.instance) for each in mine}
    return [
        f"no {kind} of {instance} came"
        for instance in sorted(watched.instances)
        for kind in (REBALANCE, WARNING)
        if (kind, instance) not in told
    ]


def _late(watched: Watched) -> list[str]:
    """One machine for each that goes, and each before its predecessor's end."""
    ends, born = sorted(watched.ended.values()), sorted(watched.successors)
    return [
        f"machine {number + 1} ended at {end:%H:%M:%S} without a successor"
        for number, end in enumerate(ends)
        if number >= len(born) or born[number] > end
    ]


def _hurried(mine: Iterable[Seen]) -> list[str]:
    return [
        f"the warning of {each.instance} left only {left.total_seconds():.0f} s"
        for each in mine
        if each.kind == WARNING and (left := each.happened + NOTICE - each.arrived) < LEAST_LEFT
    ]


async def watch(
    aws: Aws, clock: Clock, template: str, cluster: str, queues: Sequence[str], grace: float = GRACE
) -> Watched:
    """Start it, and look until it is over and the last events have had their time."""
    began, found = clock.now(), Watched()
    urls = {name: (await aws.call("sqs", "GetQueueUrl", {"QueueName": name}))["QueueUrl"] for name in queues}
    started = await aws.call("fis", "StartExperiment", {"experimentTemplateId": template})
    experiment = started["experiment"]["id"]
    over: datetime | None = None
    while over is None or clock.now() < over + timedelta(seconds=grace):
        state = (await aws.call("fis", "GetExperiment", {"id": experiment}))["experiment"]["state"]
        if state["status"] in ("failed", "stopped", "cancelled"):
            found.failure = f"the experiment is {state['status']}: {state.get('reason', 'no reason given')}"
            return found
        over = over or (clock.now() if state["status"] == "completed" else None)
        found.instances |= await _targets(aws, experiment)
        for name, url in urls.items():
            await _look(aws, name, url, found)
        await _fates(aws, clock, cluster, began, found)
        await clock.sleep(PACE)
    return found


async def _targets(aws: Aws, experiment: str) -> set[str]:
    listed = await aws.call("fis", "ListExperimentResolvedTargets", {"experimentId": experiment})
    arns = (each["targetInformation"].get("arn", "") for each in listed["resolvedTargets"])
    return {arn.rpartition("/")[2] for arn in arns} - {""}


async def _look(aws: Aws, name: str, url: str, found: Watched) -> None:
    """Messages are not hidden by looking at them, so whoever they are for gets them too."""
    asked = {
        "QueueUrl": url,
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 0,
        "MessageSystemAttributeNames": ["SentTimestamp"],
    }
    for message in (await aws.call("sqs", "ReceiveMessage", asked)).get("Messages", ()):
        event: dict[str, Any] = json.loads(message["Body"])
        instance = event.get("detail", {}).get("instance-id", "")
        arrived = datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, UTC)
        happened = datetime.fromisoformat(event["time"])
        seen = Seen(name, event["detail-type"], instance, happened, arrived)
        found.seen.setdefault((name, event["id"]), seen)


async def _fates(aws: Aws, clock: Clock, cluster: str, began: datetime, found: Watched) -> None:
    filters = [{"Name": "tag:eks:eks-cluster-name", "Values": [cluster]}]
    listed = await aws.call("ec2", "DescribeInstances", {"Filters": filters})
    machines = [each for entry in listed["Reservations"] for each in entry["Instances"]]
    found.successors = [each["LaunchTime"] for each in machines if each["LaunchTime"] > began]
    running = {each["InstanceId"] for each in machines if each["State"]["Name"] == "running"}
    for each in found.instances - running:
        found.ended.setdefault(each, clock.now())


def told(watched: Watched) -> str:
    """A line for each event."""
    lines = []
    for each in sorted(watched.seen.values(), key=lambda each: each.arrived):
        if each.instance in watched.instances:
            took = (each.arrived - each.happened).total_seconds()
            lines.append(f"{each.queue:<24}{each.instance:<22}{took:>6.1f} s  {each.kind}")
    return "\n".join(lines)


async def run(arguments: argparse.Namespace) -> int:
    boto = BotoAws(region=arguments.region, endpoint=arguments.endpoint)
    try:
        queues = [arguments.queue, *arguments.other]
        found = await watch(boto, SystemClock(), arguments.template, arguments.cluster, queues)
    finally:
        boto.close()
    print(told(found))
    wrong = complaints(found, arguments.queue, consumed=arguments.consumed)
    print("\n".join(wrong) or f"all is well with {len(found.instances)} machines", file=sys.stderr)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--template", required=True, help="id of the experiment template")
    parser.add_argument("--cluster", required=True, help="whose machines are interrupted")
    parser.add_argument("--queue", required=True, help="the queue of that cluster")
    parser.add_argument(
        "--other", action="append", default=[], help="queue of another cluster; more than once"
    )
    parser.add_argument("--consumed", action="store_true", help="a controller empties the queue")
    parser.add_argument("--region", default="")
    parser.add_argument("--endpoint", default="", help="where AWS is, if not at AWS")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
