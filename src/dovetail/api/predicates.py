"""The words everyone uses about pods: active, drainable, evictable, and the rest.

One definition each, so that provisioning, draining and disruption mean the same thing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dovetail.api import labels
from dovetail.api.pod import Pod, Toleration
from dovetail.api.taints import NO_SCHEDULE
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = [
    "DoNotDisrupt",
    "do_not_disrupt",
    "failed_to_schedule",
    "is_active",
    "is_disruptable",
    "is_drainable",
    "is_evictable",
    "is_provisionable",
    "is_reschedulable",
    "is_stuck_terminating",
    "is_terminal",
    "is_terminating",
    "must_delete_now",
    "owned_by_daemonset",
    "owned_by_node",
    "owned_by_statefulset",
    "required_anti_affinity",
    "tolerates_disruption",
    "waiting_eviction",
]

STUCK_AFTER = timedelta(minutes=1)


def is_terminal(pod: Pod) -> bool:
    """It has run to its end."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    return not is_terminal(pod) and not is_terminating(pod)


def is_stuck_terminating(pod: Pod, now: datetime) -> bool:
    """Its time to stop was over a minute ago, and it is still here."""
    deadline = pod.metadata.deletion_timestamp
    return deadline is not None and now - deadline > STUCK_AFTER


def owned_by_daemonset(pod: Pod) -> bool:
    return _is_owned_by(pod, "apps/v1", "DaemonSet")


def owned_by_node(pod: Pod) -> bool:
    """A mirror of a static pod: its kubelet runs it, whatever the API says."""
    return _is_owned_by(pod, "v1", "Node")


def owned_by_statefulset(pod: Pod) -> bool:
    return _is_owned_by(pod, "apps/v1", "StatefulSet")


def _is_owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    for owner in pod.metadata.owner_references:  # asked of every pod of a cluster, so it is spelled out
        if owner.kind == kind and owner.api_version == api_version:
            return True
    return False


def is_reschedulable(pod: Pod) -> bool:
    """It will need another place if its node goes. A StatefulSet's pod comes back under its name."""
    alive = is_active(pod) or (owned_by_statefulset(pod) and is_terminating(pod))
    return alive and not owned_by_daemonset(pod) and not owned_by_node(pod)


def failed_to_schedule(pod: Pod) -> bool:
    """kube-scheduler has looked at it and found no place."""
    scheduled = pod.status.find_condition("PodScheduled")
    return scheduled is not None and scheduled.reason == "Unschedulable"


def is_provisionable(pod: Pod) -> bool:
    """It waits for a node that we may have to make."""
    if pod.node_name or pod.status.nominated_node_name or not failed_to_schedule(pod):
        return False
    return not (owned_by_daemonset(pod) or owned_by_node(pod))


def tolerates_disruption(pod: Pod) -> bool:
    """It does not mind being on a node that is going away, so it is not drained."""
    return any(_covers_disruption(t) for t in pod.spec.tolerations)


def _covers_disruption(toleration: Toleration) -> bool:
    if toleration.effect not in ("", NO_SCHEDULE) or toleration.key not in ("", labels.DISRUPTED_TAINT):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and not toleration.value


def is_drainable(pod: Pod, now: datetime) -> bool:
    return not tolerates_disruption(pod) and not is_stuck_terminating(pod, now) and not owned_by_node(pod)


def waiting_eviction(pod: Pod, now: datetime) -> bool:
    """A drain is not over while it is here."""
    return not is_terminal(pod) and is_drainable(pod, now)


class DoNotDisrupt:
    """What a pod's do-not-disrupt annotation means now, and the event that tells people so."""

    __slots__ = ("active", "note", "reason", "warning")

    def __init__(self, active: bool, reason: str = "", note: str = "", warning: bool = False) -> None:
        self.active = active
        self.reason = reason
        self.note = note
        self.warning = warning


INACTIVE = DoNotDisrupt(active=False)
FOR_EVER = DoNotDisrupt(active=True)


def do_not_disrupt(pod: Pod, now: datetime) -> DoNotDisrupt:
    """`true` holds for ever; a duration holds from the pod's start; anything else is ignored, with a word."""
    value = pod.annotations.get(labels.DO_NOT_DISRUPT)
    if value is None:
        return INACTIVE
    if value == labels.TRUE:
        return FOR_EVER
    try:
        lasts = parse_duration(value)
    except ValueError as error:
        return _build_invalid(f'failed to parse "{value}" as a duration: {error}')
    if lasts <= timedelta():
        return _build_invalid(f'duration "{value}" must be positive')
    start = pod.status.start_time
    if start is None:
        return FOR_EVER
    end = start + lasts
    period = f"The {labels.DO_NOT_DISRUPT} grace period"
    if now < end:
        return DoNotDisrupt(True, "DoNotDisruptUntil", f"{period} will elapse at {end:%Y-%m-%dT%H:%M:%SZ}")
    elapsed = f"{period} has elapsed, pod is now disruptable"
    return DoNotDisrupt(False, "DoNotDisruptGracePeriodElapsed", elapsed)


def _build_invalid(why: str) -> DoNotDisrupt:
    note = f"Invalid {labels.DO_NOT_DISRUPT} annotation: {why}, ignoring annotation"
    return DoNotDisrupt(False, "InvalidDoNotDisruptAnnotation", note, warning=True)


def is_evictable(pod: Pod, now: datetime) -> bool:
    """It may be asked to leave."""
    return (
        is_active(pod)
        and not tolerates_disruption(pod)
        and not owned_by_node(pod)
        and not do_not_disrupt(pod, now).active
    )


def is_disruptable(pod: Pod, now: datetime) -> bool:
    """It does not forbid that its node be taken away by choice."""
    return not is_active(pod) or not do_not_disrupt(pod, now).active


def required_anti_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required)


def must_delete_now(pod: Pod, deadline: datetime | None, now: datetime) -> bool:
    """Its node's deadline leaves no more time for asking: it must be deleted now."""
    if deadline is None:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp > deadline
    grace = pod.spec.termination_grace_period_seconds
    return grace is not None and now > deadline - timedelta(seconds=grace)
