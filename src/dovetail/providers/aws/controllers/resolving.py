"""The parts of an EC2NodeClass that are found in AWS, one step for each: what it selects, in its status.

A step that finds nothing says so in its condition. One that AWS gives no answer fails, and changes nothing:
nodes go on with what was known.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from msgspec.structs import replace

from dovetail.api import conditions, reasons
from dovetail.api.conditions import Readiness
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsAbsent
from dovetail.controllers.base import DONE, Result, after
from dovetail.errors import DovetailError
from dovetail.ports import Clock
from dovetail.providers.aws.aliases import UnsupportedAlias, alias_of
from dovetail.providers.aws.images import Images
from dovetail.providers.aws.network import SecurityGroups, Subnets
from dovetail.providers.aws.placement import PlacementGroups
from dovetail.providers.aws.profiles import Profiles
from dovetail.providers.aws.reservations import Reservations

__all__ = [
    "Amis",
    "CapacityReservations",
    "Groups",
    "InstanceProfile",
    "Outcome",
    "Placement",
    "Step",
    "Subnetworks",
    "told",
]

MINUTE: Final = timedelta(minutes=1)
FIVE_MINUTES: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step made of a class, when to look again, and what went wrong on the way."""

    node_class: EC2NodeClass
    result: Result = DONE
    error: DovetailError | None = None


class Step(Protocol):
    """One condition of a class."""

    condition: str

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        """Look, and write what was found into the class; errors may also be raised."""


def told(node_class: EC2NodeClass, **found: Any) -> EC2NodeClass:
    """The class with these fields of its status."""
    return replace(node_class, status=replace(node_class.status, **found))


@dataclass(frozen=True, slots=True)
class _Telling:
    """Sets one condition of classes."""

    condition: str
    clock: Clock
    rules: Readiness

    def true(self, node_class: EC2NodeClass) -> EC2NodeClass:
        return conditions.set_true(node_class, self.condition, self.clock.now(), rules=self.rules)

    def false(self, node_class: EC2NodeClass, reason: str, message: str) -> EC2NodeClass:
        now = self.clock.now()
        return conditions.set_false(node_class, self.condition, now, reason, message, rules=self.rules)


class Amis:
    """AMIsReady: the images nodes start with."""

    condition = conditions.AMIS_READY

    def __init__(self, images: Images, clock: Clock, rules: Readiness) -> None:
        self._images = images
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        try:
            found = await self._images.find(node_class)
        except UnsupportedAlias as error:
            # What was found before stays: the nodes that run it must not look drifted.
            return Outcome(self._tell.false(node_class, reasons.UNSUPPORTED_ALIAS, str(error)))
        if not found:
            missing = self._tell.false(node_class, reasons.AMI_NOT_FOUND, _no_images(node_class))
            return Outcome(told(missing, amis=()), after(MINUTE))
        return Outcome(self._tell.true(told(node_class, amis=found)), after(FIVE_MINUTES))


def _no_images(node_class: EC2NodeClass) -> str:
    alias = alias_of(node_class)
    if alias is not None:
        return f"EC2 has no available image for alias {alias}; check the region and the version of the alias"
    return (
        "amiSelectorTerms select no available image of a known architecture; check ids, names, tags, owners "
        "and parameters"
    )


class CapacityReservations:
    """CapacityReservationsReady: the reservations nodes may be launched into. A class may well have none."""

    condition = conditions.CAPACITY_RESERVATIONS_READY

    def __init__(self, reservations: Reservations, clock: Clock, rules: Readiness) -> None:
        self._reservations = reservations
        self._clock = clock
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        found = await self._reservations.find(node_class)
        ends = [each.end_time for each in found if each.end_time is not None]
        return Outcome(
            self._tell.true(told(node_class, capacity_reservations=found)),
            after(min((MINUTE, *(_until(end, self._clock.now()) for end in ends)))),
        )


def _until(end: datetime, now: datetime) -> timedelta:
    return max(end - now, timedelta())


class Placement:
    """PlacementGroupReady: the group nodes are put into, where the class names one."""

    condition = conditions.PLACEMENT_GROUP_READY

    def __init__(self, groups: PlacementGroups, clock: Clock, rules: Readiness) -> None:
        self._groups = groups
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        selector = node_class.spec.placement_group_selector
        if selector is None:
            return Outcome(self._tell.true(node_class))
        group, error = await self._groups.find(node_class)
        name = selector.id or selector.name
        if error is not None and not isinstance(error, AwsAbsent):
            why = f"EC2 does not tell of placement group {name} ({error.code}: {error.message})"
            failed = self._tell.false(node_class, reasons.PLACEMENT_GROUP_RESOLUTION_FAILED, why)
            return Outcome(failed, error=error)
        if group is None or error is not None:
            why = f"there is no available placement group {name}; create it, or change placementGroupSelector"
            return Outcome(self._tell.false(node_class, reasons.PLACEMENT_GROUP_NOT_FOUND, why))
        return Outcome(self._tell.true(node_class))


class Subnetworks:
    """SubnetsReady: the subnets nodes are launched into, those with most free addresses first."""

    condition = conditions.SUBNETS_READY

    def __init__(self, subnets: Subnets, clock: Clock, rules: Readiness) -> None:
        self._subnets = subnets
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        found = await self._subnets.find(node_class)
        if found:
            return Outcome(self._tell.true(told(node_class, subnets=found)), after(MINUTE))
        why = "subnetSelectorTerms select no subnet; check their ids and tags"
        missing = self._tell.false(node_class, reasons.SUBNETS_NOT_FOUND, why)
        return Outcome(told(missing, subnets=()), after(MINUTE))


class Groups:
    """SecurityGroupsReady: the security groups of nodes."""

    condition = conditions.SECURITY_GROUPS_READY

    def __init__(self, groups: SecurityGroups, clock: Clock, rules: Readiness) -> None:
        self._groups = groups
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        found = await self._groups.find(node_class)
        if found:
            return Outcome(self._tell.true(told(node_class, security_groups=found)), after(FIVE_MINUTES))
        why = "securityGroupSelectorTerms select no security group; check their ids, names and tags"
        missing = self._tell.false(node_class, reasons.SECURITY_GROUPS_NOT_FOUND, why)
        return Outcome(told(missing, security_groups=()), after(MINUTE))


class InstanceProfile:
    """InstanceProfileReady: what gives nodes their role."""

    condition = conditions.INSTANCE_PROFILE_READY

    def __init__(self, profiles: Profiles, clock: Clock, rules: Readiness) -> None:
        self._profiles = profiles
        self._tell = _Telling(self.condition, clock, rules)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        name = await self._profiles.resolve(node_class)
        return Outcome(self._tell.true(told(node_class, instance_profile=name)))
