"""What keeps the provider's own knowledge current: the memory nodes report, and templates nobody uses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import (
    DONE,
    Backoff,
    Cache,
    PeriodicController,
    Result,
    Trigger,
    requeue_after,
    retry_refusals,
)
from dovetail.controllers.ownership import BY_PROVIDER_ID, Ownership
from dovetail.logs import get_logger
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.images import ImageProvider, choose_image
from dovetail.providers.aws.instance_profiles import InstanceProfileProvider
from dovetail.providers.aws.instance_types import DiscoveredMemory, InstanceTypeProvider
from dovetail.providers.aws.launch_templates import LaunchTemplateProvider
from dovetail.providers.aws.pricing import PricingProvider

__all__ = [
    "CapacityDiscovery",
    "InstanceProfileGarbageCollection",
    "PriceRefresh",
    "SsmInvalidation",
    "TemplateSweep",
    "TypeRefresh",
    "VersionRefresh",
]

SWEEP_EVERY = timedelta(seconds=10)


class CapacityDiscovery:
    """Remembers how much memory a node of each type has, once one with the current image has registered."""

    name = "providers.instancetype.capacity"
    singleton = False
    concurrency = 1
    backoff = Backoff()

    def __init__(
        self,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        classes: Cache[EC2NodeClass],
        ownership: Ownership,
        types: InstanceTypeProvider,
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
        return (Trigger(Node, _list_registered),)

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or labels.MEMORY not in node.status.capacity:
            return DONE
        for claim in self._claims.by(BY_PROVIDER_ID, node.spec.provider_id):
            node_class = self._classes.get(claim.spec.node_class_ref.name)
            if node_class is not None and self._ownership.owns_claim(claim):
                with retry_refusals():
                    await self._record_memory(node, claim, node_class)
        return DONE

    async def _record_memory(self, node: Node, claim: NodeClaim, node_class: EC2NodeClass) -> None:
        name = node.labels.get(labels.INSTANCE_TYPE, "")
        found = next((each for each in await self._types.list_types(node_class) if each.name == name), None)
        image = choose_image(node_class.status.amis, found) if found is not None else None
        # Another image may leave another amount of memory; it says nothing about nodes to come.
        if image is not None and image.id == claim.status.image_id:
            self._memory.record_memory(name, node_class.status.amis, node.status.capacity[labels.MEMORY])


def _list_registered(before: Node | None, node: Node | None) -> Iterable[str]:
    """Nodes that became registered, and at the start those that are."""
    if node is None or labels.REGISTERED not in node.labels:
        return ()
    return () if before is not None and labels.REGISTERED in before.labels else (node.name,)


class TemplateSweep(PeriodicController):
    """Deletes launch templates nobody asked for lately, those of earlier leaders included."""

    name = "providers.launchtemplate"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(self, templates: LaunchTemplateProvider) -> None:
        self._templates = templates
        self._adopted = False

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            if not self._adopted:
                await self._templates.adopt_templates()
                self._adopted = True
            await self._templates.delete_expired()
        return requeue_after(SWEEP_EVERY)


CATALOG_INTERVAL: Final = 12 * 3600.0
# A price list that cannot be had is asked for every few minutes; until then the last prices hold.
BACKOFF: Final = Backoff(first=1.0, last=300.0)


class TypeRefresh(PeriodicController):
    """Instance types and the zones that sell them. They were asked for before anything ran."""

    name = "providers.instancetype"
    backoff = BACKOFF

    def __init__(self, types: InstanceTypeProvider) -> None:
        self._types = types
        self._due = False

    async def reconcile(self, key: str) -> Result:
        if self._due:
            with retry_refusals():
                await self._types.refresh()
        self._due = True
        return requeue_after(CATALOG_INTERVAL)


class PriceRefresh(PeriodicController):
    """On-demand and spot prices, the first time as soon as we run."""

    name = "providers.pricing"
    backoff = BACKOFF

    def __init__(self, prices: PricingProvider) -> None:
        self._prices = prices

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            await self._prices.refresh()
        return requeue_after(CATALOG_INTERVAL)


SSM_INTERVAL = 1800.0


class SsmInvalidation(PeriodicController):
    """Every half hour: `latest` moves on when its image is deprecated, long before a day is over."""

    name = "providers.ssm.invalidation"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(self, images: ImageProvider) -> None:
        self._images = images

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            for name, image in self._images.parameters.list_mutable():
                if await self._images.is_deprecated(image):
                    self._images.parameters.forget_parameter(name)
        return requeue_after(SSM_INTERVAL)


VERSION_INTERVAL = 300.0
log = get_logger()


class VersionRefresh(PeriodicController):
    """Every five minutes. While it cannot be read, the version last known stays."""

    name = "providers.version"
    backoff = Backoff(first=1.0, last=VERSION_INTERVAL)

    def __init__(self, discovery: ClusterDiscovery) -> None:
        self._discovery = discovery
        self._remarked = ""

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            await self._discovery.refresh_version()
        remark = self._discovery.remark
        if remark and remark != self._remarked:
            log.error(remark)
        self._remarked = remark
        return requeue_after(VERSION_INTERVAL)


PROFILE_INTERVAL = 1800.0


class InstanceProfileGarbageCollection(PeriodicController):
    """Every half hour. A profile is kept while a class names it, a claim has it, or it is new."""

    name = "instanceprofile.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self, profiles: InstanceProfileProvider, classes: Cache[EC2NodeClass], claims: Cache[NodeClaim]
    ) -> None:
        self._profiles = profiles
        self._classes = classes
        self._claims = claims

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            for name in await self._profiles.list_profiles():
                # Looked at anew for each: deleting takes a while, and a class may turn to one meanwhile.
                if name not in self._list_used() and not self._profiles.is_protected(name):
                    await self._profiles.delete(name)
        return requeue_after(PROFILE_INTERVAL)

    def _list_used(self) -> set[str | None]:
        named = {node_class.status.instance_profile for node_class in self._classes}
        return named | {claim.annotations.get(labels.INSTANCE_PROFILE_NAME) for claim in self._claims}
