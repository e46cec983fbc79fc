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
from dovetail.api.conditions import ReadinessRules
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsAbsent
from dovetail.controllers.base import DONE, Result, requeue_after
from dovetail.errors import DovetailError
from dovetail.ports import Clock
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider
from dovetail.providers.aws.image_aliases import UnsupportedAlias, find_alias
from dovetail.providers.aws.images import ImageProvider
from dovetail.providers.aws.instance_profiles import InstanceProfileProvider
from dovetail.providers.aws.network import SecurityGroupProvider, SubnetProvider
from dovetail.providers.aws.placement_groups import PlacementGroupProvider

__all__ = [
    "AmiReconciler",
    "CapacityReservationReconciler",
    "InstanceProfileReconciler",
    "PlacementGroupReconciler",
    "SecurityGroupReconciler",
    "StatusOutcome",
    "StatusReconciler",
    "SubnetReconciler",
    "with_status",
]

MINUTE: Final = timedelta(minutes=1)
FIVE_MINUTES: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class StatusOutcome:
    """What a step made of a class, when to look again, and what went wrong on the way."""

    node_class: EC2NodeClass
    result: Result = DONE
    error: DovetailError | None = None


class StatusReconciler(Protocol):
    """One condition of a class."""

    condition: str

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        """Look, and write what was found into the class; errors may also be raised."""


def with_status(node_class: EC2NodeClass, **found: Any) -> EC2NodeClass:
    """The class with these fields of its status."""
    return replace(node_class, status=replace(node_class.status, **found))


@dataclass(frozen=True, slots=True)
class _ConditionWriter:
    """Sets one condition of classes."""

    condition: str
    clock: Clock
    rules: ReadinessRules

    def set_true(self, node_class: EC2NodeClass) -> EC2NodeClass:
        return conditions.set_true(node_class, self.condition, self.clock.now(), rules=self.rules)

    def set_false(self, node_class: EC2NodeClass, reason: str, message: str) -> EC2NodeClass:
        now = self.clock.now()
        return conditions.set_false(node_class, self.condition, now, reason, message, rules=self.rules)


class AmiReconciler:
    """AMIsReady: the images nodes start with."""

    condition = conditions.AMIS_READY

    def __init__(self, images: ImageProvider, clock: Clock, rules: ReadinessRules) -> None:
        self._images = images
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        try:
            found = await self._images.list_images(node_class)
        except UnsupportedAlias as error:
            # What was found before stays: the nodes that run it must not look drifted.
            return StatusOutcome(self._tell.set_false(node_class, reasons.UNSUPPORTED_ALIAS, str(error)))
        if not found:
            missing = self._tell.set_false(
                node_class, reasons.AMI_NOT_FOUND, _describe_missing_images(node_class)
            )
            return StatusOutcome(with_status(missing, amis=()), requeue_after(MINUTE))
        return StatusOutcome(
            self._tell.set_true(with_status(node_class, amis=found)), requeue_after(FIVE_MINUTES)
        )


def _describe_missing_images(node_class: EC2NodeClass) -> str:
    alias = find_alias(node_class)
    if alias is not None:
        return f"EC2 has no available image for alias {alias}; check the region and the version of the alias"
    return (
        "amiSelectorTerms select no available image of a known architecture; check ids, names, tags, owners "
        "and parameters"
    )


class CapacityReservationReconciler:
    """CapacityReservationsReady: the reservations nodes may be launched into. A class may well have none."""

    condition = conditions.CAPACITY_RESERVATIONS_READY

    def __init__(
        self, reservations: CapacityReservationProvider, clock: Clock, rules: ReadinessRules
    ) -> None:
        self._reservations = reservations
        self._clock = clock
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        found = await self._reservations.list_reservations(node_class)
        ends = [each.end_time for each in found if each.end_time is not None]
        return StatusOutcome(
            self._tell.set_true(with_status(node_class, capacity_reservations=found)),
            requeue_after(min((MINUTE, *(_time_until(end, self._clock.now()) for end in ends)))),
        )


def _time_until(end: datetime, now: datetime) -> timedelta:
    return max(end - now, timedelta())


class PlacementGroupReconciler:
    """PlacementGroupReady: the group nodes are put into, where the class names one."""

    condition = conditions.PLACEMENT_GROUP_READY

    def __init__(self, groups: PlacementGroupProvider, clock: Clock, rules: ReadinessRules) -> None:
        self._groups = groups
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        selector = node_class.spec.placement_group_selector
        if selector is None:
            return StatusOutcome(self._tell.set_true(node_class))
        group, error = await self._groups.find_group(node_class)
        name = selector.id or selector.name
        if error is not None and not isinstance(error, AwsAbsent):
            why = f"EC2 does not tell of placement group {name} ({error.code}: {error.message})"
            failed = self._tell.set_false(node_class, reasons.PLACEMENT_GROUP_RESOLUTION_FAILED, why)
            return StatusOutcome(failed, error=error)
        if group is None or error is not None:
            why = f"there is no available placement group {name}; create it, or change placementGroupSelector"
            return StatusOutcome(self._tell.set_false(node_class, reasons.PLACEMENT_GROUP_NOT_FOUND, why))
        return StatusOutcome(self._tell.set_true(node_class))


class SubnetReconciler:
    """SubnetsReady: the subnets nodes are launched into, those with most free addresses first."""

    condition = conditions.SUBNETS_READY

    def __init__(self, subnets: SubnetProvider, clock: Clock, rules: ReadinessRules) -> None:
        self._subnets = subnets
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        found = await self._subnets.list_subnets(node_class)
        if found:
            return StatusOutcome(
                self._tell.set_true(with_status(node_class, subnets=found)), requeue_after(MINUTE)
            )
        why = "subnetSelectorTerms select no subnet; check their ids and tags"
        missing = self._tell.set_false(node_class, reasons.SUBNETS_NOT_FOUND, why)
        return StatusOutcome(with_status(missing, subnets=()), requeue_after(MINUTE))


class SecurityGroupReconciler:
    """SecurityGroupsReady: the security groups of nodes."""

    condition = conditions.SECURITY_GROUPS_READY

    def __init__(self, groups: SecurityGroupProvider, clock: Clock, rules: ReadinessRules) -> None:
        self._groups = groups
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        found = await self._groups.list_groups(node_class)
        if found:
            return StatusOutcome(
                self._tell.set_true(with_status(node_class, security_groups=found)),
                requeue_after(FIVE_MINUTES),
            )
        why = "securityGroupSelectorTerms select no security group; check their ids, names and tags"
        missing = self._tell.set_false(node_class, reasons.SECURITY_GROUPS_NOT_FOUND, why)
        return StatusOutcome(with_status(missing, security_groups=()), requeue_after(MINUTE))


class InstanceProfileReconciler:
    """InstanceProfileReady: what gives nodes their role."""

    condition = conditions.INSTANCE_PROFILE_READY

    def __init__(self, profiles: InstanceProfileProvider, clock: Clock, rules: ReadinessRules) -> None:
        self._profiles = profiles
        self._tell = _ConditionWriter(self.condition, clock, rules)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        name = await self._profiles.resolve_profile(node_class)
        return StatusOutcome(self._tell.set_true(with_status(node_class, instance_profile=name)))
