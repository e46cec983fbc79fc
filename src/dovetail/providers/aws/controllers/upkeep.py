"""What keeps the provider's own knowledge current: the memory nodes report, and templates nobody uses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Rounds, Trigger, after, insisting
from dovetail.controllers.owning import BY_PROVIDER_ID, Ownership
from dovetail.providers.aws.discovered import DiscoveredMemory
from dovetail.providers.aws.images import image_for
from dovetail.providers.aws.templates import LaunchTemplates
from dovetail.providers.aws.types import InstanceTypes

__all__ = ["CapacityDiscovery", "TemplateSweep"]

SWEEP_EVERY = timedelta(seconds=10)


class CapacityDiscovery:
    """Remembers how much memory a node of each type has, once one with the current image has registered."""

    name = "providers.instancetype.capacity"
    concurrency = 1
    backoff = Backoff()

    def __init__(
        self,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        classes: Cache[EC2NodeClass],
        ownership: Ownership,
        types: InstanceTypes,
        memory: DiscoveredMemory,
    ) -> None:
        self._nodes = nodes
        self._claims = claims
        self._classes = classes
        self._ownership = ownership
        self._types = types
        self._memory = memory

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Node, _registered),)

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or labels.MEMORY not in node.status.capacity:
            return DONE
        for claim in self._claims.by(BY_PROVIDER_ID, node.spec.provider_id):
            node_class = self._classes.get(claim.spec.node_class_ref.name)
            if node_class is not None and self._ownership.of_claim(claim):
                with insisting():
                    await self._note(node, claim, node_class)
        return DONE

    async def _note(self, node: Node, claim: NodeClaim, node_class: EC2NodeClass) -> None:
        name = node.labels.get(labels.INSTANCE_TYPE, "")
        found = next((each for each in await self._types.of(node_class) if each.name == name), None)
        image = image_for(node_class.status.amis, found) if found is not None else None
        # Another image may leave another amount of memory; it says nothing about nodes to come.
        if image is not None and image.id == claim.status.image_id:
            self._memory.note(name, node_class.status.amis, node.status.capacity[labels.MEMORY])


def _registered(before: Node | None, node: Node | None) -> Iterable[str]:
    """Nodes that became registered, and at the start those that are."""
    if node is None or labels.REGISTERED not in node.labels:
        return ()
    return () if before is not None and labels.REGISTERED in before.labels else (node.name,)


class TemplateSweep(Rounds):
    """Deletes launch templates nobody asked for lately, those of earlier leaders included."""

    name = "providers.launchtemplate"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(self, templates: LaunchTemplates) -> None:
        self._templates = templates
        self._adopted = False

    async def reconcile(self, key: str) -> Result:
        with insisting():
            if not self._adopted:
                await self._templates.adopt()
                self._adopted = True
            await self._templates.sweep()
        return after(SWEEP_EVERY)
