"""Node life: silence is noticed, and conditions become taints."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.node_matching import tolerates_taint
from dovetail.sim.cluster.objects import has_pod_ended, is_deleting, key_of
from dovetail.sim.kube.meta import find_condition, with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["NodeLifecycleController", "PodGarbageCollector", "TaintEvictionController"]

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
# How long a node may be silent; one that never spoke is given a little more.
SILENCE, START_UP = 50.0, 60.0
WATCH_EVERY, SOON = 5.0, 0.001
SPOKEN_OF = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
OURS = {*PRESSURES.values(), NOT_READY, UNREACHABLE, CORDONED}


class NodeLifecycleController(SimController):
    """Turns silence into Ready=Unknown, and conditions into taints."""

    name = "node-lifecycle"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        # When each node last spoke by our own clock: its lease may be stamped by a wrong one.
        self._spoke: dict[str, float] = {}
        # Nodes that were ready and had the taints they should have, as they were then.
        self._well: dict[str, Json] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"nodes": self._handle_node, LEASES: self._handle_lease}

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            if before is not None:
                self._spoke.pop(before["metadata"]["name"], None)
                self._well.pop(before["metadata"]["name"], None)
            return
        name = after["metadata"]["name"]
        if before is None or _list_heartbeats(before) != _list_heartbeats(after):
            self._spoke[name] = self.clock.monotonic()
        self.enqueue(key_of(after))

    def _handle_lease(self, before: Json | None, after: Json | None) -> None:
        if after is None or after["metadata"]["namespace"] != LEASE_NAMESPACE:
            return
        name = after["metadata"]["name"]
        if name in self._spoke and (before is None or before["spec"] != after["spec"]):
            self._spoke[name] = self.clock.monotonic()

    def reconcile(self, key: Key) -> None:
        node = self.find_object("nodes", key)
        if node is None:
            return
        left = self._spoke[key[1]] + SILENCE - self.clock.monotonic()
        if self._well.get(key[1]) is node and left > 0:
            self.enqueue(key, max(left, SOON))
            return
        node = self._notice_silence(node)
        settled = not self._update_taints(node)
        ready = find_condition(node, "Ready")
        if settled and ready is not None and ready["status"] == "True":
            self._well[key[1]] = node
        if ready is not None and ready["status"] != "True":
            for pod in self.list_pods_on_node(key[1]):
                self._mark_pod_unready(pod)
        self.enqueue(key, self._find_next_check(node))

    def _find_next_check(self, node: Json) -> float:
        """Seconds until its silence could be noticed; a node that is not well is looked at often."""
        ready = find_condition(node, "Ready")
        if ready is None or ready["status"] != "True":
            return WATCH_EVERY
        spoken = self._spoke[node["metadata"]["name"]] + SILENCE - self.clock.monotonic()
        return max(spoken, SOON)

    def _notice_silence(self, node: Json) -> Json:
        name, ready = node["metadata"]["name"], find_condition(node, "Ready")
        silent = self.clock.monotonic() - self._spoke[name]
        if ready is not None and ready["status"] == "Unknown":
            return node
        if silent < (START_UP if ready is None else SILENCE):
            return node
        status, now = node.get("status") or {}, self.format_now()
        for kind in SPOKEN_OF:
            have = find_condition(node, kind)
            reason = "NodeStatusUnknown" if have is not None else "NodeStatusNeverUpdated"
            message = "Kubelet stopped posting node status." if have else "Kubelet never posted node status."
            unknown = {"type": kind, "status": "Unknown", "reason": reason, "message": message}
            beat = (have or {}).get("lastHeartbeatTime") or node["metadata"]["creationTimestamp"]
            status = with_condition(status, {**unknown, "lastHeartbeatTime": beat}, now)
        return self.api.report_status("nodes", node, dict(status))

    def _mark_pod_unready(self, pod: Json) -> None:
        ready = find_condition(pod, "Ready")
        if ready is None or ready["status"] != "True":
            return
        lost = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
        self.api.report_status("pods", pod, with_condition(pod["status"], lost, self.format_now()))

    def _update_taints(self, node: Json) -> bool:
        """Give the node the taints it should have; False when it has them."""
        have = node["spec"].get("taints") or []
        wanted = self._list_wanted_taints(node)
        kept = [t for t in have if t["key"] not in OURS or (t["key"], t["effect"]) in wanted]
        present = {(t["key"], t["effect"]) for t in kept}
        new = [
            _build_taint(key, effect, self.format_now())
            for key, effect in wanted
            if (key, effect) not in present
        ]
        if not new and len(kept) == len(have):
            return False
        spec = {k: v for k, v in node["spec"].items() if k != "taints"}
        if kept + new:
            spec["taints"] = kept + new
        self.api.amend("nodes", key_of(node), spec=spec)
        return True

    def _list_wanted_taints(self, node: Json) -> list[tuple[str, str]]:
        wanted: list[tuple[str, str]] = []
        ready = find_condition(node, "Ready")
        if ready is None:
            # The API server gave it this one at birth; nobody takes it away before the node has spoken.
            wanted += [
                (t["key"], t["effect"]) for t in node["spec"].get("taints") or () if t["key"] == NOT_READY
            ]
        elif ready["status"] != "True":
            key = NOT_READY if ready["status"] == "False" else UNREACHABLE
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        for kind, key in PRESSURES.items():
            condition = find_condition(node, kind)
            if condition is not None and condition["status"] == "True":
                wanted.append((key, "NoSchedule"))
        if node["spec"].get("unschedulable"):
            wanted.append((CORDONED, "NoSchedule"))
        return wanted


def _list_heartbeats(node: Json) -> list[object]:
    """What a kubelet says of itself and when; what was concluded about it is not its word."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    said = [c for c in conditions if c.get("reason") not in ("NodeStatusUnknown", "NodeStatusNeverUpdated")]
    return [(c["type"], c["status"], c.get("lastHeartbeatTime")) for c in said]


