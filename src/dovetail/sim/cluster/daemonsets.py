"""DaemonSets: one pod on every node that suits them, even on nodes that others avoid."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dovetail.sim.cluster.base import (
    CommitHandler,
    Json,
    Key,
    SimController,
    SimControllerManager,
    StatusReporter,
)
from dovetail.sim.cluster.node_matching import find_untolerated_taint, is_node_selected
from dovetail.sim.cluster.objects import (
    has_changed,
    has_pod_ended,
    is_deleting,
    is_pod_ready,
    key_of,
    labels_of,
    needs_reconcile,
)
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.cluster.workload_pods import (
    HASH,
    RevisionHistory,
    build_pod,
    count_available,
    delete_quietly,
)

__all__ = ["DaemonSetController"]

RESOURCE = "daemonsets.apps"
GENERATION = "pod-template-generation"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PATIENCE = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
]
ON_HOST_NETWORK = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}
# A daemon pod that fails is replaced after a pause that doubles, as the real one's back-off does.
FIRST_PAUSE, LAST_PAUSE = 1.0, 900.0


class DaemonSetController(SimController):
    """Keeps one pod of every DaemonSet on every node it is meant for."""

    name = "daemonset-controller"

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self.owned = owned
        self._revisions = RevisionHistory(self)
        self._reporter = StatusReporter(manager, self.name, self._report_status)
        self._failures: dict[tuple[Key, str], int] = {}
        self._not_before: dict[tuple[Key, str], float] = {}
        owned.subscribe_owner("DaemonSet", self.enqueue)

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_daemonset, "nodes": self._handle_node}

    def _handle_daemonset(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._forget_daemonset(key_of(before))
        elif needs_reconcile(before, after):
            self.enqueue(key_of(after))

    def _forget_daemonset(self, key: Key) -> None:
        self._revisions.forget(key)
        for slot in [slot for slot in self._failures if slot[0] == key]:
            del self._failures[slot]
            self._not_before.pop(slot, None)

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        moved = has_changed(before, after, "metadata", "labels") or has_changed(before, after, "spec")
        if before is None or after is None or moved:
            for daemonset in self.list_objects(RESOURCE):
                self.enqueue(key_of(daemonset))

    def reconcile(self, key: Key) -> None:
        daemonset = self.find_object(RESOURCE, key)
        if daemonset is None:
            return
        mark = self._revisions.get_template_hash(daemonset)
        if not is_deleting(daemonset):
            meant, allowed = self._choose_nodes(daemonset)
            self._place_pods(key, daemonset, mark, meant, allowed)
            self._roll_update(daemonset, mark, meant)
        self._reporter.enqueue(key)

    def _group_by_node(self, daemonset: Json) -> dict[str, list[Json]]:
        by_node: dict[str, list[Json]] = {}
        for pod in self.owned.list_pods(daemonset["metadata"]["uid"]):
            by_node.setdefault(_find_target_node(pod), []).append(pod)
        return by_node

    def _choose_nodes(self, daemonset: Json) -> tuple[list[str], set[str]]:
        """Nodes that get a pod, and nodes where a pod that is there may stay.

        Cordons and pressure do not count, other taints do; but a taint that only keeps new pods away
        does not drive a daemon's pod out.
        """
        template = daemonset["spec"]["template"]["spec"]
        tolerant = {"tolerations": _add_tolerations(template)}
        meant, allowed = [], set()
        for node in self.list_objects("nodes"):
            if is_node_selected(template, node) and not find_untolerated_taint(
                tolerant, node, ("NoExecute",)
            ):
                allowed.add(node["metadata"]["name"])
                if not find_untolerated_taint(tolerant, node, ("NoSchedule",)):
                    meant.append(node["metadata"]["name"])
        return meant, allowed

    def _place_pods(self, key: Key, daemonset: Json, mark: str, meant: list[str], allowed: set[str]) -> None:
        by_node = self._group_by_node(daemonset)
        for node in meant:
            pods = by_node.get(node, [])
            for pod in pods:
                if (pod.get("status") or {}).get("phase") == "Failed" and not is_deleting(pod):
                    self._note_failure(key, node)
                    delete_quietly(self.api, pod)
            if not any(not has_pod_ended(p) or is_deleting(p) for p in pods) and self._may_retry(key, node):
                self._create_pod(daemonset, mark, node)
            self._delete_duplicates(pods, mark)
        for node, pods in by_node.items():
            if node not in allowed:
                for pod in pods:
                    if not is_deleting(pod):
                        delete_quietly(self.api, pod)

    def _note_failure(self, key: Key, node: str) -> None:
        failures = self._failures[key, node] = self._failures.get((key, node), 0) + 1
        pause = min(FIRST_PAUSE * 2 ** (failures - 1), LAST_PAUSE)
        self._not_before[key, node] = self.clock.monotonic() + pause

    def _may_retry(self, key: Key, node: str) -> bool:
        left = self._not_before.get((key, node), 0.0) - self.clock.monotonic()
        if left > 1e-9:
            self.enqueue(key, left)
        return left <= 1e-9

    def _delete_duplicates(self, pods: list[Json], mark: str) -> None:
        """Two pods on one node are one too many; the older stays."""
        alive = [p for p in pods if not has_pod_ended(p) and not is_deleting(p)]
        by_age = sorted(alive, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]))
        for extra in by_age[1:]:
            delete_quietly(self.api, extra)

    def _create_pod(self, daemonset: Json, mark: str, node: str) -> None:
        spec = dict(daemonset["spec"]["template"]["spec"])
        spec["tolerations"] = _add_tolerations(spec)
        spec["affinity"] = _pin_to_node(spec.get("affinity") or {}, node)
        pod = build_pod({**daemonset["spec"]["template"], "spec": spec}, daemonset)
        pod["metadata"]["labels"] |= {HASH: mark, GENERATION: str(daemonset["metadata"].get("generation", 1))}
        self.api.create("pods", pod)

    def _roll_update(self, daemonset: Json, mark: str, meant: list[str]) -> None:
        """Pods of older templates go, as many at a time as may be unavailable; broken ones go at once."""
        strategy = daemonset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        by_node, down, broken, candidates = self._group_by_node(daemonset), 0, [], []
        for node in meant:
            pods = [p for p in by_node.get(node, ()) if not has_pod_ended(p)]
            alive = [p for p in pods if not is_deleting(p)]
            up = [p for p in alive if is_pod_ready(p)]
            old = [p for p in alive if labels_of(p).get(HASH) != mark]
            if not up:
                down += 1
                broken += old
            else:
                candidates += old
        most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        if not isinstance(most, int):
            most = max(1, math.ceil(len(meant) * int(most.rstrip("%")) / 100))
        for pod in broken + candidates[: max(most - down, 0)]:
            delete_quietly(self.api, pod)

    def _report_status(self, key: Key) -> None:
        daemonset = self.find_object(RESOURCE, key)
        if daemonset is None:
            return
        mark = self._revisions.get_template_hash(daemonset)
        meant = set() if is_deleting(daemonset) else set(self._choose_nodes(daemonset)[0])
        alive = [
            p
            for p in self.owned.list_pods(daemonset["metadata"]["uid"])
            if not is_deleting(p) and not has_pod_ended(p)
        ]
        mine = [p for p in alive if _find_target_node(p) in meant]
        up, soonest = count_available(mine, daemonset["spec"].get("minReadySeconds", 0), self.clock.now())
        if soonest:
            self._reporter.enqueue(key, soonest)
        updated = sum(labels_of(p).get(HASH) == mark for p in mine)
        status: Json = {
            "currentNumberScheduled": len({_find_target_node(p) for p in mine}),
            "numberMisscheduled": len({_find_target_node(p) for p in alive} - meant),
            "desiredNumberScheduled": len(meant),
            "numberReady": sum(map(is_pod_ready, mine)),
            "observedGeneration": daemonset["metadata"].get("generation", 1),
        }
        extra = {
            "updatedNumberScheduled": updated,
            "numberAvailable": up,
            "numberUnavailable": len(meant) - up,
        }
        status |= {name: count for name, count in extra.items() if count}
        if status != daemonset.get("status"):
            self.api.report_status(RESOURCE, daemonset, status)
        if updated == len(mine):
            self._revisions.trim_history(daemonset)


def _add_tolerations(spec: Json) -> list[Json]:
    extra = [*PATIENCE, ON_HOST_NETWORK] if spec.get("hostNetwork") else PATIENCE
    have = spec.get("tolerations") or []
    return [*have, *(each for each in extra if each not in have)]


def _pin_to_node(affinity: Json, node: str) -> Json:
    """The affinity, narrowed to one node by name: whatever was asked of nodes has been judged already."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    node_affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {**affinity, "nodeAffinity": node_affinity}


def _find_target_node(pod: Json) -> str:
    """The node a daemon pod is on, or meant for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""
