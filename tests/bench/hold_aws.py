"""Run the AWS provider against an address, in a process of its own, and say what it took.

Run as `python -m tests.bench.hold_aws URL CLAIMS MESSAGES`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))  # the builders of tests/support

from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.app.controller import Dovetail as Whole
from dovetail.aws import Aws
from dovetail.controllers.provider_port import ProviderContext
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import KubeClient
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER
from support.builders import nodepool
from support.ec2 import CLASS_REF, Ec2, Kept, Noted, node_class
from support.ec2_instances import QUEUE, spot_warning

__all__ = ["Whole"]  # what a controller has in memory before any provider does


def resident() -> int:
    """Bytes of memory the process holds now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) * 1024


class Lag:
    """The longest that the loop worked without giving others a turn.

    Its thread's processor time, since the machine may be busy with other things.
    """

    longest = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest, last = max(self.longest, now - last), now


@asynccontextmanager
async def lagging() -> AsyncIterator[Lag]:
    lag = Lag()
    watching = asyncio.create_task(lag.watch())
    try:
        yield lag
    finally:
        watching.cancel()


async def main(url: str, claims: int, messages: int) -> None:
    before = resident()
    from dovetail.aws.boto import BotoAws

    aws = BotoAws(region="us-west-2", endpoint=url)
    told: dict[str, float] = {}
    ec2 = await _provider(aws)
    await ec2.provider.discovery.start()
    for name, work in (("types", ec2.provider.types.refresh), ("prices", ec2.provider.prices.refresh)):
        async with lagging() as lag:
            begun = time.monotonic()
            await work()
            told |= {f"{name} seconds": time.monotonic() - begun, f"{name} lag": lag.longest}
    await ec2.apply(node_class())
    async with lagging() as lag:
        begun = time.monotonic()
        types = await ec2.cloud.list_instance_types(ec2.pool)
        told |= {"class seconds": time.monotonic() - begun, "class lag": lag.longest, "types": len(types)}
    told["memory"] = resident() - before
    told["resident"] = resident()
    async with lagging() as lag:
        begun = time.monotonic()
        made = await asyncio.gather(*(_launched(ec2, number) for number in range(claims)))
        told |= {"launch seconds": time.monotonic() - begun, "launch lag": lag.longest}
    told["launched"] = len({each for each in made if each})
    told["drain seconds"], told["drained"] = await _drained(aws, messages)
    print(json.dumps(told))
    aws.close()


async def _provider(aws: Aws) -> Ec2:
    clock = SystemClock()
    classes: Kept[EC2NodeClass] = Kept()
    pools = Kept([nodepool(node_class=CLASS_REF)])
    claims: Kept[NodeClaim] = Kept()
    overlays: Kept[NodeOverlay] = Kept()
    caches = {EC2NodeClass: classes, NodePool: pools, NodeClaim: claims, NodeOverlay: overlays}
    noted = Noted()
    given = ProviderContext(
        settings=read_settings((f"--cluster-name={CLUSTER}", "--eks-control-plane=true"), {}, provider="aws"),
        kube=KubeClient(LocalTransport(ApiServer(VirtualClock(), Random(0))), clock),
        clock=clock,
        chance=Random(0),
        recorder=noted,
        cache=caches.__getitem__,  # type: ignore[arg-type]
    )
    from dovetail.providers.aws.provider import AwsProvider

    provider = AwsProvider(given, aws)
    return Ec2(aws, clock, provider, classes, pools, claims, overlays, noted, set())  # type: ignore[arg-type]


async def _launched(ec2: Ec2, number: int) -> str:
    claim = ec2.claim(name=f"default-{number:05d}", cpu=("1", "3", "6")[number % 3])
    return (await ec2.cloud.create(claim)).provider_id


async def _drained(aws: Aws, messages: int) -> tuple[float, float]:
    """Seconds to empty a full queue, as the interruption controller reads and deletes."""
    from dovetail.providers.aws.interruption_queue import InterruptionQueueReader

    url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": QUEUE}))["QueueUrl"]
    body = json.dumps(spot_warning("i-0123456789abcdef0", SystemClock()))
    entries = [{"Id": str(at), "MessageBody": body} for at in range(10)]
    for _ in range(messages // 10):
        await aws.call("sqs", "SendMessageBatch", {"QueueUrl": url, "Entries": entries})
    mailbox, done = InterruptionQueueReader(aws, QUEUE), 0
    begun = time.monotonic()
    while done < messages:
        done += await mailbox.delete_messages(await mailbox.receive_messages())
    return time.monotonic() - begun, done


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
