"""A second opinion on a plan: which of its placements kube-scheduler would refuse.

Pods are placed one at a time, as the scheduler would, in whatever order lets each in: a pod that does
not fit yet is asked again after the others. What is left in the end no order lets in. Preferences,
preemption and queues play no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dovetail.sim.cluster.scheduler.cycle import SchedulingCycle
from dovetail.sim.cluster.scheduler.node_table import NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo, SimPodShapes
from dovetail.sim.cluster.scheduler.topology_counts import SimTopologyCounts
from dovetail.sim.cluster.scheduler.volumes import NoVolumes, PodVolumes
from dovetail.sim.kube.selectors import build_label_matcher

__all__ = ["find_refused_placements"]

Json = dict[str, Any]
Placement = tuple[Json, str]
"""A pod, and the name of the node it is to go to."""

_RESOURCES = {
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "StorageClass": "storageclasses.storage.k8s.io",
    "CSINode": "csinodes.storage.k8s.io",
}


def find_refused_placements(
    nodes: Iterable[Json],
    bound: Iterable[Json],
    placements: Sequence[Placement],
    *,
    namespaces: Iterable[Json] = (),
    storage: Iterable[Json] = (),
) -> list[str]:
    """Placements that would be refused, each as `namespace/pod on node: why`; none means all go.

    All arguments are manifests. `bound` pods say where they are in spec.nodeName; `namespaces` matter to
    namespace selectors, `storage` (claims, volumes, classes, CSINodes) to pods with claims.
    """
    court = _PlanCheck(nodes, namespaces, storage)
    for manifest in bound:
        court.place_pod(court.read_pod(manifest), manifest["spec"]["nodeName"])
    waiting = [(court.read_pod(manifest), node) for manifest, node in placements]
    refusals: dict[tuple[str, str], str] = {}
    while waiting:
        left = []
        for pod, node in waiting:
            why = court.find_objection(pod, node)
            if why is None:
                court.place_pod(pod, node)
            else:
                refusals[pod.key] = f"{pod.namespace}/{pod.key[1]} on {node}: {why}"
                left.append((pod, node))
        if len(left) == len(waiting):
            return [refusals[pod.key] for pod, _ in left]
        waiting = left
    return []


class _PlanCheck:
    """Nodes and what is on them so far."""

    def __init__(self, nodes: Iterable[Json], namespaces: Iterable[Json], storage: Iterable[Json]) -> None:
        self._shapes = SimPodShapes()
        self._board = NodeTable()
        self._namespaces = list(namespaces)
        self._counts = SimTopologyCounts(self._board, self._select_namespaces)
        self._storage: dict[str, dict[tuple[str, str], Json]] = {name: {} for name in _RESOURCES.values()}
        for obj in storage:
            meta = obj["metadata"]
            self._storage[_RESOURCES[obj["kind"]]][meta.get("namespace", ""), meta["name"]] = obj
        for node in nodes:
            self._board.put({"spec": {}, **node})

    def find_object(self, resource: str, key: tuple[str, str]) -> Json | None:
        return self._storage[resource].get(key)

    def list_objects(self, resource: str) -> list[Json]:
        return list(self._storage[resource].values())

    def _select_namespaces(self, selector: Json) -> frozenset[str]:
        matches = build_label_matcher(selector)
        return frozenset(
            ns["metadata"]["name"]
            for ns in self._namespaces
            if matches(
                {
                    "kubernetes.io/metadata.name": ns["metadata"]["name"],
                    **(ns["metadata"].get("labels") or {}),
                }
            )
        )

    def read_pod(self, pod: Json) -> PodInfo:
        if not pod["metadata"].get("namespace"):
            pod = {**pod, "metadata": {**pod["metadata"], "namespace": "default"}}
        return self._shapes.read_pod(pod)

    def place_pod(self, pod: PodInfo, name: str) -> None:
        node = self._board.nodes.get(name)
        if node is not None:
            self._board.add_pod(node, pod)
            self._counts.update_counts(pod, node)

    def find_objection(self, pod: PodInfo, name: str) -> str | None:
        node = self._board.nodes.get(name)
        if node is None:
            return "there is no such node"
        try:
            volumes = PodVolumes(pod, self, self._board)
        except NoVolumes as error:
            return str(error)
        return (
            ", ".join(SchedulingCycle(pod, self._board, self._counts, volumes).list_objections(node)) or None
        )
