"""What the scheduler knows of a node: its room, its pods, and what it said of each shape before."""

from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.fitting import node_selected, tolerates, untolerated
from dovetail.sim.cluster.scheduler.pods import Demand, PodInfo, amounts

__all__ = ["NodeInfo"]

Json = dict[str, Any]
NODE_NAME_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class NodeInfo:
    """One node. Verdicts on labels and taints hold until the node changes; room is kept running."""

    __slots__ = ("_verdicts", "labels", "name", "node", "pods", "ports", "room", "scored", "size", "used")

    def __init__(self, node: Json) -> None:
        self.pods: dict[tuple[str, str], PodInfo] = {}
        self.used: dict[str, int] = {}
        self.scored = [0, 0]
        self.ports: list[tuple[str, str, int]] = []
        self.renew(node)

    def renew(self, node: Json) -> None:
        """The node changed: forget what was said of shapes."""
        self.node = node
        self.name: str = node["metadata"]["name"]
        self.labels: dict[str, str] = node["metadata"].get("labels") or {}
        status = node.get("status") or {}
        self.size = amounts(status.get("allocatable") or status.get("capacity") or {})
        self._verdicts: dict[int, str | None] = {}

    def add(self, pod: PodInfo) -> None:
        if pod.key in self.pods:
            self.remove(pod.key)
        self.pods[pod.key] = pod
        for name, amount in pod.demand.requests.items():
            self.used[name] = self.used.get(name, 0) + amount
        self.scored[0] += pod.demand.scored[0]
        self.scored[1] += pod.demand.scored[1]
        self.ports += pod.demand.ports

    def remove(self, key: tuple[str, str]) -> PodInfo | None:
        pod = self.pods.pop(key, None)
        if pod is None:
            return None
        for name, amount in pod.demand.requests.items():
            self.used[name] -= amount
        self.scored[0] -= pod.demand.scored[0]
        self.scored[1] -= pod.demand.scored[1]
        for port in pod.demand.ports:
            self.ports.remove(port)
        return pod

    def static_verdict(self, demand: Demand) -> str | None:
        """Why this node can never take the shape as both are now; None if it can."""
        known = self._verdicts.get(demand.number, "")
        if known != "":
            return known
        verdict = self._judge(demand.spec)
        self._verdicts[demand.number] = verdict
        return verdict

    def _judge(self, spec: Json) -> str | None:
        tolerations = spec.get("tolerations") or ()
        if self.node["spec"].get("unschedulable") and not any(tolerates(t, CORDON) for t in tolerations):
            return "node(s) were unschedulable"
        taint = untolerated(spec, self.node, ("NoSchedule", "NoExecute"))
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if not node_selected(spec, self.node):
            return NODE_NAME_MISMATCH
        return None

    def lacking(self, demand: Demand) -> list[str]:
        """Which resources are short, as kube-scheduler words it."""
        short = []
        if len(self.pods) + 1 > self.size.get("pods", 0):
            short.append("Too many pods")
        used, size = self.used, self.size
        for name, amount in demand.requests.items():
            if amount and amount > size.get(name, 0) - used.get(name, 0):
                short.append(f"Insufficient {name}")
        return short

    def port_taken(self, demand: Demand) -> bool:
        for address, protocol, port in demand.ports:
            for other, their_protocol, taken in self.ports:
                if (
                    port == taken
                    and protocol == their_protocol
                    and (address == other or "0.0.0.0" in (address, other))
                ):
                    return True
        return False
