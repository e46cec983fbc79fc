"""Nodes that are simply there, for tests of the disruption controllers in a still Scene.

scene = Scene(); async with scene.still():
    fleet = Fleet(scene, types=SIZES)
    fleet.node("a", light("p", "a"))
    await fleet.turn()                     one turn of the disruption loop, its wait included
    assert fleet.tainted("a")
    await fleet.carry_on()                 one pass of the queue over every command
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import Result
from dovetail.controllers.disruption import DisruptionController
from dovetail.controllers.orchestration import DisruptionQueue
from dovetail.scheduling.model.instance_types import InstanceType
from support.builders import pod
from support.disruption import SIZES, pool, state
from support.world import CLAIMS, Scene

QUEUE = "disruption.queue"


def light(name: str, on: str, cpu: str = "500m", **about: Any) -> Pod:
    """A small pod that runs on a node; nobody's, or it would be collected with an owner who is not there."""
    return pod(name, cpu=cpu, memory="100Mi", node=on, **about)


class Fleet:
    """A pool's nodes in a Scene, and the disruption loop at the test's pace."""

    def __init__(self, scene: Scene, *pools: NodePool, types: Sequence[InstanceType] = SIZES) -> None:
        self.scene = scene
        scene.cloud.types = tuple(types)
        for each in pools or (pool(),):
            scene.apply(each)

    def node(self, name: str, *pods: Pod, **about: Any) -> None:
        claimed = {"created": self.scene.true_clock.now(), **about.pop("claim", {})}
        made = state(name, *pods, claim=claimed, **about)
        assert made.node is not None
        assert made.claim is not None
        # Its pool has another uid here, and what belongs to nobody who exists is collected as garbage.
        claim = replace(made.claim, metadata=replace(made.claim.metadata, owner_references=()))
        self.scene.create(made.node)
        # Admission says it is not ready; it has been for long.
        self.scene.retaint(name, *made.node.spec.taints)
        self.scene.create(claim)
        self.scene.cloud.adopt(claim)
        for each in pods:
            self.pod(replace(each, node_name=name))

    def pod(self, given: Pod) -> None:
        self.scene.create(given)
        now = self.scene.true_clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        if given.node_name:
            self.scene.set_status("pods", given.name, {"phase": "Running", "startTime": now}, given.namespace)
        else:
            waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self.scene.set_status("pods", given.name, {"conditions": [waiting]}, given.namespace)

    @property
    def loop(self) -> DisruptionController:
        found = self.scene.controller("disruption")
        assert isinstance(found, DisruptionController)
        return found

    @property
    def queue(self) -> DisruptionQueue:
        found = self.scene.controller(QUEUE)
        assert isinstance(found, DisruptionQueue)
        return found

    async def turn(self) -> Result:
        return await self.scene.look("disruption")

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await self.turn()

    async def carry_on(self) -> None:
        for key in tuple(self.queue._running):
            await self.scene.look(QUEUE, key)

    def commands(self) -> int:
        return len(self.queue._running)

    async def up(self, claim: NodeClaim) -> None:
        """The machine of a replacement comes up and is all it was meant to be."""
        await self.scene.live(claim.name)
        self.scene.join(self.scene.claim_now(claim.name))
        await self.scene.live(claim.name)
        self.scene.node_ready(f"node-{claim.name}")
        await self.scene.live(claim.name)

    def replacements(self) -> list[NodeClaim]:
        """The claims that were ordered, as against those that were simply there."""
        return [claim for claim in self.scene.claims() if claim.metadata.owner_references]

    def going(self) -> list[str]:
        """The claims whose end was asked for, or that are gone."""
        return sorted(claim.name for claim in self.scene.claims() if claim.deleting)

    def tainted(self, name: str) -> bool:
        return any(is_same_taint(taint, DISRUPTED) for taint in self.scene.node_now(name).spec.taints)

    def marked(self) -> list[str]:
        """The nodes that carry the taint."""
        return sorted(node.name for node in self.scene.nodes() if self.tainted(node.name))

    def edit_pool(self, name: str = "default", **disruption: Any) -> None:
        self.scene.api.patch("nodepools.karpenter.sh", name, {"spec": {"disruption": disruption}})

    def annotate_pod(self, name: str, value: str = "true") -> None:
        notes = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: value}}}
        self.scene.api.patch("pods", name, notes, "default")

    def forget(self, claim: str) -> None:
        """A claim vanishes, finalizers and all."""
        if not self.scene.claim_now(claim).deleting:
            self.scene.api.delete(CLAIMS, claim)
        if self.scene.has(CLAIMS, claim):
            self.scene.api.patch(CLAIMS, claim, {"metadata": {"finalizers": None}})

    def told(self, reason: str, kind: str = "") -> list[tuple[str, str]]:
        """What people were told: object and message."""
        return [(o, note) for _, o, note in self.scene.events(reason) if o.startswith(kind)]
