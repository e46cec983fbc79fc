"""Node life: silence is noticed, and conditions become taints."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import key_of
from dovetail.sim.kube.conditions import condition_of, with_condition

__all__ = ["NodeLife"]

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


class NodeLife(Neighbour):
    """Turns silence into Ready=Unknown, and conditions into taints."""

    name = "node-lifecycle"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        # When each node last spoke by our own clock: its lease may be stamped by a wrong one.
        self._spoke: dict[str, float] = {}
        # Nodes that were ready and had the taints they should have, as they were then.
        self._well: dict[str, Json] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {"nodes": self._heard, LEASES: self._lease_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            if before is not None:
                self._spoke.pop(before["metadata"]["name"], None)
                self._well.pop(before["metadata"]["name"], None)
            return
        name = after["metadata"]["name"]
        if before is None or _beats(before) != _beats(after):
            self._spoke[name] = self.clock.monotonic()
        self.enqueue(key_of(after))

    def _lease_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None or after["metadata"]["namespace"] != LEASE_NAMESPACE:
            return
        name = after["metadata"]["name"]
        if name in self._spoke and (before is None or before["spec"] != after["spec"]):
            self._spoke[name] = self.clock.monotonic()

    def work(self, key: Key) -> None:
        node = self.find("nodes", key)
        if node is None:
            return
        left = self._spoke[key[1]] + SILENCE - self.clock.monotonic()
        if self._well.get(key[1]) is node and left > 0:
            self.enqueue(key, max(left, SOON))
            return
        node = self._notice_silence(node)
        settled = not self._taint(node)
        ready = condition_of(node, "Ready")
        if settled and ready is not None and ready["status"] == "True":
            self._well[key[1]] = node
        if ready is not None and ready["status"] != "True":
            for pod in self.on_node(key[1]):
                self._unready(pod)
        self.enqueue(key, self._next_look(node))

    def _next_look(self, node: Json) -> float:
        """Seconds until its silence could be noticed; a node that is not well is looked at often."""
        ready = condition_of(node, "Ready")
        if ready is None or ready["status"] != "True":
            return WATCH_EVERY
        spoken = self._spoke[node["metadata"]["name"]] + SILENCE - self.clock.monotonic()
        return max(spoken, SOON)

    def _notice_silence(self, node: Json) -> Json:
        name, ready = node["metadata"]["name"], condition_of(node, "Ready")
        silent = self.clock.monotonic() - self._spoke[name]
        if ready is not None and ready["status"] == "Unknown":
            return node
        if silent < (START_UP if ready is None else SILENCE):
            return node
        status, now = node.get("status") or {}, self.now()
        for kind in SPOKEN_OF:
            have = condition_of(node, kind)
            reason = "NodeStatusUnknown" if have is not None else "NodeStatusNeverUpdated"
            message = "Kubelet stopped posting node status." if have else "Kubelet never posted node status."
            unknown = {"type": kind, "status": "Unknown", "reason": reason, "message": message}
            beat = (have or {}).get("lastHeartbeatTime") or node["metadata"]["creationTimestamp"]
            status = with_condition(status, {**unknown, "lastHeartbeatTime": beat}, now)
        return self.api.report("nodes", node, dict(status))

    def _unready(self, pod: Json) -> None:
        ready = condition_of(pod, "Ready")
        if ready is None or ready["status"] != "True":
            return
        lost = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
        self.api.report("pods", pod, with_condition(pod["status"], lost, self.now()))

    def _taint(self, node: Json) -> bool:
        """Give the node the taints it should have; False when it has them."""
        have = node["spec"].get("taints") or []
        wanted = self._wanted(node)
        kept = [t for t in have if t["key"] not in OURS or (t["key"], t["effect"]) in wanted]
        present = {(t["key"], t["effect"]) for t in kept}
        new = [_stamped(key, effect, self.now()) for key, effect in wanted if (key, effect) not in present]
        if not new and len(kept) == len(have):
            return False
        spec = {k: v for k, v in node["spec"].items() if k != "taints"}
        if kept + new:
            spec["taints"] = kept + new
        self.api.amend("nodes", key_of(node), spec=spec)
        return True

    def _wanted(self, node: Json) -> list[tuple[str, str]]:
        wanted: list[tuple[str, str]] = []
        ready = condition_of(node, "Ready")
        if ready is None:
            # The API server gave it this one at birth; nobody takes it away before the node has spoken.
            wanted += [
                (t["key"], t["effect"]) for t in node["spec"].get("taints") or () if t["key"] == NOT_READY
            ]
        elif ready["status"] != "True":
            key = NOT_READY if ready["status"] == "False" else UNREACHABLE
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        for kind, key in PRESSURES.items():
            condition = condition_of(node, kind)
            if condition is not None and condition["status"] == "True":
                wanted.append((key, "NoSchedule"))
        if node["spec"].get("unschedulable"):
            wanted.append((CORDONED, "NoSchedule"))
        return wanted


def _beats(node: Json) -> list[object]:
    """What a kubelet says of itself and when; what was concluded about it is not its word."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    said = [c for c in conditions if c.get("reason") not in ("NodeStatusUnknown", "NodeStatusNeverUpdated")]
    return [(c["type"], c["status"], c.get("lastHeartbeatTime")) for c in said]


def _stamped(key: str, effect: str, now: str) -> Json:
    return {"key": key, "effect": effect, "timeAdded": now}
