"""Node life: silence is noticed, conditions become taints, and pods that may not stay are removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.fitting import tolerates
from dovetail.sim.cluster.objects import deleting, ended, key_of, parse_time
from dovetail.sim.kube.conditions import condition_of, with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["NodeLife", "PodCollector", "TaintManager"]

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
SILENCE = 50.0
WATCH_EVERY = 5.0
QUARANTINE = 40.0
SWEEP = 20.0
PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
OURS = {*PRESSURES.values(), NOT_READY, UNREACHABLE, CORDONED}


class NodeLife(Neighbour):
    """Turns silence into Ready=Unknown, and conditions into taints."""

    name = "node-lifecycle"

    def hears(self) -> Mapping[str, Heard]:
        return {"nodes": self._heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def work(self, key: Key) -> None:
        try:
            node = self.api.get("nodes", key[1])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        node = self._notice_silence(node)
        self._taint(node)
        self.enqueue(key, WATCH_EVERY)

    def _notice_silence(self, node: Json) -> Json:
        name = node["metadata"]["name"]
        if not (node.get("status") or {}).get("conditions"):
            return node
        age = (self.clock.now() - self._last_heard(node)).total_seconds()
        ready = condition_of(node, "Ready")
        if age < SILENCE or (ready is not None and ready["status"] == "Unknown"):
            return node
        unknown = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        status = with_condition(node["status"], unknown, self.now())
        node = self.api.patch("nodes", name, {"status": status}, subresource="status")
        for pod in self.api.list("pods", field_selector=f"spec.nodeName={name}"):
            self._unready(pod)
        return node

    def _last_heard(self, node: Json) -> datetime:
        try:
            lease = self.api.get(LEASES, node["metadata"]["name"], LEASE_NAMESPACE)
            return parse_time(lease["spec"]["renewTime"])
        except (ApiError, KeyError):
            beats = [c.get("lastHeartbeatTime") for c in node["status"]["conditions"]]
            latest = max((b for b in beats if b), default=node["metadata"]["creationTimestamp"])
            return parse_time(latest)

    def _unready(self, pod: Json) -> None:
        ready = condition_of(pod, "Ready")
        if ready is None or ready["status"] != "True":
            return
        status = with_condition(
            pod["status"], {"type": "Ready", "status": "False", "reason": "NodeNotReady"}, self.now()
        )
        self.api.patch(
            "pods",
            pod["metadata"]["name"],
            {"status": status},
            pod["metadata"]["namespace"],
            subresource="status",
        )

    def _taint(self, node: Json) -> None:
        have = node["spec"].get("taints") or []
        wanted = self._wanted(node)
        kept = [t for t in have if t["key"] not in OURS or (t["key"], t["effect"]) in wanted]
        present = {(t["key"], t["effect"]) for t in kept}
        new = [_stamped(key, effect, self.now()) for key, effect in wanted if (key, effect) not in present]
        if new or len(kept) != len(have):
            meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
            self.api.patch(
                "nodes", node["metadata"]["name"], {"metadata": meta, "spec": {"taints": kept + new}}
            )

    def _wanted(self, node: Json) -> list[tuple[str, str]]:
        wanted: list[tuple[str, str]] = []
        ready = condition_of(node, "Ready")
        if ready is not None and ready["status"] != "True":
            key = NOT_READY if ready["status"] == "False" else UNREACHABLE
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        for kind, key in PRESSURES.items():
            condition = condition_of(node, kind)
            if condition is not None and condition["status"] == "True":
                wanted.append((key, "NoSchedule"))
        if node["spec"].get("unschedulable"):
            wanted.append((CORDONED, "NoSchedule"))
        return wanted


def _stamped(key: str, effect: str, now: str) -> Json:
    # The API server's own defaulting leaves timeAdded to whoever adds a NoExecute taint.
    return {"key": key, "effect": effect} | ({"timeAdded": now} if effect == "NoExecute" else {})


class TaintManager(Neighbour):
    """Removes pods that do not tolerate a NoExecute taint, at once or when their toleration runs out.

    It deletes; disruption budgets are not asked.
    """

    name = "taint-eviction-controller"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._since: dict[tuple[str, str, str], float] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {"nodes": self._node_heard, "pods": self._pod_heard}

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        old, new = _no_execute(before), _no_execute(after)
        name = after["metadata"]["name"]
        for taint in new:
            self._since.setdefault((name, taint["key"], taint.get("value", "")), self.clock.monotonic())
        for taint in old:
            if taint not in new:
                self._since.pop((name, taint["key"], taint.get("value", "")), None)
        if new and old != new:
            for pod in self.api.list("pods", field_selector=f"spec.nodeName={name}"):
                self.enqueue(key_of(pod))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None or not after["spec"].get("nodeName"):
            return
        if before is None or not before["spec"].get("nodeName"):
            self.enqueue(key_of(after))

    def work(self, key: Key) -> None:
        try:
            pod = self.api.get("pods", key[1], key[0])
            node = self.api.get("nodes", pod["spec"]["nodeName"])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if deleting(pod) or ended(pod):
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
        status = with_condition(pod.get("status") or {}, condition, self.now())
        self.api.patch("pods", key[1], {"status": status}, key[0], subresource="status")
        self.api.delete("pods", key[1], key[0], uid=pod["metadata"]["uid"])

    def _time_left(self, pod: Json, node: Json) -> float | None:
        """Seconds until the pod must go; None when it may stay."""
        left: float | None = None
        now = self.clock.monotonic()
        for taint in _no_execute(node):
            matching = [t for t in pod["spec"].get("tolerations") or () if tolerates(t, taint)]
            if not matching:
                return 0.0
            limits = [
                max(t["tolerationSeconds"], 0) for t in matching if t.get("tolerationSeconds") is not None
            ]
            if limits:
                since = self._since.get((node["metadata"]["name"], taint["key"], taint.get("value", "")), now)
                remaining = since + min(limits) - now
                left = remaining if left is None else min(left, remaining)
        return left


def _no_execute(node: Json | None) -> list[Json]:
    if node is None:
        return []
    return [t for t in node["spec"].get("taints") or () if t.get("effect") == "NoExecute"]


class PodCollector(Neighbour):
    """Removes pods whose node is gone, and pods that were deleted before they were ever bound."""

    name = "pod-garbage-collector"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._missing: dict[str, float] = {}

    def start(self) -> None:
        self.enqueue(("", "sweep"), SWEEP)

    def work(self, key: Key) -> None:
        nodes = {node["metadata"]["name"] for node in self.api.list("nodes")}
        now, missing = self.clock.monotonic(), {}
        for pod in self.api.list("pods"):
            name = pod["spec"].get("nodeName", "")
            if not name:
                if deleting(pod):
                    self._remove(pod)
            elif name not in nodes:
                since = missing[name] = self._missing.get(name, now)
                if now - since >= QUARANTINE:
                    self._orphan(pod)
        self._missing = missing
        self.enqueue(key, SWEEP)

    def _orphan(self, pod: Json) -> None:
        meta = pod["metadata"]
        if not ended(pod):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            status = with_condition(pod.get("status") or {}, condition, self.now()) | {"phase": "Failed"}
            self.api.patch("pods", meta["name"], {"status": status}, meta["namespace"], subresource="status")
        self._remove(pod)

    def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            self.api.delete("pods", meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
