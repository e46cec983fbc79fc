"""Instances as EC2 knows them: read, listed, ended and tagged, by way of a memory of what was last read.

The memory has no end of its own: what EC2 no longer lists leaves it. While a zone is shifted away its
instances are answered from memory and none of them is touched, whatever EC2 would say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from dovetail.api import labels
from dovetail.aws import Aws, AwsAbsent, AwsError, list_pages
from dovetail.errors import Gone, Retry
from dovetail.metrics import counter
from dovetail.providers.aws.batcher import TERMINATING_STATES, DescribeBatcher, TerminateBatcher
from dovetail.providers.aws.offerings import is_never_excluded
from dovetail.providers.aws.queries import UNEXPECTED, read_items
from dovetail.providers.aws.tags import NODECLAIMS_TAG, OF_GROUP

__all__ = ["Ec2Instance", "InstanceProvider", "instance_id", "provider_id"]

TERMINATION_FAILURES = counter(
    "karpenter_cloudprovider_instance_termination_failures_total",
    "Instances that could not be terminated.",
    ("zone", "zone_id"),
)
STATES = ("pending", "running", "stopping", "stopped", "shutting-down")
STATE_FILTER = {"Name": "instance-state-name", "Values": list(STATES)}
EFA = frozenset(("efa", "efa-only"))
ONLY_RESERVED = "capacity-reservations-only"
CAPACITY_BLOCK = "capacity-block"
INTERRUPTIBLE = "interruptible-capacity-reservation"
_PROVIDER_ID = re.compile(r".*:///.*/(.+)")


def provider_id(zone: str, instance: str) -> str:
    return f"aws:///{zone}/{instance}"


def instance_id(provider_id: str) -> str:
    """The instance behind a provider ID; Retry when it is not one of EC2's."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    if found is None:
        raise Retry(f"reading the provider ID {provider_id!r}: it is not of the form aws:///zone/instance")
    return found[1]


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """One instance, as far as we care."""

    id: str
    state: str = "pending"
    type: str = ""
    zone: str = ""
    zone_id: str = ""
    image: str = ""
    subnet: str = ""
    security_groups: frozenset[str] = frozenset()
    capacity_type: str = labels.ON_DEMAND
    tenancy: str = "default"
    launched: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    efa: bool = False
    reservation: str = ""
    reservation_type: str = ""
    interruptible: bool = False
    group: str = ""
    partition: str | None = None  # None outside partition groups, empty while EC2 has not said

    @property
    def provider_id(self) -> str:
        return provider_id(self.zone, self.id)

    @property
    def terminating(self) -> bool:
        return self.state in TERMINATING_STATES

    @staticmethod
    def from_answer(answer: Mapping[str, Any], reserved_capacity: bool = True) -> Ec2Instance:
        """One instance of a DescribeInstances answer."""
        placement, lifecycle = answer.get("Placement") or {}, answer.get("InstanceLifecycle", "")
        capacity_type = _capacity_type(answer, lifecycle, reserved_capacity)
        reserved = capacity_type == labels.RESERVED
        number = placement.get("PartitionNumber") or 0
        return Ec2Instance(
            id=answer["InstanceId"],
            state=(answer.get("State") or {}).get("Name", "pending"),
            type=answer.get("InstanceType", ""),
            zone=placement.get("AvailabilityZone", ""),
            zone_id=placement.get("AvailabilityZoneId", ""),
            image=answer.get("ImageId", ""),
            subnet=answer.get("SubnetId", ""),
            security_groups=frozenset(each["GroupId"] for each in answer.get("SecurityGroups") or ()),
            capacity_type=capacity_type,
            tenancy=placement.get("Tenancy") or "default",
            launched=answer.get("LaunchTime"),
            tags={each["Key"]: each["Value"] for each in answer.get("Tags") or ()},
            efa=any(each.get("InterfaceType") in EFA for each in answer.get("NetworkInterfaces") or ()),
            reservation=answer.get("CapacityReservationId", "") if reserved else "",
            reservation_type=_reservation_type(lifecycle) if reserved else "",
            interruptible=reserved and lifecycle == INTERRUPTIBLE,
            group=placement.get("GroupId", ""),
            partition=str(number) if number else None,
        )


