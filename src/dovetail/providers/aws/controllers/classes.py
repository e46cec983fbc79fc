"""The controllers that look after node classes, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import Controller
from dovetail.controllers.registry import Parts
from dovetail.providers.aws.controllers.finalizing import Finalizing
from dovetail.providers.aws.controllers.hash import Hash
from dovetail.providers.aws.controllers.nodeclass import NodeClass, rules_of
from dovetail.providers.aws.controllers.profilegarbage import ProfileGarbage
from dovetail.providers.aws.controllers.reservations import CapacityType, ReservationExpiration
from dovetail.providers.aws.controllers.resolving import (
    Amis,
    CapacityReservations,
    Groups,
    InstanceProfile,
    Placement,
    Step,
    Subnetworks,
)
from dovetail.providers.aws.controllers.ssm import SsmInvalidation
from dovetail.providers.aws.controllers.validation import Validation
from dovetail.providers.aws.controllers.version import Version
from dovetail.providers.aws.dryrun import DryRuns

if TYPE_CHECKING:
    from dovetail.providers.aws.provider import AwsProvider

__all__ = ["class_controllers"]


def class_controllers(made: AwsProvider, parts: Parts) -> tuple[Controller, ...]:
    """Those that resolve, stamp and end classes, and those that keep what classes depend on current."""
    settings, classes = parts.settings, made.given.cache(EC2NodeClass)
    found: list[Controller] = [
        _nodeclass(made, parts),
        Hash(parts.kube, classes, parts.claims, made.discovery),
        SsmInvalidation(made.images),
        Version(made.discovery),
    ]
    if not settings.isolated_vpc:
        found.append(ProfileGarbage(made.profiles, classes, parts.claims))
    if settings.feature_gates.reserved_capacity:
        found += (
            CapacityType(parts.kube, parts.claims, parts.nodes, made.instances, parts.ownership),
            ReservationExpiration(parts.kube, parts.claims, made.reservations, parts.ownership),
        )
    return tuple(found)


def _nodeclass(made: AwsProvider, parts: Parts) -> NodeClass:
    kube, clock, settings = parts.kube, parts.clock, parts.settings
    reserving = settings.feature_gates.reserved_capacity
    rules = rules_of(reserving)
    validation = Validation(
        kube,
        clock,
        settings,
        rules,
        made.discovery,
        made.types,
        made.placement,
        DryRuns(made.fenced, settings, made.templates, made.types),
        parts.pools,
        made.fenced.region,
    )
    steps: list[Step] = [
        Amis(made.images, clock, rules),
        *((CapacityReservations(made.reservations, clock, rules),) if reserving else ()),
        Placement(made.placement, clock, rules),
        Subnetworks(made.subnets, clock, rules),
        Groups(made.security_groups, clock, rules),
        InstanceProfile(made.profiles, clock, rules),
        validation,
    ]
    finalizing = Finalizing(
        kube,
        parts.recorder,
        parts.claims,
        made.profiles,
        made.templates,
        validation,
        isolated=settings.isolated_vpc,
    )
    return NodeClass(kube, clock, made.given.cache(EC2NodeClass), steps, finalizing, rules)
