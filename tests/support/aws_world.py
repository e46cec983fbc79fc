"""A cluster on a simulated AWS, looked after by a whole Dovetail with the aws provider, in virtual time.

async with AwsWorld().running() as world:
    world.default()
    world.pods(3, cpu="1")
    await world.until(lambda: world.placed() == 3, within=120)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from dovetail.api.crds import build_manifests
from dovetail.app.controller import Dovetail
from dovetail.providers.aws.provider import AwsProvider
from dovetail.settings import read_settings
from dovetail.sim.aws.ec2.node_join import NodeJoiner
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.aws import CLUSTER
from support.ec2 import FEW, Shop

__all__ = ["CLAIMS", "CLASSES", "POOLS", "AwsObjects", "AwsWorld"]

Json = dict[str, Any]
CLAIMS, POOLS, CLASSES = (
    "nodeclaims.karpenter.sh",
    "nodepools.karpenter.sh",
    "ec2nodeclasses.karpenter.k8s.aws",
)
DISCOVERED = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]


class AwsObjects:
    """What people write into such a cluster, and what they see there."""

    def __init__(self, api: LocalApi) -> None:
        self.api = api

    def default(self, *, node_class: Json | None = None, **template: Any) -> None:
        """The class and the pool most tests need."""
        spec = {
            "role": f"KarpenterNodeRole-{CLUSTER}",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": DISCOVERED,
            "securityGroupSelectorTerms": DISCOVERED,
            **(node_class or {}),
        }
        kind = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass"}
        self.api.create(CLASSES, {**kind, "metadata": {"name": "default"}, "spec": spec})
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        inner = {"nodeClassRef": reference, "requirements": [], "expireAfter": "720h", **template}
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
        self.api.create(
            POOLS,
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "default"},
                "spec": {"template": {"spec": inner}, "disruption": disruption},
            },
        )

    def pods(self, count: int = 1, name: str = "web", **requests: str) -> None:
        """A deployment of so many pods."""
        marks = {"app": name}
        container = {"name": "app", "image": "app:1", "resources": {"requests": requests}}
        self.api.create(
            "deployments.apps",
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "replicas": count,
                    "selector": {"matchLabels": marks},
                    "template": {"metadata": {"labels": marks}, "spec": {"containers": [container]}},
                },
            },
        )

    def scale(self, count: int, name: str = "web") -> None:
        self.api.patch("deployments.apps", name, {"spec": {"replicas": count}}, "default")

    def listed(self, resource: str) -> list[Json]:
        return list(self.api.list(resource))

    @property
    def claims(self) -> list[Json]:
        return self.listed(CLAIMS)

    @property
    def nodes(self) -> list[Json]:
        return self.listed("nodes")

    def placed(self) -> int:
        """Pods that have a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.listed("pods"))

    def says(self, claim: Json, kind: str) -> str:
        listed = claim.get("status", {}).get("conditions", ())
        return next((each["status"] for each in listed if each["type"] == kind), "")

    def ready(self) -> int:
        """Claims that are all they were meant to be."""
        return sum(self.says(claim, "Initialized") == "True" for claim in self.claims)

    def events(self) -> list[str]:
        return [each["reason"] for each in self.listed("events.events.k8s.io")]

    def told(self) -> str:
        conditions = [
            f"{each['metadata']['name']}: {kind['type']}={kind['status']} {kind.get('message', '')}"
            for each in (*self.listed(CLASSES), *self.listed(POOLS), *self.claims)
            for kind in each.get("status", {}).get("conditions", ())
            if kind["status"] != "True"
        ]
        return "; ".join([*conditions, *sorted(set(self.events()))])


class AwsWorld(AwsObjects):
    """One account, one cluster, and the Dovetail of the moment."""

    def __init__(self, seed: int = 0, *flags: str, types: Sequence[str] = FEW) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, seed)
        super().__init__(self.world.server.build_local_client("someone"))
        for each in build_manifests("aws"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        aws = Shop(self.clock, seed, cluster=CLUSTER)
        aws.sells = types
        self.aws = aws
        self.joining = NodeJoiner(aws, self.world, CLUSTER)
        self._seed, self._lives = seed, 0
        wanted = (f"--cluster-name={CLUSTER}", "--eks-control-plane=true", *flags)
        self.settings = read_settings(wanted, {}, provider="aws")
        self.dovetail = self._made()
        self._running: asyncio.Task[None] | None = None

    def _made(self) -> Dovetail:
        self._lives += 1
        return Dovetail(
            self.settings,
            LocalTransport(self.world.server),
            clock=self.clock,
            chance=Random(f"{self._seed}/{self._lives}"),
            provider="aws",
            make=partial(AwsProvider, aws=self.aws),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AwsWorld]:
        async with self.world.running():
            self._running = asyncio.create_task(self.dovetail.run())
            try:
                yield self
            finally:
                self.dovetail.stop()
                await self._running
                await self.dovetail.kube.transport.close()

    async def killed(self, down: float = 10.0) -> None:
        """As on SIGKILL: nothing is finished, nothing more is said; a while later another process starts."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.sleep(down)
        self.dovetail = self._made()
        self._running = asyncio.create_task(self.dovetail.run())

    async def until(self, true: Callable[[], object], within: float, step: float = 0.5) -> None:
        end = self.clock.monotonic() + within
        while not true():
            assert self._running is None or not self._running.done(), "Dovetail has ended"
            assert self.clock.monotonic() < end, f"still not so after {within} s: {self.told()}"
            await asyncio.sleep(step)
