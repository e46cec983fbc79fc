"""What the scheduler says: conditions on pods, once per change, and events."""

from __future__ import annotations

from itertools import count
from typing import Any

from dovetail.ports import Clock
from dovetail.sim.cluster.objects import format_micro_time
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.kube.meta import find_condition, format_time, with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["SchedulingReporter"]

Json = dict[str, Any]
GATED = "Scheduling is blocked due to non-empty scheduling gates"


class SchedulingReporter:
    """Writes verdicts where people and autoscalers look for them."""

    def __init__(self, api: InternalApi, clock: Clock, name: str) -> None:
        self._api = api
        self._clock = clock
        self._name = name
        self._numbers = count()

    def report_gated(self, pod: Json) -> None:
        """The pod has gates; nobody looks for a node yet."""
        self._set_condition(pod, "SchedulingGated", GATED)

    def report_unschedulable(self, pod: Json, text: str) -> None:
        """No node will do. Said again only when the reason changes."""
        if self._set_condition(pod, "Unschedulable", text):
            self.record_event(pod, "Warning", "FailedScheduling", text)

    def _set_condition(self, pod: Json, reason: str, message: str) -> bool:
        have = find_condition(pod, "PodScheduled") or {}
        if (have.get("status"), have.get("reason"), have.get("message")) == ("False", reason, message):
            return False
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        status = with_condition(pod.get("status") or {}, condition, format_time(self._clock.now()))
        self._api.report_status("pods", pod, status)
        return True

    def nominate_node(self, key: tuple[str, str], node: str) -> None:
        """Say where room is being made for a pod; an empty name takes it back."""
        patch = {"status": {"nominatedNodeName": node or None}}
        self._api.patch("pods", key[1], patch, key[0], subresource="status")

    def report_preempted(self, victim: Json, pod: Json) -> None:
        """Tell a pod that it has to make room for another."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._name}: preempting to accommodate a higher priority pod",
        }
        status = with_condition(victim.get("status") or {}, condition, format_time(self._clock.now()))
        self._api.report_status("pods", victim, status)
        uid, node = pod["metadata"]["uid"], victim["spec"].get("nodeName", "")
        self.record_event(victim, "Normal", "Preempted", f"Preempted by pod {uid} on node {node}")

    def record_event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        """Leave an event about a pod."""
        meta = pod["metadata"]
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        body = {
            "metadata": {
                "name": f"{meta['name']}.{next(self._numbers):016x}",
                "namespace": meta["namespace"],
            },
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": {"component": self._name},
            "type": kind,
            "action": "Binding" if reason == "Scheduled" else "Scheduling",
            "eventTime": format_micro_time(self._clock.now()),
            "firstTimestamp": None,
            "lastTimestamp": None,
            "reportingComponent": self._name,
            "reportingInstance": self._name,
        }
        try:
            self._api.insert("events", body)
        except ApiError as error:
            # A namespace on its way out takes no events; the verdict itself was given.
            if error.code != 403:
                raise
