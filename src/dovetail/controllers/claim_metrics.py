"""Counters that several controllers share: what was ordered, disrupted and ended, and why."""

from __future__ import annotations

from datetime import timedelta

from dovetail import metrics
from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = [
    "CLAIMS_CREATED",
    "CLAIMS_DISRUPTED",
    "CLAIMS_TERMINATED",
    "PODS_DISRUPTED",
    "count_disrupted_claim",
]

CLAIMS_CREATED = metrics.counter(
    "karpenter_nodeclaims_created_total",
    "NodeClaims ordered, by reason and pool.",
    ("reason", "nodepool", "min_values_relaxed"),
)
CLAIMS_TERMINATED = metrics.counter(
    "karpenter_nodeclaims_terminated_total", "NodeClaims that ended.", ("nodepool", "capacity_type", "zone")
)
_DISRUPTION_LABELS = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")
CLAIMS_DISRUPTED = metrics.counter(
    "karpenter_nodeclaims_disrupted_total", "NodeClaims whose end was begun, by reason.", _DISRUPTION_LABELS
)
PODS_DISRUPTED = metrics.counter(
    "karpenter_pods_disruption_initiated_total",
    "Pods that have to move because their NodeClaim is being disrupted.",
    _DISRUPTION_LABELS,
)


def count_disrupted_claim(claim: NodeClaim, reason: str, pods: int = 0, policy: str = "") -> None:
    """Count a claim whose end begins now, and the pods that must move."""
    about = (
        reason,
        claim.labels.get(labels.NODEPOOL, ""),
        claim.labels.get(labels.CAPACITY_TYPE, ""),
        policy,
        _describe_termination_mode(claim),
    )
    CLAIMS_DISRUPTED.labels(*about).inc()
    if pods:
        PODS_DISRUPTED.labels(*about).inc(pods)


def _describe_termination_mode(claim: NodeClaim) -> str:
    grace = claim.spec.termination_grace_period
    if grace is None:
        return "graceful"
    return "eventual" if parse_duration(grace) > timedelta() else "forceful"
