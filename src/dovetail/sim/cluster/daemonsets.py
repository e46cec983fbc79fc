"""DaemonSets: one pod on every node that suits them, even on nodes that others avoid."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.fitting import node_selected, untolerated
from dovetail.sim.cluster.objects import (
    controller_of,
    deleting,
    ended,
    key_of,
    owner_reference,
    ready,
    touches,
)
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import delete_quietly, pod_from, template_hash
from dovetail.sim.kube.status import ApiError

__all__ = ["DaemonSets"]

RESOURCE, REVISIONS = "daemonsets.apps", "controllerrevisions.apps"
HASH = "controller-revision-hash"
GENERATION = "pod-template-generation"
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


class DaemonSets(Neighbour):
    """Keeps one pod of every DaemonSet on every node it is meant for."""

    name = "daemonset-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "nodes": self._node_heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        if (
            before is None
            or after is None
            or touches(before, after, "metadata", "labels")
            or touches(before, after, "spec")
        ):
            for daemonset in self.api.list(RESOURCE):
                self.enqueue(key_of(daemonset))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        owner = controller_of(pod) if pod is not None else None
        if pod is not None and owner is not None and owner["kind"] == "DaemonSet":
            self.enqueue((pod["metadata"]["namespace"], owner["name"]))

    def work(self, key: Key) -> None:
        try:
            daemonset = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        mark = self._revision(daemonset)
        by_node: dict[str, list[Json]] = {}
        for pod in self.owned.pods(daemonset["metadata"]["uid"]):
            by_node.setdefault(_target(pod), []).append(pod)
        wanted = [] if deleting(daemonset) else self._nodes(daemonset)
        if not deleting(daemonset):
            self._place(daemonset, mark, wanted, by_node)
            self._roll(daemonset, mark, by_node)
        self._report(daemonset, mark, wanted)

    def _nodes(self, daemonset: Json) -> list[str]:
        """Nodes the pods are meant for. Cordons and pressure do not count; other taints do."""
        spec = self._spec(daemonset, "")
        names = []
        for node in self.api.list("nodes"):
            if node_selected(daemonset["spec"]["template"]["spec"], node) and not untolerated(
                spec, node, ("NoSchedule", "NoExecute")
            ):
                names.append(node["metadata"]["name"])
        return names

    def _spec(self, daemonset: Json, node: str) -> Json:
        spec = dict(daemonset["spec"]["template"]["spec"])
        extra = [*PATIENCE, ON_HOST_NETWORK] if spec.get("hostNetwork") else PATIENCE
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *extra]
        if node:
            spec["affinity"] = _pinned(spec.get("affinity") or {}, node)
        return spec

    def _place(self, daemonset: Json, mark: str, wanted: list[str], by_node: dict[str, list[Json]]) -> None:
        for node in wanted:
            pods = by_node.get(node, [])
            alive = [p for p in pods if not ended(p) and not deleting(p)]
            for pod in pods:
                if ended(pod) and not deleting(pod):
                    delete_quietly(self.api, pod)
            if not alive and not any(deleting(p) for p in pods):
                self._create(daemonset, mark, node)
            oldest_first = sorted(
                alive, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"])
            )
            for extra in oldest_first[1:]:
                delete_quietly(self.api, extra)
        for node, pods in by_node.items():
            if node not in wanted:
                for pod in pods:
                    if not deleting(pod):
                        delete_quietly(self.api, pod)

    def _create(self, daemonset: Json, mark: str, node: str) -> None:
        template = {**daemonset["spec"]["template"], "spec": self._spec(daemonset, node)}
        pod = pod_from(template, daemonset)
        pod["metadata"]["labels"] |= {HASH: mark, GENERATION: str(daemonset["metadata"].get("generation", 1))}
        self.api.create("pods", pod)

    def _roll(self, daemonset: Json, mark: str, by_node: dict[str, list[Json]]) -> None:
        strategy = daemonset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        pods = [p for pods in by_node.values() for p in pods if not deleting(p)]
        old = [p for p in pods if (p["metadata"].get("labels") or {}).get(HASH) != mark]
        down = sum(not ready(p) for p in pods if p not in old) + sum(
            deleting(p) for pods in by_node.values() for p in pods
        )
        allowed = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        allowed = (
            allowed
            if isinstance(allowed, int)
            else max(1, -(-len(by_node) * int(allowed.rstrip("%")) // 100))
        )
        for pod in sorted(old, key=lambda p: (ready(p), p["metadata"]["name"])):
            if ready(pod) and down >= allowed:
                return
            delete_quietly(self.api, pod)
            down += 1

    def _revision(self, daemonset: Json) -> str:
        """The template's ControllerRevision, made when first needed; its hash marks the pods."""
        data = {"spec": {"template": daemonset["spec"]["template"]}}
        mark = template_hash(msgspec.json.encode(data, order="deterministic"))
        meta = daemonset["metadata"]
        name = f"{meta['name']}-{mark}"
        known = [
            r
            for r in self.api.list(REVISIONS, meta["namespace"])
            if (owner := controller_of(r)) is not None and owner["uid"] == meta["uid"]
        ]
        if not any(r["metadata"]["name"] == name for r in known) and not deleting(daemonset):
            body = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "labels": {**(meta.get("labels") or {}), HASH: mark},
                    "ownerReferences": [owner_reference(daemonset)],
                },
                "data": data,
                "revision": max((r["revision"] for r in known), default=0) + 1,
            }
            self.api.create(REVISIONS, body)
        return mark

    def _report(self, daemonset: Json, mark: str, wanted: list[str]) -> None:
        pods = [p for p in self.owned.pods(daemonset["metadata"]["uid"]) if not deleting(p) and not ended(p)]
        on = {_target(p) for p in pods}
        up = sum(ready(p) for p in pods)
        status: Json = {
            "currentNumberScheduled": len(on & set(wanted)),
            "numberMisscheduled": len(on - set(wanted)),
            "desiredNumberScheduled": len(wanted),
            "numberReady": up,
            "updatedNumberScheduled": sum(
                (p["metadata"].get("labels") or {}).get(HASH) == mark for p in pods
            ),
            "numberAvailable": up,
            "numberUnavailable": len(wanted) - up,
            "observedGeneration": daemonset["metadata"].get("generation", 1),
        }
        required = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        status = {k: v for k, v in status.items() if v or k in (*required, "observedGeneration")}
        if status != daemonset.get("status"):
            self.api.update(RESOURCE, {**daemonset, "status": status}, "status")


def _pinned(affinity: Json, node: str) -> Json:
    """The affinity, narrowed to one node by name."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
    node_affinity[key] = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
    return {**affinity, "nodeAffinity": node_affinity}


def _target(pod: Json) -> str:
    """The node a daemon pod is on, or meant for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""