def _build_taint(key: str, effect: str, now: str) -> Json:
    return {"key": key, "effect": effect, "timeAdded": now}


Taint = tuple[str, str, str]
"""Node, key and value."""


class TaintEvictionController(SimController):
    """Removes pods that do not tolerate a NoExecute taint, at once or when their toleration runs out.

    It deletes; disruption budgets are not asked.
    """

    name = "taint-eviction-controller"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._since: dict[Taint, float] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"nodes": self._handle_node, "pods": self._handle_pod}

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        node = after or before
        assert node is not None
        name, old, new = node["metadata"]["name"], _index_taints(before), _index_taints(after)
        for key, value in old.keys() - new.keys():
            self._since.pop((name, key, value), None)
        for key, value in new:
            self._since.setdefault((name, key, value), self.clock.monotonic())
        if new and old.keys() != new.keys():
            for pod in self.list_pods_on_node(name):
                self.enqueue(key_of(pod))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        if after is None or not after["spec"].get("nodeName"):
            return
        moved = before is None or before["spec"] is not after["spec"]
        if moved and self._since:
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        pod = self.find_object("pods", key)
        node = self.find_object("nodes", ("", pod["spec"].get("nodeName", ""))) if pod is not None else None
        if pod is None or node is None or is_deleting(pod) or has_pod_ended(pod):
            return
        left = self._find_time_left(pod, node)
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
        self.api.report_status(
            "pods", pod, with_condition(pod.get("status") or {}, condition, self.format_now())
        )
        self.api.delete("pods", key[1], key[0], uid=pod["metadata"]["uid"])

    def _find_time_left(self, pod: Json, node: Json) -> float | None:
        """Seconds until the pod must go; None when it may stay."""
        left: float | None = None
        name, now = node["metadata"]["name"], self.clock.monotonic()
        for (key, value), taint in _index_taints(node).items():
            matching = [t for t in pod["spec"].get("tolerations") or () if tolerates_taint(t, taint)]
            if not matching:
                return 0.0
            limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
            if limits:
                remaining = self._since.get((name, key, value), now) + max(min(limits), 0) - now
                left = remaining if left is None else min(left, remaining)
        return left


def _index_taints(node: Json | None) -> dict[tuple[str, str], Json]:
    """A node's NoExecute taints by key and value."""
    taints = (node or {}).get("spec", {}).get("taints") or ()
    return {(t["key"], t.get("value", "")): t for t in taints if t.get("effect") == "NoExecute"}


SWEEP = 20.0
# A node that is missing may be one we have not heard of yet.
QUARANTINE = 40.0


class PodGarbageCollector(SimController):
    """Sweeps up pods that nobody else will ever finish."""

    name = "pod-garbage-collector"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._missing: dict[str, float] = {}

    def start(self) -> None:
        self.enqueue(("", "sweep"), SWEEP)

    def reconcile(self, key: Key) -> None:
        self.enqueue(key, SWEEP)
        by_node = self.manager.server.store.get_bucket("pods").by_node
        now, nodes = self.clock.monotonic(), self.manager.server.store.get_bucket("nodes").records
        lost = sorted(name for name in by_node if ("", name) not in nodes)
        self._missing = {name: self._missing.get(name, now) for name in lost}
        for name, since in self._missing.items():
            if now - since >= QUARANTINE:
                for pod in self.list_pods_on_node(name):
                    self._fail_orphan(pod)
        for pod in self.list_objects("pods"):
            if is_deleting(pod) and not pod["spec"].get("nodeName"):
                self._delete_pod(pod)

    def _fail_orphan(self, pod: Json) -> None:
        if not has_pod_ended(pod):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            status = with_condition(pod.get("status") or {}, condition, self.format_now())
            self.api.report_status("pods", pod, {**status, "phase": "Failed"})
        self._delete_pod(pod)

    def _delete_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            self.api.delete("pods", meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
