"""The scheduler at work: pods come, nodes change, and one pod after the other is placed or told why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import has_changed, has_pod_ended, is_deleting, key_of, labels_of
from dovetail.sim.cluster.scheduler.cycle import SchedulingCycle, describe_refusal
from dovetail.sim.cluster.scheduler.node_table import NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_conditions import SchedulingReporter
from dovetail.sim.cluster.scheduler.pod_info import PodInfo, SimPodShapes
from dovetail.sim.cluster.scheduler.preemption import BudgetGuards, Preemption
from dovetail.sim.cluster.scheduler.queue import SchedulingQueue
from dovetail.sim.cluster.scheduler.scoring import choose_best_node
from dovetail.sim.cluster.scheduler.topology_counts import SimTopologyCounts
from dovetail.sim.cluster.scheduler.volumes import NoVolumes, PodVolumes
from dovetail.sim.kube.selectors import build_label_matcher
from dovetail.sim.kube.status import ApiError

__all__ = ["KubeScheduler"]

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


class KubeScheduler(SimController):
    """Binds pending pods to nodes, one at a time."""

    name = "default-scheduler"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self.node_table = NodeTable()
        self.shapes = SimPodShapes()
        self.counts = SimTopologyCounts(self.node_table, self._select_namespaces)
        self.queue = SchedulingQueue()
        self._reporter = SchedulingReporter(self.api, self.clock, self.name)
        self._bound: dict[Key, tuple[str, PodInfo]] = {}
        # The same by node, for nodes that are heard of later than their pods.
        self._bound_by_node: dict[str, dict[Key, PodInfo]] = {}
        self._priorities: Counter[int] = Counter()
        self._nominated: dict[Key, tuple[str, PodInfo]] = {}
        self._hopeless: dict[int, list[str]] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        heard: dict[str, CommitHandler] = {
            "nodes": self._handle_node,
            "pods": self._handle_pod,
            "namespaces": self._handle_namespace,
        }
        return heard | dict.fromkeys(STORAGE, self._handle_storage)

    def start(self) -> None:
        self.enqueue(SWEEP, SWEEP_EVERY)

    # What happened

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._remove_node(before["metadata"]["name"])
        elif after["metadata"]["name"] not in self.node_table.nodes:
            node = self.node_table.put(after)
            for pod in self._bound_by_node.get(node.name, {}).values():
                self.node_table.add_pod(node, pod)
                self.counts.update_counts(pod, node)
        elif any(has_changed(before, after, *path) for path in NODE_FACTS):
            self.node_table.put(after)
            if has_changed(before, after, "metadata", "labels"):
                self.counts.recount_aversions()
        else:
            return
        self._retry_pending()

    def _remove_node(self, name: str) -> None:
        node = self.node_table.nodes[name]
        for pod in list(node.pods.values()):
            self.node_table.remove_pod(node, pod.key)
            self.counts.update_counts(pod, node, -1)
        self.node_table.drop(name)

    def _handle_namespace(self, before: Json | None, after: Json | None) -> None:
        if has_changed(before, after, "metadata", "labels"):
            self.counts.forget()
            self._retry_pending()

    def _handle_storage(self, before: Json | None, after: Json | None) -> None:
        self._retry_pending()

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        key = key_of(pod)
        node = after["spec"].get("nodeName") if after is not None and not has_pod_ended(after) else None
        held = self._bound.get(key)
        if held is not None and (node is None or before is None or _changes_counts(before, after)):
            self._forget_bound(key)
            held = None
        if node and held is None:
            assert after is not None
            self._note_bound(key, node, after)
        if after is None or node or is_deleting(after) or has_pod_ended(after):
            self.queue.forget(key)
            self._nominated.pop(key, None)
        elif self._is_ours(after) and (before is None or _may_help(before, after)):
            self.queue.push(key, after)
            self.enqueue(PASS)

    def _note_bound(self, key: Key, node: str, pod: Json) -> None:
        info = self.shapes.read_pod(pod)
        self._bound[key] = (node, info)
        self._bound_by_node.setdefault(node, {})[key] = info
        self._priorities[info.demand.priority] += 1
        held = self.node_table.nodes.get(node)
        if held is not None:
            self.node_table.add_pod(held, info)
            self.counts.update_counts(info, held)
        if self.queue.choosy:
            self._retry_pending()

    def _forget_bound(self, key: Key) -> None:
        name, info = self._bound.pop(key)
        del self._bound_by_node[name][key]
        if not self._bound_by_node[name]:
            del self._bound_by_node[name]
        self._priorities[info.demand.priority] -= 1
        if not self._priorities[info.demand.priority]:
            del self._priorities[info.demand.priority]
        node = self.node_table.nodes.get(name)
        if node is not None:
            self.node_table.remove_pod(node, key)
            self.counts.update_counts(info, node, -1)
        self._retry_pending()

    def _is_ours(self, pod: Json) -> bool:
        return pod["spec"].get("schedulerName", self.name) == self.name and not pod["spec"].get("nodeName")

    def _select_namespaces(self, selector: Json) -> frozenset[str]:
        matches = build_label_matcher(selector)
        return frozenset(
            ns["metadata"]["name"] for ns in self.list_objects("namespaces") if matches(labels_of(ns))
        )

    def _retry_pending(self) -> None:
        """Something changed that may help those who wait."""
        self._hopeless.clear()
        if self.queue.has_pending:
            self.enqueue(STIR)

    # Whose turn it is

    def reconcile(self, key: Key) -> None:
        if key != PASS:
            self._requeue_pending(everyone=key == SWEEP)
            if key == SWEEP:
                self.enqueue(SWEEP, SWEEP_EVERY)
            return
        for _ in range(AT_ONCE):
            if not self.queue:
                return
            self._attempt_pod(self.queue.pop())
        self.enqueue(PASS)

    def _requeue_pending(self, *, everyone: bool) -> None:
        ripe, soonest = self.queue.list_ripe(self.clock.monotonic(), everyone=everyone)
        for key in ripe:
            pod = self.find_object("pods", key)
            if pod is not None:
                self.queue.push(key, pod)
        if soonest is not None:
            self.enqueue(STIR, soonest)
        if self.queue:
            self.enqueue(PASS)

    def _attempt_pod(self, key: Key) -> None:
        pod = self.find_object("pods", key)
        if pod is None or not self._is_ours(pod) or is_deleting(pod) or has_pod_ended(pod):
            return
        try:
            self._schedule_pod(key, pod)
        except (ApiError, ConnectionError):
            # The server would not have it; the world is looked at again after the usual pause.
            self.queue.park(key, self.clock.monotonic())
            self.enqueue(STIR)

    # Where it goes

    def _schedule_pod(self, key: Key, pod: Json) -> None:
        if pod["spec"].get("schedulingGates"):
            self._reporter.report_gated(pod)
            return
        info = self.shapes.read_pod(pod)
        try:
            volumes = PodVolumes(info, self, self.node_table)
        except NoVolumes as error:
            text = f"0/{len(self.node_table.nodes)} nodes are available: {error}."
            self._mark_unschedulable(key, info, text if self.node_table.nodes else describe_refusal(0, []))
            return
        cycle = SchedulingCycle(
            info,
            self.node_table,
            self.counts,
            volumes,
            self._list_reserved_shortage if self._has_other_nominated(key) else None,
        )
        known = self._hopeless.get(info.demand.number) if cycle.simple else None
        if known is not None:
            self._mark_unschedulable(key, info, describe_refusal(len(self.node_table.nodes), known))
            return
        fitting = cycle.find_fitting_rows()
        if fitting.any():
            self._bind_pod(key, pod, choose_best_node(info, fitting, self.node_table, self.counts), volumes)
            return
        reasons, preempting = cycle.list_reasons(), self._may_preempt(info)
        if cycle.simple and not preempting:
            self._hopeless[info.demand.number] = reasons
        self._mark_unschedulable(key, info, describe_refusal(len(self.node_table.nodes), reasons))
        if preempting:
            self._preempt_pods(key, info, volumes)

    def _bind_pod(self, key: Key, pod: Json, node: NodeRow, volumes: PodVolumes) -> None:
        """Bind; or, while volumes are still to be made there, wait for them."""
        for resource, (namespace, name), patch in volumes.list_patches(node):
            self.api.patch(resource, name, patch, namespace)
        if volumes.to_make:
            self.queue.park(key, self.clock.monotonic(), at_once=True)
            return
        self.queue.forget(key)
        self.api.bind(key[1], key[0], node.name)
        self._reporter.record_event(
            pod, "Normal", "Scheduled", f"Successfully assigned {key[0]}/{key[1]} to {node.name}"
        )

    def _mark_unschedulable(self, key: Key, pod: PodInfo, text: str) -> None:
        demand = pod.demand
        choosy = bool(demand.affinity or demand.spread)
        self.queue.park(key, self.clock.monotonic(), choosy=choosy)
        self._reporter.report_unschedulable(pod.obj, text)

    def _has_other_nominated(self, key: Key) -> bool:
        return len(self._nominated) > (1 if key in self._nominated else 0)

    def _list_reserved_shortage(self, pod: PodInfo, node: NodeRow) -> list[str]:
        """What a node lacks once room that was made for more important pods is taken off."""
        guests = [
            guest
            for key, (name, guest) in self._nominated.items()
            if name == node.name and key != pod.key and guest.demand.priority >= pod.demand.priority
        ]
        if not guests:
            return []
        for guest in guests:
            self.node_table.add_pod(node, guest)
        try:
            return self.node_table.list_lacking(node, pod.demand)
        finally:
            for guest in guests:
                self.node_table.remove_pod(node, guest.key)

    # Making room

    def _may_preempt(self, pod: PodInfo) -> bool:
        return pod.demand.preempts and any(p < pod.demand.priority for p in self._priorities)

    def _preempt_pods(self, key: Key, pod: PodInfo, volumes: PodVolumes) -> None:
        held = self._nominated.get(key)
        node = self.node_table.nodes.get(held[0]) if held is not None else None
        if node is not None and any(
            p.terminating and p.demand.priority < pod.demand.priority for p in node.pods.values()
        ):
            return  # room is being made already
        suited = self.node_table.find_suited_rows(pod.demand)
        possible = [node for node in self.node_table.nodes.values() if suited[node.row]]
        guards = BudgetGuards(self.list_objects(BUDGETS))

        def fits(pod: PodInfo, node: NodeRow) -> bool:
            cycle = SchedulingCycle(pod, self.node_table, self.counts, volumes, self._list_reserved_shortage)
            return not cycle.list_objections(node)

        found = Preemption(self.node_table, self.counts, fits, guards).find_victims(pod, possible)
        if found is None:
            if self._nominated.pop(key, None) is not None:
                self._reporter.nominate_node(key, "")
            return
        self._nominated[key] = (found.node.name, pod)
        self._reporter.nominate_node(key, found.node.name)
        for victim in found.pods:
            self._reporter.report_preempted(victim.obj, pod.obj)
            meta = victim.obj["metadata"]
            self.api.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"])


def _changes_counts(before: Json, after: Json | None) -> bool:
    """A bound pod's labels, sizes or leaving changed what it counts as."""
    if after is None or is_deleting(before) != is_deleting(after):
        return True
    return has_changed(before, after, "metadata", "labels") or has_changed(before, after, "spec")


def _may_help(before: Json, after: Json) -> bool:
    """A waiting pod itself changed in a way that may help it."""
    return has_changed(before, after, "spec") or has_changed(before, after, "metadata", "labels")
