"""The controllers that look after node classes, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import Controller
from dovetail.controllers.context import ControllerContext
from dovetail.providers.aws.commitments import CommitmentReader
from dovetail.providers.aws.controllers.capacity_reservations import (
    CapacityTypeController,
    ReservationExpiration,
)
from dovetail.providers.aws.controllers.commitment_others import CommitmentObserver
from dovetail.providers.aws.controllers.commitments import CommitmentMirror
from dovetail.providers.aws.controllers.instance_status import InstanceStatusController
from dovetail.providers.aws.controllers.interruption import InterruptionController
from dovetail.providers.aws.controllers.maintenance import (
    InstanceProfileGarbageCollection,
    PriceRefresh,
    SsmInvalidation,
    TypeRefresh,
    VersionRefresh,
)
from dovetail.providers.aws.controllers.nodeclass import (
    NodeClassController,
    NodeClassFinalizer,
    NodeClassHashController,
    find_readiness_rules,
)
from dovetail.providers.aws.controllers.nodeclass_status import (
    AmiReconciler,
    CapacityReservationReconciler,
    InstanceProfileReconciler,
    PlacementGroupReconciler,
    SecurityGroupReconciler,
    StatusReconciler,
    SubnetReconciler,
)
from dovetail.providers.aws.controllers.nodeclass_validation import ValidationReconciler
from dovetail.providers.aws.controllers.offering_metrics import OfferingMetrics
from dovetail.providers.aws.controllers.tagging import InstanceTagging
from dovetail.providers.aws.dry_run import DryRuns
from dovetail.providers.aws.interruption import InterruptionHandler
from dovetail.providers.aws.interruption_queue import InterruptionQueueReader

if TYPE_CHECKING:
    from dovetail.providers.aws.provider import AwsProvider


__all__ = ["build_class_controllers", "build_commitment_controllers", "build_instance_controllers"]


def build_class_controllers(made: AwsProvider, parts: ControllerContext) -> tuple[Controller, ...]:
    """Those that resolve, stamp and end classes, and those that keep what classes depend on current."""
    settings, classes = parts.settings, made.given.cache(EC2NodeClass)
    found: list[Controller] = [
        _build_nodeclass_controller(made, parts),
        NodeClassHashController(parts.kube, classes, parts.claims, made.discovery),
        SsmInvalidation(made.images),
        VersionRefresh(made.discovery),
    ]
    if not settings.isolated_vpc:
        found.append(InstanceProfileGarbageCollection(made.profiles, classes, parts.claims))
    if settings.feature_gates.reserved_capacity:
        found += (
            CapacityTypeController(parts.kube, parts.claims, parts.nodes, made.instances, parts.ownership),
            ReservationExpiration(
                parts.kube, parts.claims, made.reservations, parts.ownership, parts.history
            ),
        )
    return tuple(found)


def _build_nodeclass_controller(made: AwsProvider, parts: ControllerContext) -> NodeClassController:
    kube, clock, settings = parts.kube, parts.clock, parts.settings
    reserving = settings.feature_gates.reserved_capacity
    rules = find_readiness_rules(reserving)
    validation = ValidationReconciler(
        parts,
        rules,
        made.discovery,
        made.types,
        made.placement,
        DryRuns(made.fenced, settings, made.templates, made.types),
        made.fenced.region,
    )
    steps: list[StatusReconciler] = [
        AmiReconciler(made.images, clock, rules),
        *((CapacityReservationReconciler(made.reservations, clock, rules),) if reserving else ()),
        PlacementGroupReconciler(made.placement, clock, rules),
        SubnetReconciler(made.subnets, clock, rules),
        SecurityGroupReconciler(made.security_groups, clock, rules),
        InstanceProfileReconciler(made.profiles, clock, rules),
        validation,
    ]
    finalizing = NodeClassFinalizer(
        kube,
        parts.recorder,
        parts.claims,
        made.profiles,
        made.templates,
        validation,
        isolated=settings.isolated_vpc,
    )
    return NodeClassController(kube, clock, made.given.cache(EC2NodeClass), steps, finalizing, rules)


def build_instance_controllers(made: AwsProvider, parts: ControllerContext) -> tuple[Controller, ...]:
    """Those that tag machines, hear of their troubles, and keep types and prices current."""
    settings = parts.settings
    interruptions = InterruptionHandler(
        parts.kube,
        parts.clock,
        parts.recorder,
        parts.history,
        parts.claims,
        parts.nodes,
        parts.cluster,
        parts.ownership,
        made.unavailable,
        made.reservations,
        settings.interruption_queue,
    )
    found: list[Controller] = [
        InstanceTagging(
            parts.kube, parts.clock, parts.claims, parts.ownership, made.instances, settings.cluster_name
        ),
        InstanceStatusController(made.fenced, interruptions, parts.clock),
        TypeRefresh(made.types),
        PriceRefresh(made.prices),
    ]
    if not settings.disable_cluster_state_observability:
        found.append(_build_offering_metrics(made, parts))
    if settings.interruption_queue:
        mailbox = InterruptionQueueReader(made.fenced, settings.interruption_queue)
        found.append(InterruptionController(mailbox, interruptions, parts.clock))
    return tuple(found)


def build_commitment_controllers(made: AwsProvider, parts: ControllerContext) -> tuple[Controller, ...]:
    """Those that follow what the account has committed to, where that is counted."""
    if parts.commitments is None:
        return ()
    reader = CommitmentReader(made.fenced, parts.settings.cluster_name)
    return (
        CommitmentMirror(parts, reader, parts.commitments),
        CommitmentObserver(parts.kube, parts.clock, parts.commitments, reader, made.prices),
    )


def _build_offering_metrics(made: AwsProvider, parts: ControllerContext) -> OfferingMetrics:
    return OfferingMetrics(
        parts.pools,
        parts.claims,
        parts.ownership,
        parts.cloud,
        made.types,
        each=parts.settings.metrics_detail == "full",
        reserved=parts.settings.feature_gates.reserved_capacity,
    )
