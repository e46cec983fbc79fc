"""Launch templates: made when a launch needs one, found again by name, and deleted once nobody asks.

A template's name is a digest of what is in it, so that equal launches share one and a change makes another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from weakref import WeakValueDictionary

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import Aws, AwsAbsent, AwsError, AwsInvalid, list_pages
from dovetail.controllers.base import run_all
from dovetail.errors import ClassNotReady, CreateFailed, Gone
from dovetail.logs import build_reference, get_logger
from dovetail.metrics import gauge
from dovetail.ports import Clock
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery, ClusterFacts
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.template_data import LaunchOrder, build_launch_data, tag_list
from dovetail.providers.aws.template_groups import (
    TemplateGroup,
    build_boot,
    build_groups,
    node_labels,
    node_taints,
)
from dovetail.providers.aws.userdata import render_user_data
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.settings import Settings

__all__ = ["LaunchTemplate", "LaunchTemplateProvider"]

LIFETIME: Final = 60.0
NEEDS_CIDR: Final = "AL2023"
PAGE: Final = 200
TAKEN: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
# EC2 takes 16 KiB; from nine tenths of that on somebody should know.
LARGE: Final = 14745
USER_DATA = gauge(
    "karpenter_ec2nodeclasses_userdata_bytes", "Size of the user data last made for a class.", ("nodeclass",)
)
Json = dict[str, Any]
log = get_logger()


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A launch template that is there, and the instance types that may be started with it."""

    name: str
    image_id: str
    types: tuple[InstanceType, ...]
    reservation_id: str = ""
    reservation_type: str = ""
    interruptible: bool = False


@dataclass(slots=True)
class _Live:
    """A template we know in EC2, and when it was last asked for."""

    id: str
    used: float


