"""The scheduler at work: which pod is next, where it goes, and what it is told when it cannot go.

pending ──► active ──► bound
              │ ▲
              ▼ │ something changed that may help, and its back-off is over
         unschedulable
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from itertools import count

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import deleting, ended, key_of, labels_of, touches
from dovetail.sim.cluster.scheduler.board import Board, Mask, Node
from dovetail.sim.cluster.scheduler.counting import Counts
from dovetail.sim.cluster.scheduler.filters import topology_masks
from dovetail.sim.cluster.scheduler.pods import PodInfo, Shapes
from dovetail.sim.cluster.scheduler.preemption import Preemption
from dovetail.sim.cluster.scheduler.scores import best
from dovetail.sim.cluster.scheduler.volumes import NoVolumes, Volumes
from dovetail.sim.kube.conditions import condition_of, with_condition
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError

__all__ = ["Scheduler"]

PASS: Key = ("", "pass")
BUDGETS = "poddisruptionbudgets.policy"
AT_ONCE = 100
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 10.0
SWEEP = 300.0
NODE_FACTS = (("metadata", "labels"), ("spec",), ("status", "allocatable"))
PORTS = "node(s) didn't have free ports for the requested pod ports"


class _Waiting:
    """A pod that fitted nowhere: how often, and when it may be tried again."""

    __slots__ = ("attempts", "eligible")

    def __init__(self) -> None:
        self.attempts = 0
        self.eligible = 0.0


class Scheduler(Neighbour):
    """Binds pending pods to nodes, one at a time."""

    name = "default-scheduler"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.board = Board()
        self.shapes = Shapes()
        self.counts = Counts(self.board, self._namespaces)
        self._bound: dict[Key, tuple[str, PodInfo]] = {}
        self._active: list[tuple[int, str, int, Key]] = []
        self._queued: set[Key] = set()
        self._waiting: dict[Key, _Waiting] = {}
        self._nominated: dict[Key, tuple[str, PodInfo]] = {}
        self._order = count()
        self._hopeless: dict[int, list[str]] = {}
        self._events = count()

    def hears(self) -> Mapping[str, Heard]:
        return {
            "nodes": self._node_heard,
            "pods": self._pod_heard,
            "namespaces": self._namespace_heard,
            "persistentvolumeclaims": self._storage_heard,
            "persistentvolumes": self._storage_heard,
            "storageclasses.storage.k8s.io": self._storage_heard,
            "csinodes.storage.k8s.io": self._storage_heard,
        }

    def start(self) -> None:
        self.enqueue(("", "sweep"), SWEEP)

    # What happened

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self.board.drop(before["metadata"]["name"])
            self.counts.forget()
            self._stir()
            return
        name = after["metadata"]["name"]
        if name not in self.board.nodes:
            node = self.board.put(after)
            for where, pod in self._bound.values():
                if where == name:
                    self.board.add(node, pod)
            self.counts.forget()
            self._stir()
        elif any(touches(before, after, *path) for path in NODE_FACTS):
            self.board.put(after)
            if touches(before, after, "metadata", "labels"):
                self.counts.forget()
            self._stir()

    def _namespace_heard(self, before: Json | None, after: Json | None) -> None:
        if touches(before, after, "metadata", "labels"):
            self.counts.forget()

    def _storage_heard(self, before: Json | None, after: Json | None) -> None:
        self._stir()

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        key = key_of(pod)
        node = after["spec"].get("nodeName") if after is not None and not ended(after) else None
        held = self._bound.get(key)
        if held is not None and (node is None or before is None or _recount(before, after)):
            self._release(key)
            held = None
        if node and held is None:
            assert after is not None
            self._hold(key, node, after)
        if after is None or node or deleting(after) or ended(after):
            self._forget_waiting(key)
        elif self._ours(after) and (before is None or _reconsider(before, after)):
            self._activate(key, after)

    def _hold(self, key: Key, node: str, pod: Json) -> None:
        info = self.shapes.info(pod)
        self._bound[key] = (node, info)
        held = self.board.nodes.get(node)
        if held is not None:
            self.board.add(held, info)
            self.counts.placed(info, held)

    def _release(self, key: Key) -> None:
        name, info = self._bound.pop(key)
        node = self.board.nodes.get(name)
        if node is not None:
            self.board.remove(node, key)
            self.counts.placed(info, node, -1)
        self._stir()

    def _ours(self, pod: Json) -> bool:
        return pod["spec"].get("schedulerName", self.name) == self.name and not pod["spec"].get("nodeName")

    def _namespaces(self, selector: Json) -> frozenset[str]:
        matches = from_selector(selector)
        return frozenset(
            ns["metadata"]["name"] for ns in self.api.list("namespaces") if matches(labels_of(ns))
        )

    # Who is next

    def _activate(self, key: Key, pod: Json) -> None:
        if key in self._queued:
            return
        self._queued.add(key)
        created = pod["metadata"]["creationTimestamp"]
        heapq.heappush(self._active, (-(pod["spec"].get("priority") or 0), created, next(self._order), key))
        self.enqueue(PASS)

    def _forget_waiting(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._nominated.pop(key, None)

    def _stir(self) -> None:
        """Something changed that may help those who wait."""
        self._hopeless.clear()
        if self._waiting:
            self.enqueue(("", "stir"))

    def work(self, key: Key) -> None:
        if key == PASS:
            self._pass()
        else:
            self._wake_waiting(everyone=key[1] == "sweep")
            if key[1] == "sweep":
                self.enqueue(key, SWEEP)

    def _wake_waiting(self, *, everyone: bool) -> None:
        now, soonest = self.clock.monotonic(), float("inf")
        for key, waiting in self._waiting.items():
            if not everyone and waiting.eligible > now:
                soonest = min(soonest, waiting.eligible)
                continue
            pod = self._read(key)
            if pod is not None:
                self._activate(key, pod)
        if soonest < float("inf"):
            self.enqueue(("", "stir"), soonest - now)

    def _pass(self) -> None:
        for _ in range(AT_ONCE):
            if not self._active:
                return
            key = heapq.heappop(self._active)[3]
            self._queued.discard(key)
            pod = self._read(key)
            if pod is not None and self._ours(pod) and not deleting(pod) and not ended(pod):
                self._schedule(key, pod)
        self.enqueue(PASS)

    def _read(self, key: Key) -> Json | None:
        try:
            return self.api.get("pods", key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    # Where it goes

    def _schedule(self, key: Key, pod: Json) -> None:
        if pod["spec"].get("schedulingGates"):
            self._tell(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        info = self.shapes.info(pod)
        try:
            volumes = Volumes(info, self.api)
        except NoVolumes as error:
            self._unschedulable(key, info, [str(error)] * max(len(self.board.nodes), 1))
            return
        hopeless = self._hopeless.get(info.demand.number)
        rules = list(topology_masks(info, self.board, self.counts))
        simple = not rules and volumes.empty
        if simple and hopeless is not None:
            self._unschedulable(key, info, hopeless)
            return
        fitting = self._fitting(info, rules, volumes)
        if not fitting.any():
            reasons = self._reasons(info, rules, volumes)
            if simple and not info.demand.priority:
                self._hopeless[info.demand.number] = reasons
            self._unschedulable(key, info, reasons)
            self._preempt(key, info)
            return
        node = best(info, fitting, self.board, self.counts)
        if volumes.select(node.name):
            self._bind(key, pod, node.name)
        else:
            # The provisioner makes the volumes now; the pod is tried again when they are there.
            self._wait(key)

    def _fitting(self, pod: PodInfo, rules: list[tuple[str, Mask]], volumes: Volumes) -> Mask:
        """The rows that will do, all rules together."""
        demand = pod.demand
        mask: Mask = self.board.alive & self.board.suited(demand) & self.board.roomy(demand)
        for _, rule in rules:
            mask &= rule
        if demand.ports or not volumes.empty or self._nominated:
            for node in self.board.nodes.values():
                if mask[node.row] and self._refusal(pod, node, volumes):
                    mask[node.row] = False
        return mask

    def _refusal(self, pod: PodInfo, node: Node, volumes: Volumes) -> list[str]:
        """What speaks against one node beyond labels, taints, room and topology."""
        if pod.demand.ports and node.port_taken(pod.demand):
            return [PORTS]
        if short := self._promised(pod, node):
            return short
        why = None if volumes.empty else volumes.verdict(node)
        return [why] if why else []

    def _reasons(self, pod: PodInfo, rules: list[tuple[str, Mask]], volumes: Volumes) -> list[str]:
        """Each node's first objection (all short resources count), as kube-scheduler words it."""
        reasons: list[str] = []
        for node in self.board.nodes.values():
            why = node.verdict(pod.demand.spec)
            if why is not None:
                reasons.append(why)
                continue
            if pod.demand.ports and node.port_taken(pod.demand):
                reasons.append(PORTS)
                continue
            short = self.board.lacking(node, pod.demand) or self._refusal(pod, node, volumes)
            reasons += short or [words for words, rule in rules if not rule[node.row]][:1]
        return reasons

    def _promised(self, pod: PodInfo, node: Node) -> list[str]:
        """Room that was made for a more important pod is not for others."""
        guests = [
            guest
            for key, (name, guest) in self._nominated.items()
            if name == node.name and key != pod.key and guest.demand.priority >= pod.demand.priority
        ]
        if not guests:
            return []
        for guest in guests:
            self.board.add(node, guest)
        try:
            return self.board.lacking(node, pod.demand)
        finally:
            for guest in guests:
                self.board.remove(node, guest.key)

    def _bind(self, key: Key, pod: Json, node: str) -> None:
        self._forget_waiting(key)
        try:
            self.api.bind(key[1], key[0], node)
        except ApiError:
            self._wait(key)
            raise
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {key[0]}/{key[1]} to {node}")

    # What it is told

    def _unschedulable(self, key: Key, pod: PodInfo, reasons: list[str]) -> None:
        self._wait(key)
        self._tell(pod.obj, "Unschedulable", _message(len(self.board.nodes), reasons))

    def _wait(self, key: Key) -> None:
        waiting = self._waiting.setdefault(key, _Waiting())
        waiting.attempts += 1
        delay = min(FIRST_BACKOFF * 2 ** (waiting.attempts - 1), LAST_BACKOFF)
        waiting.eligible = self.clock.monotonic() + delay

    def _tell(self, pod: Json, reason: str, message: str) -> None:
        have = condition_of(pod, "PodScheduled") or {}
        if (have.get("status"), have.get("reason"), have.get("message")) == ("False", reason, message):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        status = with_condition(pod.get("status") or {}, condition, self.now())
        meta = pod["metadata"]
        self.api.patch("pods", meta["name"], {"status": status}, meta["namespace"], subresource="status")
        if reason == "Unschedulable":
            self._event(pod, "Warning", "FailedScheduling", message)

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        meta = pod["metadata"]
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        body = {
            "metadata": {"name": f"{meta['name']}.{next(self._events):016x}", "namespace": meta["namespace"]},
            "regarding": about,
            "reason": reason,
            "note": message,
            "type": kind,
            "action": "Binding" if kind == "Normal" else "Scheduling",
            "eventTime": now,
            "reportingController": self.name,
            "reportingInstance": self.name,
        }
        try:
            self.api.create("events.events.k8s.io", body)
        except ApiError as error:
            # A namespace on its way out takes no events; the verdict itself was given above.
            if error.code != 403:
                raise

    # Making room

    def _preempt(self, key: Key, pod: PodInfo) -> None:
        if not pod.demand.priority or not pod.demand.preempts or key in self._nominated:
            return
        suited = self.board.suited(pod.demand)
        possible = [node for node in self.board.nodes.values() if suited[node.row]]
        found = Preemption(self.board, self.counts, self._fits, self._guarded).find(pod, possible)
        if found is None:
            return
        self._nominated[key] = (found.node.name, pod)
        status = {"status": {"nominatedNodeName": found.node.name}}
        self.api.patch("pods", key[1], status, key[0], subresource="status")
        for victim in found.pods:
            self._evict(victim, pod)

    def _fits(self, pod: PodInfo, node: Node) -> bool:
        if self.board.lacking(node, pod.demand) or node.port_taken(pod.demand):
            return False
        return all(rule[node.row] for _, rule in topology_masks(pod, self.board, self.counts))

    def _guarded(self, pod: PodInfo) -> bool:
        for budget in self.api.list(BUDGETS, pod.namespace):
            if from_selector(budget["spec"].get("selector"))(pod.labels):
                return bool((budget.get("status") or {}).get("disruptionsAllowed", 0) <= 0)
        return False

    def _evict(self, victim: PodInfo, pod: PodInfo) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self.name}: preempting to accommodate a higher priority pod",
        }
        status = with_condition(victim.obj.get("status") or {}, condition, self.now())
        namespace, name = victim.key
        self.api.patch("pods", name, {"status": status}, namespace, subresource="status")
        self.api.delete("pods", name, namespace, uid=victim.obj["metadata"]["uid"])
        self._event(victim.obj, "Normal", "Preempted", f"Preempted by pod {pod.obj['metadata']['uid']}")


def _message(nodes: int, reasons: list[str]) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    tally = sorted(f"{number} {reason}" for reason, number in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(tally)}."


def _recount(before: Json, after: Json | None) -> bool:
    """A bound pod's labels, sizes or leaving changed what it counts as."""
    if after is None or deleting(before) != deleting(after):
        return True
    return touches(before, after, "metadata", "labels") or touches(before, after, "spec")


def _reconsider(before: Json, after: Json) -> bool:
    """A waiting pod itself changed in a way that may help it."""
    return touches(before, after, "spec") or touches(before, after, "metadata", "labels")
