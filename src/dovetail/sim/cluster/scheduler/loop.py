"""The scheduler at work: pods come, nodes change, and one pod after the other is placed or told why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import deleting, ended, key_of, labels_of, touches
from dovetail.sim.cluster.scheduler.board import Board, Node
from dovetail.sim.cluster.scheduler.counting import Counts
from dovetail.sim.cluster.scheduler.cycle import Cycle, refusal_text
from dovetail.sim.cluster.scheduler.pods import PodInfo, Shapes
from dovetail.sim.cluster.scheduler.preemption import Guards, Preemption
from dovetail.sim.cluster.scheduler.queue import Queue
from dovetail.sim.cluster.scheduler.scores import best
from dovetail.sim.cluster.scheduler.telling import Telling
from dovetail.sim.cluster.scheduler.volumes import NoVolumes, Volumes
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError

__all__ = ["Scheduler"]

PASS, STIR, SWEEP = ("", "pass"), ("", "stir"), ("", "sweep")
BUDGETS = "poddisruptionbudgets.policy"
AT_ONCE = 50
SWEEP_EVERY = 300.0
NODE_FACTS = (("metadata", "labels"), ("spec",), ("status", "allocatable"))
STORAGE = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "csinodes.storage.k8s.io",
)


class Scheduler(Neighbour):
    """Binds pending pods to nodes, one at a time."""

    name = "default-scheduler"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.board = Board()
        self.shapes = Shapes()
        self.counts = Counts(self.board, self._namespaces)
        self.queue = Queue()
        self._telling = Telling(self.api, self.clock, self.name)
        self._bound: dict[Key, tuple[str, PodInfo]] = {}
        # The same by node, for nodes that are heard of later than their pods.
        self._on: dict[str, dict[Key, PodInfo]] = {}
        self._priorities: Counter[int] = Counter()
        self._nominated: dict[Key, tuple[str, PodInfo]] = {}
        self._hopeless: dict[int, list[str]] = {}

    def hears(self) -> Mapping[str, Heard]:
        heard: dict[str, Heard] = {
            "nodes": self._node_heard,
            "pods": self._pod_heard,
            "namespaces": self._namespace_heard,
        }
        return heard | dict.fromkeys(STORAGE, self._storage_heard)

    def start(self) -> None:
        self.enqueue(SWEEP, SWEEP_EVERY)

    # What happened

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._node_gone(before["metadata"]["name"])
        elif after["metadata"]["name"] not in self.board.nodes:
            node = self.board.put(after)
            for pod in self._on.get(node.name, {}).values():
                self.board.add(node, pod)
                self.counts.placed(pod, node)
        elif any(touches(before, after, *path) for path in NODE_FACTS):
            self.board.put(after)
            if touches(before, after, "metadata", "labels"):
                self.counts.relabelled()
        else:
            return
        self._stir()

    def _node_gone(self, name: str) -> None:
        node = self.board.nodes[name]
        for pod in list(node.pods.values()):
            self.board.remove(node, pod.key)
            self.counts.placed(pod, node, -1)
        self.board.drop(name)

    def _namespace_heard(self, before: Json | None, after: Json | None) -> None:
        if touches(before, after, "metadata", "labels"):
            self.counts.forget()
            self._stir()

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
            self.queue.forget(key)
            self._nominated.pop(key, None)
        elif self._ours(after) and (before is None or _reconsider(before, after)):
            self.queue.push(key, after)
            self.enqueue(PASS)

    def _hold(self, key: Key, node: str, pod: Json) -> None:
        info = self.shapes.info(pod)
        self._bound[key] = (node, info)
        self._on.setdefault(node, {})[key] = info
        self._priorities[info.demand.priority] += 1
        held = self.board.nodes.get(node)
        if held is not None:
            self.board.add(held, info)
            self.counts.placed(info, held)
        if self.queue.choosy:
            self._stir()

    def _release(self, key: Key) -> None:
        name, info = self._bound.pop(key)
        del self._on[name][key]
        if not self._on[name]:
            del self._on[name]
        self._priorities[info.demand.priority] -= 1
        if not self._priorities[info.demand.priority]:
            del self._priorities[info.demand.priority]
        node = self.board.nodes.get(name)
        if node is not None:
            self.board.remove(node, key)
            self.counts.placed(info, node, -1)
        self._stir()

    def _ours(self, pod: Json) -> bool:
        return pod["spec"].get("schedulerName", self.name) == self.name and not pod["spec"].get("nodeName")

    def _namespaces(self, selector: Json) -> frozenset[str]:
        matches = from_selector(selector)
        return frozenset(ns["metadata"]["name"] for ns in self.every("namespaces") if matches(labels_of(ns)))

    def _stir(self) -> None:
        """Something changed that may help those who wait."""
        self._hopeless.clear()
        if self.queue.waiting:
            self.enqueue(STIR)

    # Whose turn it is

    def work(self, key: Key) -> None:
        if key != PASS:
            self._wake_waiting(everyone=key == SWEEP)
            if key == SWEEP:
                self.enqueue(SWEEP, SWEEP_EVERY)
            return
        for _ in range(AT_ONCE):
            if not self.queue:
                return
            self._attempt(self.queue.pop())
        self.enqueue(PASS)

    def _wake_waiting(self, *, everyone: bool) -> None:
        ripe, soonest = self.queue.ripe(self.clock.monotonic(), everyone=everyone)
        for key in ripe:
            pod = self.find("pods", key)
            if pod is not None:
                self.queue.push(key, pod)
        if soonest is not None:
            self.enqueue(STIR, soonest)
        if self.queue:
            self.enqueue(PASS)

    def _attempt(self, key: Key) -> None:
        pod = self.find("pods", key)
        if pod is None or not self._ours(pod) or deleting(pod) or ended(pod):
            return
        try:
            self._schedule(key, pod)
        except (ApiError, ConnectionError):
            # The server would not have it; the world is looked at again after the usual pause.
            self.queue.park(key, self.clock.monotonic())
            self.enqueue(STIR)

    # Where it goes

    def _schedule(self, key: Key, pod: Json) -> None:
        if pod["spec"].get("schedulingGates"):
            self._telling.gated(pod)
            return
        info = self.shapes.info(pod)
        try:
            volumes = Volumes(info, self, self.board)
        except NoVolumes as error:
            text = f"0/{len(self.board.nodes)} nodes are available: {error}."
            self._unschedulable(key, info, text if self.board.nodes else refusal_text(0, []))
            return
        cycle = Cycle(
            info, self.board, self.counts, volumes, self._promised if self._others_nominated(key) else None
        )
        known = self._hopeless.get(info.demand.number) if cycle.simple else None
        if known is not None:
            self._unschedulable(key, info, refusal_text(len(self.board.nodes), known))
            return
        fitting = cycle.fitting()
        if fitting.any():
            self._settle(key, pod, best(info, fitting, self.board, self.counts), volumes)
            return
        reasons, preempting = cycle.reasons(), self._may_preempt(info)
        if cycle.simple and not preempting:
            self._hopeless[info.demand.number] = reasons
        self._unschedulable(key, info, refusal_text(len(self.board.nodes), reasons))
        if preempting:
            self._preempt(key, info, volumes)

    def _settle(self, key: Key, pod: Json, node: Node, volumes: Volumes) -> None:
        """Bind; or, while volumes are still to be made there, wait for them."""
        for resource, (namespace, name), patch in volumes.orders(node):
            self.api.patch(resource, name, patch, namespace)
        if volumes.to_make:
            self.queue.park(key, self.clock.monotonic(), at_once=True)
            return
        self.queue.forget(key)
        self.api.bind(key[1], key[0], node.name)
        self._telling.event(
            pod, "Normal", "Scheduled", f"Successfully assigned {key[0]}/{key[1]} to {node.name}"
        )

    def _unschedulable(self, key: Key, pod: PodInfo, text: str) -> None:
        demand = pod.demand
        choosy = bool(demand.affinity or demand.spread)
        self.queue.park(key, self.clock.monotonic(), choosy=choosy)
        self._telling.unschedulable(pod.obj, text)

    def _others_nominated(self, key: Key) -> bool:
        return len(self._nominated) > (1 if key in self._nominated else 0)

    def _promised(self, pod: PodInfo, node: Node) -> list[str]:
        """What a node lacks once room that was made for more important pods is taken off."""
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

    # Making room

    def _may_preempt(self, pod: PodInfo) -> bool:
        return pod.demand.preempts and any(p < pod.demand.priority for p in self._priorities)

    def _preempt(self, key: Key, pod: PodInfo, volumes: Volumes) -> None:
        held = self._nominated.get(key)
        node = self.board.nodes.get(held[0]) if held is not None else None
        if node is not None and any(
            p.leaving and p.demand.priority < pod.demand.priority for p in node.pods.values()
        ):
            return  # room is being made already
        suited = self.board.suited(pod.demand)
        possible = [node for node in self.board.nodes.values() if suited[node.row]]
        guards = Guards(self.every(BUDGETS))

        def fits(pod: PodInfo, node: Node) -> bool:
            cycle = Cycle(pod, self.board, self.counts, volumes, self._promised)
            return not cycle.objections(node)

        found = Preemption(self.board, self.counts, fits, guards).find(pod, possible)
        if found is None:
            if self._nominated.pop(key, None) is not None:
                self._telling.nominate(key, "")
            return
        self._nominated[key] = (found.node.name, pod)
        self._telling.nominate(key, found.node.name)
        for victim in found.pods:
            self._telling.preempted(victim.obj, pod.obj)
            meta = victim.obj["metadata"]
            self.api.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"])


def _recount(before: Json, after: Json | None) -> bool:
    """A bound pod's labels, sizes or leaving changed what it counts as."""
    if after is None or deleting(before) != deleting(after):
        return True
    return touches(before, after, "metadata", "labels") or touches(before, after, "spec")


def _reconsider(before: Json, after: Json) -> bool:
    """A waiting pod itself changed in a way that may help it."""
    return touches(before, after, "spec") or touches(before, after, "metadata", "labels")