class LaunchTemplateProvider:
    """The launch templates of this cluster."""

    def __init__(self, aws: Aws, clock: Clock, discovery: ClusterDiscovery, settings: Settings) -> None:
        self._aws = aws
        self._clock = clock
        self._discovery = discovery
        self._settings = settings
        self._live: dict[str, _Live] = {}
        # One name, one errand at a time: a template is not deleted while a launch makes sure of it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ensure_templates(
        self,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        types: Sequence[InstanceType],
        capacity_type: str,
        tags: Mapping[str, str],
        *,
        tenancy: str = "default",
        placement: PlacementGroup | None = None,
        partition: str = "",
    ) -> tuple[LaunchTemplate, ...]:
        """The templates a launch of these types needs, each there when this returns.

        CreateFailed when the class's images or user data cannot be used, ClassNotReady while the cluster is
        not known well enough, and AwsErrors as they come.
        """
        facts = await self._find_cluster_facts(node_class)
        order = LaunchOrder(
            node_class=node_class,
            claim=claim,
            capacity_type=capacity_type,
            tags=tags,
            region=self._aws.region,
            ip_family=facts.ip_family,
            tenancy=tenancy,
            placement=placement,
            partition=partition,
            reserving=self._settings.feature_gates.reserved_capacity,
        )
        wanted = build_groups(node_class, claim, types, capacity_type)
        made = [build_launch_data(order, group, _build_user_data(order, group, facts)) for group in wanted]
        named = [_name_template(order, facts, data) for data in made]
        outcomes = await asyncio.gather(
            *(
                self._ensure_template(name, data, tags)
                for name, data in dict(zip(named, made, strict=True)).items()
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome  # one reason is enough: a launch has one condition to tell it by
        return _build_templates(named, wanted)

    def forget_template(self, name: str) -> None:
        """Look for this one again next time; nothing in EC2 changes."""
        self._live.pop(name, None)

    async def adopt_templates(self) -> None:
        """Take over what an earlier leader left, so that it too is deleted when nobody asks for it."""
        now = self._clock.monotonic()
        async for each in self._list_tagged({labels.EKS_CLUSTER_TAG: self._settings.cluster_name}):
            self._live.setdefault(each["LaunchTemplateName"], _Live(each["LaunchTemplateId"], now))

    async def delete_expired(self) -> None:
        """Delete every template that nobody asked for within its lifetime."""
        await run_all(
            self._delete_if_expired(name) for name, live in tuple(self._live.items()) if self._is_over(live)
        )

    async def delete_for(self, class_name: str) -> None:
        """Delete every template of a class that is going; those already gone are no matter."""
        wanted = {labels.EKS_CLUSTER_TAG: self._settings.cluster_name, labels.EC2_NODECLASS: class_name}
        names = [each["LaunchTemplateName"] async for each in self._list_tagged(wanted)]
        await run_all(self._delete_template(name) for name in names)
        USER_DATA.remove(class_name)

    async def _find_cluster_facts(self, node_class: EC2NodeClass) -> ClusterFacts:
        """The cluster as nodes of the class must know it."""
        if ami_family(node_class.spec) != NEEDS_CIDR:
            return self._discovery.facts
        try:
            cidr = await self._discovery.service_cidr()
        except (AwsError, Gone) as error:
            raise ClassNotReady(
                f"resolving the cluster's service CIDR, which AL2023 needs: {error}"
            ) from error
        return replace(self._discovery.facts, service_cidr=cidr)

    async def _ensure_template(self, name: str, data: Json, tags: Mapping[str, str]) -> None:
        async with self._find_lock(name):
            live = self._live.get(name)
            if live is None or self._is_over(live):
                live = self._live[name] = _Live(await self._id_of(name, data, tags), 0.0)
            live.used = self._clock.monotonic()

    async def _id_of(self, name: str, data: Json, tags: Mapping[str, str]) -> str:
        """The template of this name, as it is in EC2 or as it is made now."""
        try:
            return await self._find_template(name)
        except AwsAbsent:
            pass
        request = {
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
        }
        try:
            answer = await self._aws.call("ec2", "CreateLaunchTemplate", request)
        except AwsInvalid as error:
            if error.code != TAKEN:
                raise
            return await self._find_template(name)  # another controller was faster, with the same contents
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    async def _find_template(self, name: str) -> str:
        answer = await self._aws.call("ec2", "DescribeLaunchTemplates", {"LaunchTemplateNames": [name]})
        found = list(answer.get("LaunchTemplates") or ())
        if len(found) != 1:
            raise CreateFailed(
                "LaunchFailed", f"EC2 knows {len(found)} launch templates called {name}, not one"
            )
        return str(found[0]["LaunchTemplateId"])

    async def _delete_if_expired(self, name: str) -> None:
        async with self._find_lock(name):
            live = self._live.get(name)
            if live is None or not self._is_over(live):
                return  # somebody asked for it meanwhile
            # It stays known until EC2 has let go of it: a refusal is tried again with the next sweep.
            await self._delete_by({"LaunchTemplateId": live.id})
            self._live.pop(name, None)

    async def _delete_template(self, name: str) -> None:
        async with self._find_lock(name):
            await self._delete_by({"LaunchTemplateName": name})
            self._live.pop(name, None)

    async def _delete_by(self, which: Json) -> None:
        try:
            await self._aws.call("ec2", "DeleteLaunchTemplate", which)
        except AwsAbsent:
            return

    async def _list_tagged(self, tags: Mapping[str, str]) -> AsyncIterator[Mapping[str, Any]]:
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        asked = {"Filters": filters, "MaxResults": PAGE}
        async for page in list_pages(self._aws, "ec2", "DescribeLaunchTemplates", asked):
            for each in page.get("LaunchTemplates") or ():
                yield each

    def _find_lock(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())

    def _is_over(self, live: _Live) -> bool:
        return self._clock.monotonic() - live.used >= LIFETIME


def _build_templates(names: Sequence[str], wanted: Sequence[TemplateGroup]) -> tuple[LaunchTemplate, ...]:
    """The templates of these groups. Groups whose nodes boot alike share one, for all of their types.

    Types that differ in nothing but their number of pods do so with user data that does not tell that number:
    that of a Custom image, and that of a class with both maxPods and podsPerCore.
    """
    sharing: dict[str, list[TemplateGroup]] = {}
    for name, group in zip(names, wanted, strict=True):
        sharing.setdefault(name, []).append(group)
    return tuple(_build_template(name, alike) for name, alike in sharing.items())


def _build_template(name: str, alike: Sequence[TemplateGroup]) -> LaunchTemplate:
    reserved = alike[0].reservation
    types = tuple(each for group in alike for each in group.types)
    return LaunchTemplate(
        name, alike[0].image.id, types, reserved.id, reserved.type, interruptible=reserved.interruptible
    )


def _build_user_data(order: LaunchOrder, group: TemplateGroup, facts: ClusterFacts) -> str:
    told = node_labels(order.node_class, order.claim, order.capacity_type)
    text = render_user_data(build_boot(order.node_class, group, facts, told, node_taints(order.claim)))
    size = len(text.encode())
    USER_DATA.labels(order.node_class.name).set(size)
    if size >= LARGE:
        log.warning(
            "user data is near EC2's limit of 16384 bytes",
            EC2NodeClass=build_reference(order.node_class.name),
            bytes=size,
        )
    return text


def _name_template(order: LaunchOrder, facts: ClusterFacts, data: Json) -> str:
    """The same for the same contents; a class never shares with another."""
    inputs = [facts.name, order.node_class.name, data]
    digest = sha256(json.dumps(inputs, sort_keys=True).encode()).digest()
    return f"{labels.KARPENTER_AWS}/{int.from_bytes(digest[:8], 'big')}"
