"""A zone is shifted away under load and comes back: run it, and watch what is bought, marked and undone.

Everything runs in this process and in virtual time: an AWS with ARC, a cluster with its neighbours, and
Dovetail, which also edits its pools here so that there is something to undo.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from random import Random
from typing import Any

from dovetail.api.crds import build_manifests, build_zonal_manifest
from dovetail.app.controller import Dovetail
from dovetail.providers.aws.provider import AwsProvider
from dovetail.runtime import logs
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.node_join import NodeJoiner
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World

Json = dict[str, Any]
CLUSTER, ZONE = "shop", "topology.kubernetes.io/zone"
A = "us-west-2a"
POOLS, CLASSES = "nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"
SHIFTS, DEPLOYMENTS = "zoneshifts.dovetail.sh", "deployments.apps"
FLAGS = (
    f"--cluster-name={CLUSTER}",
    "--eks-control-plane=true",
    "--enable-zonal-shift=true",
    "--enable-do-not-disrupt=true",
    "--zonal-shift-mode=Both",
)


class Shop:
    """A cluster with a shop in it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, 7)
        self.api = self.world.server.build_local_client("someone")
        for each in (*build_manifests("aws"), build_zonal_manifest()):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.aws = SimulatedAws(self.clock, 7, cluster=CLUSTER)
        self.joining = NodeJoiner(self.aws, self.world, CLUSTER)
        self.dovetail = Dovetail(
            read_settings(FLAGS, {}, provider="aws"),
            LocalTransport(self.world.server),
            clock=self.clock,
            chance=Random(7),
            provider="aws",
            make=partial(AwsProvider, aws=self.aws),
        )
        self.seen: dict[str, str] = {}
        self.lost: set[str] = set()

    def open(self) -> None:
        found = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
        spec = {
            "role": f"KarpenterNodeRole-{CLUSTER}",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": found,
            "securityGroupSelectorTerms": found,
        }
        kind = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass"}
        self.api.create(CLASSES, {**kind, "metadata": {"name": "default"}, "spec": spec})
        for name, requirements in (("open", []), ("listed", [_in("us-west-2a", "us-west-2b", "us-west-2c")])):
            self.api.create(POOLS, _pool(name, requirements))
        self.api.create(DEPLOYMENTS, _deployment(12))

    def scale(self, count: int) -> None:
        self.api.patch(DEPLOYMENTS, "shop", {"spec": {"replicas": count}}, "default")

    def pools(self) -> str:
        """The pools as their owner wrote them: everything but what the server counts."""
        kept = ("name", "labels", "annotations", "finalizers")
        listed = [
            {"metadata": {k: v for k, v in p["metadata"].items() if k in kept}, "spec": p["spec"]}
            for p in self.api.list(POOLS)
        ]
        return json.dumps(listed, sort_keys=True)

    def running(self) -> int:
        return sum(pod.get("status", {}).get("phase") == "Running" for pod in self.api.list("pods"))

    def nodes(self) -> Counter[str]:
        return Counter(node["metadata"]["labels"].get(ZONE, "") for node in self.api.list("nodes"))

    def watch(self) -> None:
        """Note every pod that was running and is no more."""
        now = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.api.list("pods")}
        self.lost |= self.seen.keys() - now.keys()
        self.seen |= now

    def phase(self) -> str:
        listed = self.api.list(SHIFTS)
        return str(listed[-1].get("status", {}).get("phase", "")) if listed else ""

    async def until(self, true: Any, within: float) -> None:
        end = self.clock.monotonic() + within
        while not true():
            assert self.clock.monotonic() < end, f"not so after {within} s: {self.api.list(SHIFTS)}"
            self.watch()
            await asyncio.sleep(1)

    async def arc(self, operation: str, **asked: str) -> Any:
        return await self.aws.call("arc-zonal-shift", operation, asked)


def _in(*zones: str) -> Json:
    return {"key": ZONE, "operator": "In", "values": list(zones)}


def _pool(name: str, requirements: list[Json]) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    inner = {"nodeClassRef": reference, "requirements": [types, *requirements], "expireAfter": "720h"}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    spec = {"template": {"spec": inner}, "disruption": disruption}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    }


def _deployment(count: int) -> Json:
    marks = {"app": "shop"}
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": marks},
    }
    container = {"name": "shop", "image": "shop:1", "resources": {"requests": {"cpu": "700m"}}}
    pod = {"containers": [container], "topologySpreadConstraints": [spread]}
    return {
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }


async def story() -> None:
    shop = Shop()
    logs.configure_logging("error", ("stderr",))
    async with shop.world.running():
        running = asyncio.create_task(shop.dovetail.run())
        try:
            await _told(shop)
        finally:
            shop.dovetail.stop()
            await running
            await shop.dovetail.kube.transport.close()


async def _told(shop: Shop) -> None:
    shop.open()
    await shop.until(lambda: shop.running() == 12, 300)
    await shop.until(lambda: all("hash" in str(pool["metadata"]) for pool in shop.api.list(POOLS)), 60)
    before, there = shop.pools(), shop.nodes()
    print(f"12 pods run on {there.total()} nodes, {there[A]} of them in {A}")

    arn = shop.aws.eks.clusters[CLUSTER].arn
    zone = shop.aws.network.zone_ids[A]
    started = await shop.arc(
        "StartZonalShift", resourceIdentifier=arn, awayFrom=zone, expiresIn="2h", comment="an impaired zone"
    )
    await shop.until(lambda: shop.phase() == "Active", 120)
    marked = sum(node["spec"].get("unschedulable", False) for node in shop.api.list("nodes"))
    print(f"ARC shifts {zone} away: {marked} nodes are marked and both pools stay out of {A}")

    shop.scale(30)
    await shop.until(lambda: shop.running() == 30, 600)
    print(f"the load grows to 30 pods: {shop.nodes()[A] - there[A]} new nodes in {A}, all pods run")

    await shop.until(lambda: shop.clock.now() >= started["startTime"] and shop.phase() == "Active", 60)
    await asyncio.sleep(400)
    await shop.arc("CancelZonalShift", zonalShiftId=started["zonalShiftId"])
    await shop.until(lambda: shop.phase() == "Restored", 3600)
    shop.scale(36)
    await shop.until(lambda: shop.running() == 36, 600)
    await asyncio.sleep(600)
    shop.watch()
    marked = sum(node["spec"].get("unschedulable", False) for node in shop.api.list("nodes"))
    print(f"ARC ends the shift: {marked} nodes are marked, and {A} is bought in again")
    same = "as they were, to the byte" if shop.pools() == before else "not as they were"
    print(f"pods lost: {len(shop.lost)}; the pools are {same}")


if __name__ == "__main__":
    run_virtual(story())
