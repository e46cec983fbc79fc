"""The controllers that look after machines, and after what is known of them, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.controllers.base import Controller
from dovetail.controllers.registry import Parts
from dovetail.providers.aws.controllers.instancestatus import InstanceStatus
from dovetail.providers.aws.controllers.interruption import Interruption
from dovetail.providers.aws.controllers.metrics import OfferingMetrics
from dovetail.providers.aws.controllers.refresh import PriceRefresh, TypeRefresh
from dovetail.providers.aws.controllers.tagging import Tagging
from dovetail.providers.aws.interruption import Interruptions
from dovetail.providers.aws.mailbox import Mailbox

if TYPE_CHECKING:
    from dovetail.providers.aws.provider import AwsProvider

__all__ = ["machine_controllers"]


def machine_controllers(made: AwsProvider, parts: Parts) -> tuple[Controller, ...]:
    """Those that tag machines, hear of their troubles, and keep types and prices current."""
    settings = parts.settings
    interruptions = Interruptions(
        parts.kube,
        parts.clock,
        parts.recorder,
        parts.claims,
        parts.nodes,
        parts.cluster,
        parts.ownership,
        made.unavailable,
        made.reservations,
        settings.interruption_queue,
    )
    found: list[Controller] = [
        Tagging(
            parts.kube, parts.clock, parts.claims, parts.ownership, made.instances, settings.cluster_name
        ),
        InstanceStatus(made.fenced, interruptions, parts.clock),
        TypeRefresh(made.types),
        PriceRefresh(made.prices),
    ]
    if not settings.disable_cluster_state_observability:
        found.append(_metrics(made, parts))
    if settings.interruption_queue:
        mailbox = Mailbox(made.fenced, settings.interruption_queue)
        found.append(Interruption(mailbox, interruptions, parts.clock))
    return tuple(found)


def _metrics(made: AwsProvider, parts: Parts) -> OfferingMetrics:
    return OfferingMetrics(
        parts.pools,
        parts.claims,
        parts.ownership,
        parts.cloud,
        made.types,
        each=parts.settings.metrics_detail == "full",
        reserved=parts.settings.feature_gates.reserved_capacity,
    )
