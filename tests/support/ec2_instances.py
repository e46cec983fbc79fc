"""Machines of a simulated EC2 with their claims and nodes, a queue that tells of them, and nobody at work.

async with MachineScene().still() as scene:
    machine = await scene.machine()
    scene.tell(spot_warning(machine.id, scene.clock))
    await scene.look("interruption")
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.api import labels
from dovetail.ports import Clock
from dovetail.sim.aws.messaging.queues import SimQueue
from support.aws import CLUSTER, fleet, launched, template
from support.ec2 import Shop
from support.nodeclasses import CLAIMS, NODES, ClassScene, claim_of
from support.stage import sample

__all__ = [
    "QUEUE",
    "TAGS",
    "TYPES",
    "MachineScene",
    "Owned",
    "disrupted",
    "event",
    "spot_warning",
    "state_change",
]

Json = dict[str, Any]
QUEUE = "interruptions"
TYPES = ("m5.large", "m5.xlarge", "c5.large")
TAGS = {
    labels.NODEPOOL: "default",
    labels.EC2_NODECLASS: "default",
    labels.EKS_CLUSTER_TAG: CLUSTER,
    f"kubernetes.io/cluster/{CLUSTER}": "owned",
}
HELD: Json = {"finalizers": [labels.TERMINATION]}


@dataclass(frozen=True, slots=True)
class Owned:
    """A machine with its claim and node."""

    id: str
    claim: str
    node: str
    zone: str

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


class MachineScene(ClassScene):
    """As a ClassScene, with a queue, and an EC2 of few types."""

    def __init__(self, *flags: str, seed: int = 0, queue: bool = True) -> None:
        super().__init__(*((f"--interruption-queue={QUEUE}",) if queue else ()), *flags, seed=seed)
        shop = Shop(self.clock, seed, cluster=CLUSTER)
        shop.sells = TYPES
        self.aws = shop
        self.queue: SimQueue = shop.queues.add(QUEUE)
        self.dovetail = self._made()
        self._count = 0

    @asynccontextmanager
    async def still(self) -> AsyncIterator[MachineScene]:
        async with super().still():
            yield self

    async def machine(self, *, tags: Json | None = None, known: Json | None = None, **more: Any) -> Owned:
        """A running instance; its claim and its node with these labels."""
        self._count += 1
        name = f"m{self._count}"
        await template(self.aws, name)
        answer = await fleet(
            self.aws, ("m5.large",), zones=("us-west-2a",), tags={**TAGS, **(tags or {})}, name=name, **more
        )
        (instance,) = launched(answer)
        await self.pass_(30)
        owned = Owned(instance, f"claim-{self._count}", f"node-{self._count}", "us-west-2a")
        self.claim(owned, known)
        self.node(owned, known)
        await self.heard()
        return owned

    def claim(self, owned: Owned, known: Json | None = None) -> None:
        marks = {
            labels.NODEPOOL: "default",
            labels.INSTANCE_TYPE: "m5.large",
            labels.ZONE: owned.zone,
            labels.CAPACITY_TYPE: labels.SPOT,
            **(known or {}),
        }
        self.apply(claim_of(owned.claim, labels=marks, **HELD))
        status = {"providerID": owned.provider_id, "nodeName": owned.node}
        self.api.patch(CLAIMS, owned.claim, {"status": status}, subresource="status")

    def node(self, owned: Owned, known: Json | None = None) -> None:
        metadata = {"name": owned.node, "labels": known or {}}
        self.apply({"kind": "Node", "metadata": metadata, "spec": {"providerID": owned.provider_id}})

    def tell(self, *bodies: Json | str) -> None:
        for body in bodies:
            self.queue.send(body if isinstance(body, str) else json.dumps(body))

    @property
    def waiting(self) -> int:
        """Messages that are in the queue, whether or not someone has them in hand."""
        return len(self.queue.messages)

    def deleting(self, owned: Owned) -> bool:
        """Whether its claim is on its way out, or gone."""
        return not self.has(CLAIMS, owned.claim) or "deletionTimestamp" in self.meta(CLAIMS, owned.claim)

    def meta(self, resource: str, name: str) -> Json:
        found: Json = self.api.get(resource, name)["metadata"]
        return found

    def deadline(self, owned: Owned) -> str | None:
        found: str | None = (
            self.meta(CLAIMS, owned.claim).get("annotations", {}).get(labels.TERMINATION_TIMESTAMP)
        )
        return found

    def told(self, owned: Owned) -> dict[str, set[str]]:
        """The reasons of the events about a machine's claim and node, and of what type they were."""
        found: dict[str, set[str]] = {}
        for each in self.api.list("events.events.k8s.io"):
            if each["regarding"]["name"] in (owned.claim, owned.node):
                found.setdefault(each["reason"], set()).add(f"{each['type']} {each['regarding']['kind']}")
        return found

    def nodes_left(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.list(NODES)]


def event(source: str, kind: str, clock: Clock, detail: Json) -> Json:
    """What EventBridge sends."""
    return {
        "version": "0",
        "id": "5b5f3c1e-0c3b-4a0c-9a51-3f0d6d3f7a10",
        "detail-type": kind,
        "source": source,
        "account": "111122223333",
        "time": f"{clock.now():%Y-%m-%dT%H:%M:%SZ}",
        "region": "us-west-2",
        "resources": [],
        "detail": detail,
    }


def spot_warning(instance: str, clock: Clock) -> Json:
    detail = {"instance-id": instance, "instance-action": "terminate"}
    return event("aws.ec2", "EC2 Spot Instance Interruption Warning", clock, detail)


def state_change(instance: str, state: str, clock: Clock) -> Json:
    detail = {"instance-id": instance, "state": state}
    return event("aws.ec2", "EC2 Instance State-change Notification", clock, detail)


disrupted = partial(
    sample,
    "karpenter_nodeclaims_disrupted_total",
    nodepool="default",
    consolidation_policy="",
    termination_mode="graceful",
)
