"""The simulated AWS with thousands of instances in it, in memory."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from dovetail.aws import Aws, list_pages
from dovetail.sim.clock import run_virtual
from support.aws import CLUSTER, described, fleet, launched, simulated, template

from .registry import Figure, scenario

T = TypeVar("T")
MANY = 5_000
TAGS = {"karpenter.sh/nodepool": "web", "eks:eks-cluster-name": CLUSTER}


@scenario("simulated aws: five thousand instances in memory")
def in_memory() -> Iterator[Figure]:
    yield from run_virtual(_in_memory())


async def _in_memory() -> list[Figure]:
    aws = simulated()
    await template(aws)
    started = time.process_time()
    ids = [each for _ in range(MANY // 100) for each in launched(await fleet(aws, count=100, tags=TAGS))]
    launching = time.process_time() - started
    await aws.clock.sleep(60)
    by_id, _ = await _timed(lambda: described(aws, *ids[:500]))
    one, _ = await _timed(lambda: described(aws, ids[0]))
    by_tag, found = await _timed(lambda: _listed(aws))
    assert len(found) == MANY
    ended, _ = await _timed(lambda: aws.call("ec2", "TerminateInstances", {"InstanceIds": ids}))
    return [
        Figure(f"launching {MANY} in fleets of 100", launching, "s", 3.0),
        Figure("describing 500 by id", by_id * 1000, "ms", 100),
        Figure("describing 1 by id", one * 1000, "ms", 5),
        Figure(f"listing {MANY} by tag, in pages", by_tag, "s", 1.5),
        Figure(f"ending {MANY}", ended, "s", 1.0),
    ]


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """Processor seconds, and the result."""
    started = time.process_time()
    result = await work()
    return time.process_time() - started, result


async def _listed(aws: Aws) -> list[Any]:
    filters = [
        {"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]},
        {"Name": "tag:eks:eks-cluster-name", "Values": [CLUSTER]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    asked = {"Filters": filters, "MaxResults": 1000}
    return [
        each
        async for page in list_pages(aws, "ec2", "DescribeInstances", asked)
        for entry in page["Reservations"]
        for each in entry["Instances"]
    ]
