"""What can be said of one pod: whether it waits, may be moved, must be left alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.api.core import PodDisruptionBudget
from dovetail.api.labels import DO_NOT_DISRUPT
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED
from dovetail.scheduling import selectors
from dovetail.scheduling.taints import tolerates_all
from dovetail.settings import durations

__all__ = [
    "active",
    "currently_reschedulable",
    "disruptable",
    "do_not_disrupt",
    "evictable",
    "fully_blocked",
    "owned_by_daemonset",
    "owned_by_node",
    "owned_by_statefulset",
    "provisionable",
    "reschedulable",
    "terminal",
    "tolerates_disruption",
]


def terminal(pod: Pod) -> bool:
    return pod.status.phase in ("Failed", "Succeeded")


def active(pod: Pod) -> bool:
    return not terminal(pod) and not pod.deleting


def _owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    return any(
        owner.api_version == api_version and owner.kind == kind for owner in pod.metadata.owner_references
    )


def owned_by_daemonset(pod: Pod) -> bool:
    return _owned_by(pod, "apps/v1", "DaemonSet")


def owned_by_node(pod: Pod) -> bool:
    """Static pods, which a kubelet runs by itself."""
    return _owned_by(pod, "v1", "Node")


def owned_by_statefulset(pod: Pod) -> bool:
    return _owned_by(pod, "apps/v1", "StatefulSet")


def unschedulable(pod: Pod) -> bool:
    """Whether the cluster's scheduler has tried and given up on it."""
    scheduled = pod.status.condition("PodScheduled")
    return scheduled is not None and scheduled.reason == "Unschedulable"


def provisionable(pod: Pod) -> bool:
    """Whether the pod waits for a node and nobody else is about to give it one."""
    return (
        unschedulable(pod)
        and not pod.node_name
        and not pod.status.nominated_node_name
        and not owned_by_daemonset(pod)
        and not owned_by_node(pod)
    )


def reschedulable(pod: Pod) -> bool:
    """Whether the pod will want another node when its own goes.

    A StatefulSet keeps names: its terminating pod is replaced by one just like it.
    """
    comes_back = active(pod) or (owned_by_statefulset(pod) and pod.deleting)
    return comes_back and not owned_by_daemonset(pod) and not owned_by_node(pod)


def do_not_disrupt(pod: Pod, now: datetime) -> bool:
    """Whether the pod asks to be left alone: for good, or for a while from its start."""
    asked = pod.annotations.get(DO_NOT_DISRUPT)
    if asked is None or asked == "true":
        return asked == "true"
    try:
        grace = durations.parse(asked)
    except ValueError:
        return False
    if grace <= timedelta(0):
        return False
    started = pod.status.start_time
    return started is None or now - started < grace


def disruptable(pod: Pod, now: datetime) -> bool:
    return not active(pod) or not do_not_disrupt(pod, now)


def tolerates_disruption(pod: Pod) -> bool:
    return tolerates_all((DISRUPTED,), pod.spec.tolerations)


def evictable(pod: Pod, now: datetime) -> bool:
    return (
        active(pod)
        and not tolerates_disruption(pod)
        and not owned_by_node(pod)
        and not do_not_disrupt(pod, now)
    )


def fully_blocked(pod: Pod, budgets: Iterable[PodDisruptionBudget], now: datetime) -> bool:
    """Whether budgets forbid eviction at any time: none allowed at all, or several that overlap."""
    if not evictable(pod, now):
        return False
    meant = [
        budget
        for budget in budgets
        if budget.namespace == pod.namespace and selectors.matches(budget.spec.selector, pod.labels)
    ]
    return len(meant) > 1 or any(_blocks(budget, pod) for budget in meant)


def _blocks(budget: PodDisruptionBudget, pod: Pod) -> bool:
    spec = budget.spec
    ready = pod.status.condition("Ready")
    unhealthy = ready is not None and ready.status == "False"
    if spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and unhealthy:
        return False
    return spec.max_unavailable in (0, "0%") or spec.min_available == "100%"


def currently_reschedulable(pod: Pod, budgets: Iterable[PodDisruptionBudget], now: datetime) -> bool:
    return reschedulable(pod) and disruptable(pod, now) and not fully_blocked(pod, budgets, now)
