"""The taint manager: pods that do not tolerate a NoExecute taint have to go, at once or in time."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.fitting import tolerates
from dovetail.sim.cluster.objects import deleting, ended, key_of
from dovetail.sim.kube.conditions import with_condition

__all__ = ["TaintManager"]

Taint = tuple[str, str, str]
"""Node, key and value."""


class TaintManager(Neighbour):
    """Removes pods that do not tolerate a NoExecute taint, at once or when their toleration runs out.

    It deletes; disruption budgets are not asked.
    """

    name = "taint-eviction-controller"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._since: dict[Taint, float] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {"nodes": self._node_heard, "pods": self._pod_heard}

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        node = after or before
        assert node is not None
        name, old, new = node["metadata"]["name"], _taints(before), _taints(after)
        for key, value in old.keys() - new.keys():
            self._since.pop((name, key, value), None)
        for key, value in new:
            self._since.setdefault((name, key, value), self.clock.monotonic())
        if new and old.keys() != new.keys():
            for pod in self.on_node(name):
                self.enqueue(key_of(pod))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None or not after["spec"].get("nodeName"):
            return
        moved = before is None or before["spec"] is not after["spec"]
        if moved and self._since:
            self.enqueue(key_of(after))

    def work(self, key: Key) -> None:
        pod = self.find("pods", key)
        node = self.find("nodes", ("", pod["spec"].get("nodeName", ""))) if pod is not None else None
        if pod is None or node is None or deleting(pod) or ended(pod):
            return
        left = self._time_left(pod, node)
        if left is None:
            return
        if left > 1e-9:
            self.enqueue(key, left)
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        self.api.report("pods", pod, with_condition(pod.get("status") or {}, condition, self.now()))
        self.api.delete("pods", key[1], key[0], uid=pod["metadata"]["uid"])

    def _time_left(self, pod: Json, node: Json) -> float | None:
        """Seconds until the pod must go; None when it may stay."""
        left: float | None = None
        name, now = node["metadata"]["name"], self.clock.monotonic()
        for (key, value), taint in _taints(node).items():
            matching = [t for t in pod["spec"].get("tolerations") or () if tolerates(t, taint)]
            if not matching:
                return 0.0
            limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
            if limits:
                remaining = self._since.get((name, key, value), now) + max(min(limits), 0) - now
                left = remaining if left is None else min(left, remaining)
        return left


def _taints(node: Json | None) -> dict[tuple[str, str], Json]:
    """A node's NoExecute taints by key and value."""
    taints = (node or {}).get("spec", {}).get("taints") or ()
    return {(t["key"], t.get("value", "")): t for t in taints if t.get("effect") == "NoExecute"}