def _capacity_type(answer: Mapping[str, Any], lifecycle: str, reserved_capacity: bool) -> str:
    if lifecycle == labels.SPOT:
        return labels.SPOT
    wish = (answer.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    if reserved_capacity and answer.get("CapacityReservationId") and wish == ONLY_RESERVED:
        return labels.RESERVED
    return labels.ON_DEMAND


def _reservation_type(lifecycle: str) -> str:
    return CAPACITY_BLOCK if lifecycle == CAPACITY_BLOCK else "default"


class InstanceProvider:
    """The instances of one cluster."""

    def __init__(
        self,
        aws: Aws,
        cluster: str,
        describing: DescribeBatcher,
        terminating: TerminateBatcher,
        *,
        zone_id: Callable[[str], str] = lambda zone: "",
        shifted: Callable[[str], bool] = is_never_excluded,
        reserved_capacity: bool = True,
    ) -> None:
        self._aws = aws
        self._cluster = cluster
        self._describing = describing
        self._terminating = terminating
        self._zone_id = zone_id
        self._shifted = shifted
        self._reserved_capacity = reserved_capacity
        self._known: dict[str, Ec2Instance] = {}
        # The list under way, and the one that those who ask now will get.
        self._listing: asyncio.Task[tuple[Ec2Instance, ...]] | None = None
        self._following: asyncio.Task[tuple[Ec2Instance, ...]] | None = None

    async def get(self, instance: str, *, fresh: bool = False) -> Ec2Instance:
        """One instance, as last read unless it must be `fresh`; Gone when EC2 has it no longer."""
        known = self._known.get(instance)
        if known is not None and (not fresh or self.is_in_excluded_zone(known)):
            return known
        try:
            answer = await self._describing({"InstanceIds": [instance], "Filters": [STATE_FILTER]})
        except AwsAbsent as error:
            self._known.pop(instance, None)
            raise Gone(f"reading {instance}: EC2 has no such instance") from error
        for reservation in answer.get("Reservations") or ():
            for each in read_items(
                "DescribeInstances", reservation.get("Instances") or (), self._read_instance
            ):
                return each
        self._known.pop(instance, None)
        raise Gone(f"reading {instance}: EC2 has no such instance")

    async def list(self) -> tuple[Ec2Instance, ...]:
        """Every instance of the cluster that was launched for a claim and has not ended.

        Those who ask while EC2 is being asked share the next answer: one begun before they asked could be
        too old for them, and after a restart every claim asks.
        """
        following = self._following
        if following is None:
            following = self._following = asyncio.create_task(self._list_after(self._listing))
        return await asyncio.shield(following)

    async def _list_after(
        self, before: asyncio.Task[tuple[Ec2Instance, ...]] | None
    ) -> tuple[Ec2Instance, ...]:
        if before is not None:
            await asyncio.wait({before})
        self._listing, self._following = self._following, None
        return await self._list_instances()

    async def _list_instances(self) -> tuple[Ec2Instance, ...]:
        filters = [
            {"Name": "tag-key", "Values": [labels.NODEPOOL]},
            {"Name": "tag-key", "Values": [labels.EC2_NODECLASS]},
            {"Name": f"tag:{labels.EKS_CLUSTER_TAG}", "Values": [self._cluster]},
            STATE_FILTER,
        ]
        found: dict[str, Ec2Instance] = {}
        asked = {"Filters": filters, "MaxResults": 1000}
        async for page in list_pages(self._aws, "ec2", "DescribeInstances", asked):
            for reservation in page.get("Reservations") or ():
                listed = reservation.get("Instances") or ()
                found |= {
                    each.id: each for each in read_items("DescribeInstances", listed, self._read_instance)
                }
        for gone in [each for each in self._known.values() if each.id not in found]:
            if self.is_in_excluded_zone(gone):
                found[gone.id] = gone
            else:
                del self._known[gone.id]
        return tuple(found.values())

    async def delete(self, instance: str) -> None:
        """Begin the end of an instance; nothing to do when it has begun. Gone once EC2 has it no longer."""
        found = await self.get(instance, fresh=True)
        if self.is_in_excluded_zone(found):
            raise Retry(
                f"ending {instance}: its zone {found.zone} is shifted away; it waits for the shift's end"
            )
        if found.terminating:
            return
        try:
            await self._terminating({"InstanceIds": [instance]})
        except AwsAbsent as error:
            self._known.pop(instance, None)
            raise Gone(f"ending {instance}: EC2 has no such instance") from error
        except AwsError:
            TERMINATION_FAILURES.labels(found.zone, found.zone_id).inc()
            raise

    async def tag_instance(self, instance: str, tags: Mapping[str, str]) -> None:
        """Add tags to an instance."""
        known = self._known.get(instance)
        if known is not None and self.is_in_excluded_zone(known):
            raise Retry(f"tagging {instance}: its zone {known.zone} is shifted away")
        listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
        try:
            await self._aws.call("ec2", "CreateTags", {"Resources": [instance], "Tags": listed})
        except AwsAbsent as error:
            raise Gone(f"tagging {instance}: EC2 has no such instance") from error

    def is_in_excluded_zone(self, instance: Ec2Instance) -> bool:
        return bool(instance.zone_id) and self._shifted(instance.zone_id)

    def _read_instance(self, answer: Mapping[str, Any]) -> Ec2Instance:
        try:
            read = Ec2Instance.from_answer(answer, self._reserved_capacity)
        except UNEXPECTED:
            # It is there, which is what counts most: as it was when it could last be read.
            if (known := self._known.get(answer.get("InstanceId", ""))) is None:
                raise
            return known
        if not read.zone_id:
            read = replace(read, zone_id=self._zone_id(read.zone))
        self._known[read.id] = read
        return read


def match_claims(
    instances: Iterable[Ec2Instance], waiting: Mapping[str, str], taken: Collection[str]
) -> dict[str, str]:
    """The claim of each instance, by instance id.

    `waiting` are the names of claims that have no instance yet, each with its group; `taken` the provider IDs
    that some claim has. Of a fleet's instances those left over go to the claims left over, by their names.
    """
    found: dict[str, str] = {}
    shared: dict[str, list[str]] = {}
    for each in instances:
        if labels.NODECLAIM_TAG in each.tags:
            found[each.id] = each.tags[labels.NODECLAIM_TAG]
        elif NODECLAIMS_TAG in each.tags and each.provider_id not in taken and not each.terminating:
            shared.setdefault(each.tags[NODECLAIMS_TAG], []).append(each.id)
    # Those that name their claims first; what is left may be any of its group's.
    for listed, ids in sorted(shared.items(), key=lambda each: each[0].startswith(OF_GROUP)):
        given = set(found.values())
        names = [name for name in _list_claims_in_tag(listed, waiting) if name not in given]
        found |= dict(zip(sorted(ids), names, strict=False))
    return found


def _list_claims_in_tag(listed: str, waiting: Mapping[str, str]) -> list[str]:
    """The waiting claims that a tag may mean."""
    if not listed.startswith(OF_GROUP):
        return sorted(name for name in listed.split(" ") if name in waiting)
    group = listed.removeprefix(OF_GROUP).partition(" ")[0]
    return sorted(name for name, known in waiting.items() if known == group)
