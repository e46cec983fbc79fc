"""The simulated AWS: thousands of instances in memory, and a thousand claims launched over HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.aws import Aws, pages
from dovetail.aws.boto import Boto
from dovetail.controllers.provided import Surroundings
from dovetail.providers.aws import AwsProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import KubeClient
from dovetail.settings import read
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.serve import served
from dovetail.sim.clock import run_virtual
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER, described, fleet, launched, simulated, template
from support.aws_doors import SESSION
from support.builders import nodepool
from support.ec2 import CLASS_REF, Ec2, Kept, Noted

from .registry import Figure, scenario

T = TypeVar("T")
MANY, CLAIMS, AT_ONCE = 5_000, 1_000, 100
TAGS = {"karpenter.sh/nodepool": "web", "eks:eks-cluster-name": CLUSTER}


@scenario("aws: five thousand instances in memory")
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
        async for page in pages(aws, "ec2", "DescribeInstances", asked)
        for entry in page["Reservations"]
        for each in entry["Instances"]
    ]


@scenario("aws: a thousand claims over HTTP")
def over_http() -> Iterator[Figure]:
    yield from asyncio.run(_over_http())


async def _over_http() -> list[Figure]:
    with _elsewhere() as (world, url):
        boto = Boto(SESSION, endpoint=url)
        try:
            return await _provided(world, boto)
        finally:
            boto.close()


@contextmanager
def _elsewhere() -> Iterator[tuple[SimulatedAws, str]]:
    """The endpoint in a thread and a loop of its own, as far from the provider as one process allows."""
    ready: Future[tuple[SimulatedAws, str]] = Future()
    over = threading.Event()

    async def serve() -> None:
        world = simulated(SystemClock())
        async with served(world, moto=False) as server:
            ready.set_result((world, server.url))
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ready.result()
    finally:
        over.set()
        thread.join()


async def _provided(world: SimulatedAws, boto: Boto) -> list[Figure]:
    # First, so that what is read once and then shared is counted: the models of the services, the tables.
    memory = await _memory(boto)
    shelves: dict[type[Any], Kept[Any]] = {}
    provider = _provider(boto, shelves)
    cost = time.process_time()
    worst = await _pause_while(provider.prepare())
    cost = time.process_time() - cost
    ec2 = _scene(world, provider, shelves)
    await ec2.apply()
    room = asyncio.Semaphore(AT_ONCE)

    async def launch(number: int) -> str:
        async with room:
            return (await ec2.cloud.create(ec2.claim(name=f"default-{number}", cpu="1"))).provider_id

    asked, started, spent = len(world.calls), time.perf_counter(), time.process_time()
    made = await asyncio.gather(*(launch(number) for number in range(CLAIMS)))
    took, spent = time.perf_counter() - started, time.process_time() - spent
    assert len(set(made)) == CLAIMS == len(world.running())
    return [
        Figure("learning the catalogue, processor time of both sides", cost, "s", 3.0),
        Figure("longest pause of the loop meanwhile", worst * 1000, "ms"),
        Figure("memory of the provider", memory, "MB", 150),
        Figure(f"{CLAIMS} claims, {AT_ONCE} at a time", took, "s"),
        Figure(f"{CLAIMS} claims, processor time of both sides", spent, "s", 15.0),
        Figure("requests for them", float(len(world.calls) - asked), "requests", 200),
    ]


async def _memory(boto: Boto) -> float:
    """What a provider holds once it knows everything, in megabytes."""
    tracemalloc.start()
    try:
        provider = _provider(boto, {})
        await provider.prepare()
        await provider.prices.refresh()
        return tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


def _provider(boto: Boto, shelves: dict[type[Any], Kept[Any]]) -> AwsProvider:
    clock = SystemClock()
    given = Surroundings(
        read((f"--cluster-name={CLUSTER}", "--eks-control-plane=true"), {}, provider="aws"),
        KubeClient(LocalTransport(ApiServer(clock, Random(0))), clock),
        clock,
        Random(0),
        Noted(),
        lambda kind: shelves.setdefault(kind, Kept()),
        "authority",
    )
    return AwsProvider(given, boto)


async def _pause_while(work: Awaitable[Any]) -> float:
    """The longest the loop was away while something was done."""
    worst, running = 0.0, asyncio.ensure_future(work)
    while not running.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - before - 0.001)
    await running
    return worst


def _scene(world: SimulatedAws, provider: AwsProvider, shelves: dict[type[Any], Kept[Any]]) -> Ec2:
    kinds = (EC2NodeClass, NodePool, NodeClaim, NodeOverlay)
    classes, pools, claims, overlays = (shelves.setdefault(kind, Kept()) for kind in kinds)
    pools.put(nodepool("default", node_class=CLASS_REF))
    clock: Any = SystemClock()
    return Ec2(world, clock, provider, classes, pools, claims, overlays, Noted(), set())
