"""metrics.pod: how long pods wait for a node and until they run, and where they are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nlargest

from dovetail import metrics
from dovetail.api import labels, predicates
from dovetail.api.conditions import POD_SCHEDULED
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.ports import Clock
from dovetail.state.cluster import Cluster
from dovetail.state.pod_times import PodTimes

__all__ = ["PodMetrics"]

STARTUP = metrics.summary(
    "karpenter_pods_startup_duration_seconds", "From a pod's creation to its readiness."
)
BOUND = metrics.histogram(
    "karpenter_pods_bound_duration_seconds", "From a pod's creation to its being bound."
)
PROVISIONED_BOUND = metrics.histogram(
    "karpenter_pods_provisioning_bound_duration_seconds",
    "From the first plan with a node for the pod to being bound.",
)
PROVISIONED_STARTUP = metrics.histogram(
    "karpenter_pods_provisioning_startup_duration_seconds",
    "From the first plan with a node for the pod to its readiness.",
)
STATE_LABELS = (
    *("name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch"),
    *("capacity_type", "instance_type", "phase", "ready", "managed"),
)
PENDING_TIMES = {
    "unbound_time": "For how long pods have had no node.",
    "unstarted_time": "For how long pods have not been ready.",
    "provisioning_unbound_time": "For how long pods that a plan has a node for have not been bound.",
    "provisioning_unstarted_time": "For how long pods that a plan has a node for have not been ready.",
    "provisioning_scheduling_undecided_time": "For how long pods have been pending without a first decision.",
}
# Of those who wait, the ones who have waited longest are named.
NAMED = 10


class PodMetrics:
    """Observes pods as they come to nodes and become ready; counts the rest when someone looks."""

    name = "metrics.pod"
    singleton = False
    concurrency = 1
    backoff = Backoff()

    def __init__(
        self, pods: Cache[Pod], cluster: Cluster, times: PodTimes, clock: Clock, *, each: bool = False
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._times = times
        self._clock = clock
        self._each = each
        self._state = GaugeSeries("karpenter_pods_state", "Pods, by where and how they are.", STATE_LABELS)
        self._waiting = {
            what: GaugeSeries(f"karpenter_pods_{what}_seconds", about, ("name", "namespace"))
            for what, about in PENDING_TIMES.items()
        }

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Pod, self._observe_change),)

    async def reconcile(self, key: str) -> Result:
        return DONE

    def _observe_change(self, before: Pod | None, pod: Pod | None) -> Iterable[str]:
        """Counted as it is heard: nothing is left to do later."""
        if before is None or pod is None:
            return ()
        now = self._clock.monotonic()
        times = self._times.find_times(pod.full_name)
        placed = times.placed if times is not None else None
        created = pod.metadata.creation_timestamp
        if pod.node_name and not before.node_name:
            bound = _find_transition_time(pod, POD_SCHEDULED) or self._clock.now()
            if created is not None:
                BOUND.observe(max((bound - created).total_seconds(), 0.0))
            if placed is not None:
                PROVISIONED_BOUND.observe(now - placed)
        if _is_condition_true(pod, "Ready") and not _is_condition_true(before, "Ready"):
            ready = _find_transition_time(pod, "Ready")
            if created is not None and ready is not None:
                STARTUP.observe(max((ready - created).total_seconds(), 0.0))
            if placed is not None:
                PROVISIONED_STARTUP.observe(now - placed)
        return ()

    def report(self) -> None:
        waiting: dict[str, list[tuple[float, str, str]]] = {what: [] for what in PENDING_TIMES}
        for pod in self._pods:
            self._state.add(self._describe_pod(pod), 1.0)
            if predicates.is_active(pod) and not _is_condition_true(pod, "Ready"):
                self._add_pending_times(pod, waiting)
        for what, pods in waiting.items():
            for age, namespace, name in pods if self._each else nlargest(NAMED, pods):
                self._waiting[what].add({"name": name, "namespace": namespace}, age)
        for series in (self._state, *self._waiting.values()):
            series.show_values()

    def _add_pending_times(self, pod: Pod, waiting: dict[str, list[tuple[float, str, str]]]) -> None:
        created = pod.metadata.creation_timestamp
        age = (self._clock.now() - created).total_seconds() if created is not None else 0.0
        times, now = self._times.find_times(pod.full_name), self._clock.monotonic()
        found = {"unstarted_time": age}
        if not pod.node_name:
            found["unbound_time"] = age
        if times is not None and times.placed is not None:
            found["provisioning_unstarted_time"] = now - times.placed
            if not pod.node_name:
                found["provisioning_unbound_time"] = now - times.placed
        elif times is not None and times.decided is None:
            found["provisioning_scheduling_undecided_time"] = now - times.seen
        for what, seconds in found.items():
            waiting[what].append((seconds, pod.namespace, pod.name))

    def _describe_pod(self, pod: Pod) -> dict[str, str]:
        tracked = self._cluster.find_by_node(pod.node_name) if pod.node_name else None
        on = tracked.node.labels if tracked is not None and tracked.node is not None else {}
        about = {
            "scheduled": "true" if pod.node_name else "false",
            "nodepool": on.get(labels.NODEPOOL, ""),
            "zone": on.get(labels.ZONE, ""),
            "arch": on.get(labels.ARCH, ""),
            "capacity_type": on.get(labels.CAPACITY_TYPE, ""),
            "instance_type": on.get(labels.INSTANCE_TYPE, ""),
            "phase": pod.status.phase,
            "ready": "true" if _is_condition_true(pod, "Ready") else "false",
            "managed": "true" if tracked is not None and tracked.claim is not None else "false",
        }
        if self._each:
            owner = pod.metadata.controller
            about |= {"name": pod.name, "namespace": pod.namespace, "node": pod.node_name}
            about["owner"] = f"{owner.kind}/{owner.name}" if owner is not None else ""
        return about


def _is_condition_true(pod: Pod, kind: str) -> bool:
    found = pod.status.find_condition(kind)
    return found is not None and found.status == "True"


def _find_transition_time(pod: Pod, kind: str) -> datetime | None:
    found = pod.status.find_condition(kind)
    return found.last_transition_time if found is not None else None
