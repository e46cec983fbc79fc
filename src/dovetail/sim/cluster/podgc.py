"""The pod collector: pods whose node is gone, and pods deleted before they were ever bound."""

from __future__ import annotations

from dovetail.sim.cluster.base import Desk, Json, Key, Neighbour
from dovetail.sim.cluster.objects import deleting, ended
from dovetail.sim.kube.conditions import with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["PodCollector"]

SWEEP = 20.0
# A node that is missing may be one we have not heard of yet.
QUARANTINE = 40.0


class PodCollector(Neighbour):
    """Sweeps up pods that nobody else will ever finish."""

    name = "pod-garbage-collector"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._missing: dict[str, float] = {}

    def start(self) -> None:
        self.enqueue(("", "sweep"), SWEEP)

    def work(self, key: Key) -> None:
        self.enqueue(key, SWEEP)
        by_node = self.desk.server.store.bucket("pods").by_node
        now, nodes = self.clock.monotonic(), self.desk.server.store.bucket("nodes").records
        lost = sorted(name for name in by_node if ("", name) not in nodes)
        self._missing = {name: self._missing.get(name, now) for name in lost}
        for name, since in self._missing.items():
            if now - since >= QUARANTINE:
                for pod in self.on_node(name):
                    self._orphan(pod)
        for pod in self.every("pods"):
            if deleting(pod) and not pod["spec"].get("nodeName"):
                self._remove(pod)

    def _orphan(self, pod: Json) -> None:
        if not ended(pod):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            status = with_condition(pod.get("status") or {}, condition, self.now())
            self.api.report("pods", pod, {**status, "phase": "Failed"})
        self._remove(pod)

    def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            self.api.delete("pods", meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
