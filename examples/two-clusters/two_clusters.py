"""Two clusters in one account share one interruption bus: run it, and watch who hears of what.

Everything runs in this process and in virtual time: an AWS with spot instances and EventBridge rules, two
clusters with Dovetail in each, and the router between the central queues and the clusters' own.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from dovetail.api.crds import build_manifests
from dovetail.app.controller import Dovetail
from dovetail.aws.eventbridge import READINGS
from dovetail.bus.config import read_config
from dovetail.bus.daemon import RouterDaemon
from dovetail.bus.ports import BusTally, RouterContext
from dovetail.providers.aws.provider import AwsProvider
from dovetail.runtime import logs
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.node_join import NodeJoiner
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World

HERE = Path(__file__).parent
ACCOUNT, REGION = "111122223333", "us-west-2"
URGENT, BULK, PARK = "dovetail-bus-urgent", "dovetail-bus-bulk", "dovetail-bus-park"
CLAIMS, WARNED = "nodeclaims.karpenter.sh", "spot_interrupted"
WARNINGS = (
    "EC2 Spot Instance Interruption Warning",
    "EC2 Capacity Reservation Instance Interruption Warning",
)


class Cluster:
    """A cluster with Dovetail in it, on the shared AWS."""

    def __init__(self, name: str, aws: SimulatedAws, clock: VirtualClock) -> None:
        self.name, self.world = name, World(clock, seed=len(name))
        self.api = self.world.server.build_local_client("someone")
        for each in build_manifests("aws"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.joining = NodeJoiner(aws, self.world, name)
        flags = (f"--cluster-name={name}", "--eks-control-plane=true", f"--interruption-queue={name}")
        self.dovetail = Dovetail(
            read_settings(flags, {}, provider="aws"),
            LocalTransport(self.world.server),
            clock=clock,
            chance=Random(name),
            provider="aws",
            make=partial(AwsProvider, aws=aws),
        )

    def wants(self, pods: int) -> None:
        """A pool of spot instances and something to run on them."""
        found = [{"tags": {"karpenter.sh/discovery": self.name}}]
        spec = {
            "role": f"KarpenterNodeRole-{self.name}",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": found,
            "securityGroupSelectorTerms": found,
        }
        self._apply("ec2nodeclasses.karpenter.k8s.aws", "karpenter.k8s.aws/v1", "EC2NodeClass", spec)
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        spot = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
        template = {"spec": {"nodeClassRef": reference, "requirements": spot}}
        self._apply("nodepools.karpenter.sh", "karpenter.sh/v1", "NodePool", {"template": template})
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
        labels = {"app": "web"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        deployment = {"replicas": pods, "selector": {"matchLabels": labels}, "template": pod}
        self._apply("deployments.apps", "apps/v1", "Deployment", deployment, namespace="default")

    def _apply(self, resource: str, version: str, kind: str, spec: dict[str, Any], **meta: str) -> None:
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": "default", **meta}, "spec": spec}
        self.api.create(resource, made)

    def instances(self) -> set[str]:
        """Ids of the instances its claims have."""
        ids = (claim.get("status", {}).get("providerID", "") for claim in self.api.list(CLAIMS))
        return {id.rpartition("/")[2] for id in ids if id}

    def running(self) -> int:
        return sum(pod.get("status", {}).get("phase") == "Running" for pod in self.api.list("pods"))


async def central(aws: SimulatedAws) -> None:
    """Queues, and one set of rules for the whole account: warnings to one queue, the rest to the other."""
    for name in (URGENT, BULK, PARK, "east", "west"):
        await aws.call("sqs", "CreateQueue", {"QueueName": name})
    for number, (source, kind) in enumerate(READINGS):
        queue = URGENT if kind in WARNINGS else BULK
        pattern = json.dumps({"source": [source], "detail-type": [kind]})
        await aws.call("events", "PutRule", {"Name": f"bus-{number}", "EventPattern": pattern})
        target = {"Id": "bus", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"}
        await aws.call("events", "PutTargets", {"Rule": f"bus-{number}", "Targets": [target]})


def router(aws: SimulatedAws, clock: VirtualClock, counts: BusTally) -> RouterDaemon:
    config = read_config(msgspec.yaml.decode((HERE / "router.yaml").read_bytes()), {})
    return RouterDaemon(RouterContext(config, aws, clock, counts, Random(1)))


async def until(clock: VirtualClock, true: Any, within: float = 900.0) -> None:
    end = clock.monotonic() + within
    while not true():
        if clock.monotonic() > end:
            raise TimeoutError("it did not come to that")
        await clock.sleep(1.0)


async def story() -> None:
    clock, counts = VirtualClock(), BusTally()
    aws = SimulatedAws(clock, 7, REGION, ACCOUNT, cluster="east")
    aws.set_up_cluster("west")
    await central(aws)
    east, west = Cluster("east", aws, clock), Cluster("west", aws, clock)
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        running = [asyncio.create_task(router(aws, clock, counts).run(stop))]
        for cluster in (east, west):
            await stack.enter_async_context(cluster.world.running())
            running.append(asyncio.create_task(cluster.dovetail.run()))
            cluster.wants(3)
        await until(clock, lambda: east.running() == west.running() == 3)
        has = {cluster.name: len(cluster.instances()) for cluster in (east, west)}
        print(f"east runs 3 pods on {has['east']} spot instances, west 3 pods on {has['west']}")

        before, untouched = east.instances(), west.instances()
        victim = min(before)
        print("EC2 takes one of east's instances back, with two minutes' notice")
        aws.reclaim(victim)
        await until(clock, lambda: victim not in east.instances() and east.running() == 3)
        await clock.sleep(60.0)

        routed = {key[1]: int(n) for key, n in counts.totals.items() if key[0::2] == ("routed_total", WARNED)}
        print(f"warnings delivered: east {routed.get('east', 0)}, west {routed.get('west', 0)}")
        print(f"east replaced {len(before - east.instances())} and runs {east.running()} pods")
        print(f"west kept {len(untouched & west.instances())} of {len(untouched)} and heard nothing")
        for cluster in (east, west):
            cluster.dovetail.stop()
        stop.set()
        await asyncio.gather(*running)


if __name__ == "__main__":
    logs.configure_logging("error", ("stderr",))
    run_virtual(story())
