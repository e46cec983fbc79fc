"""Where a pod's volumes let it go: zones of bound volumes, topologies of those to come, limits per node."""

from __future__ import annotations

from typing import Any, Protocol

from dovetail.api.quantity import Quantity
from dovetail.sim.cluster.node_matching import selector_term_matches
from dovetail.sim.cluster.scheduler.node_table import NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo
from dovetail.sim.kube.selectors import build_label_matcher

__all__ = [
    "SELECTED",
    "NoVolumes",
    "ObjectReader",
    "PodVolumes",
    "build_claim_patch",
    "build_claim_reference",
    "is_free_for",
    "list_claim_names",
]

Json = dict[str, Any]
Key = tuple[str, str]
CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, CSI_NODES = "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"
SELECTED = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
CONFLICT = "node(s) had volume node affinity conflict"
NO_ZONE = "node(s) had no available volume zone"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
TAKEN = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
FULL = "node(s) exceed max volume count"
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class NoVolumes(Exception):
    """The pod's volumes rule out every node for now; the text says why."""


class ObjectReader(Protocol):
    """Where claims, volumes and classes are looked up."""

    def find_object(self, resource: str, key: Key) -> Json | None:
        """One object, or None."""

    def list_objects(self, resource: str) -> list[Json]:
        """All objects of a kind."""


class PodVolumes:
    """The volumes of one pod, in one attempt."""

    def __init__(self, pod: PodInfo, papers: ObjectReader, table: NodeTable) -> None:
        self._reader = papers
        self._board = table
        self.bound: list[Json] = []
        self.to_make: list[tuple[Json, Json]] = []
        self.taken = False
        if pod.demand.claims:
            for name in list_claim_names(pod.obj):
                self._read_claim(name, pod)

    def _read_claim(self, name: str, pod: PodInfo) -> None:
        claim = self._reader.find_object(CLAIMS, (pod.namespace, name))
        if claim is None:
            raise NoVolumes(f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            raise NoVolumes(f'persistentvolumeclaim "{name}" is being deleted')
        if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
            self.taken = self.taken or self._is_used_elsewhere(name, pod)
        if claim["spec"].get("volumeName") and (claim.get("status") or {}).get("phase") == "Bound":
            volume = self._reader.find_object(VOLUMES, ("", claim["spec"]["volumeName"]))
            if volume is None:
                raise NoVolumes(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
            self.bound.append(volume)
            return
        storage = self._reader.find_object(CLASSES, ("", claim["spec"].get("storageClassName") or ""))
        if storage is None or storage.get("volumeBindingMode", "Immediate") == "Immediate":
            raise NoVolumes("pod has unbound immediate PersistentVolumeClaims")
        self.to_make.append((claim, storage))

    def _is_used_elsewhere(self, name: str, pod: PodInfo) -> bool:
        return any(
            other.demand.claims and other.key != pod.key and name in list_claim_names(other.obj)
            for node in self._board.nodes.values()
            for other in node.pods.values()
            if other.namespace == pod.namespace
        )

    @property
    def empty(self) -> bool:
        return not self.bound and not self.to_make

    def find_refusal(self, node: NodeRow) -> str | None:
        """Why the volumes will not follow the pod to this node."""
        if self.taken:
            return TAKEN
        if self._over_limit(node):
            return FULL
        for volume in self.bound:
            if not _is_reachable(volume, node):
                return CONFLICT
        for claim, storage in self.to_make:
            if not self._can_make(claim, storage, node):
                return NO_VOLUME
        return NO_ZONE if any(_is_in_other_zone(volume, node) for volume in self.bound) else None

    def _can_make(self, claim: Json, storage: Json, node: NodeRow) -> bool:
        if self._find_ready_volume(claim, node) is not None:
            return True
        if storage["provisioner"] == NO_PROVISIONER:
            return False
        chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if chosen and chosen != node.name:
            return False
        topologies = storage.get("allowedTopologies")
        return not topologies or any(_topology_allows(term, node) for term in topologies)

    def _find_ready_volume(self, claim: Json, node: NodeRow) -> Json | None:
        """A free volume that a person made for claims like this one, within the node's reach."""
        for volume in self._reader.list_objects(VOLUMES):
            if (
                not volume["spec"].get("claimRef")
                and is_free_for(volume, claim)
                and _is_reachable(volume, node)
            ):
                return volume
        return None

    def _over_limit(self, node: NodeRow) -> bool:
        csi_node = self._reader.find_object(CSI_NODES, ("", node.name))
        limits = {
            driver["name"]: driver["allocatable"]["count"]
            for driver in ((csi_node or {}).get("spec") or {}).get("drivers") or ()
            if (driver.get("allocatable") or {}).get("count") is not None
        }
        if not limits or self.empty:
            return False
        attached = self._list_attached(node)
        before = {driver: len(handles) for driver, handles in attached.items()}
        for volume in self.bound:
            _add_attached(attached, volume)
        for claim, storage in self.to_make:
            attached.setdefault(storage["provisioner"], set()).add(claim["metadata"]["uid"])
        return any(
            len(handles) > limits.get(driver, len(handles)) and len(handles) > before.get(driver, 0)
            for driver, handles in attached.items()
        )

    def _list_attached(self, node: NodeRow) -> dict[str, set[str]]:
        """Volumes in use on a node, by driver."""
        attached: dict[str, set[str]] = {}
        for pod in node.pods.values():
            for name in list_claim_names(pod.obj) if pod.demand.claims else ():
                claim = self._reader.find_object(CLAIMS, (pod.namespace, name)) or {"spec": {}}
                volume = self._reader.find_object(VOLUMES, ("", claim["spec"].get("volumeName") or ""))
                if volume is not None:
                    _add_attached(attached, volume)
        return attached

    def list_patches(self, node: NodeRow) -> list[tuple[str, Key, Json]]:
        """Patches that must be made before the pod can be bound there: (resource, key, merge patch)."""
        found = []
        for claim, storage in self.to_make:
            meta, volume = claim["metadata"], self._find_ready_volume(claim, node)
            if volume is not None:
                found.append((VOLUMES, ("", volume["metadata"]["name"]), build_claim_patch(claim)))
            elif (meta.get("annotations") or {}).get(SELECTED) != node.name:
                driver = storage["provisioner"]
                marks = {
                    SELECTED: node.name,
                    "volume.kubernetes.io/storage-provisioner": driver,
                    "volume.beta.kubernetes.io/storage-provisioner": driver,
                }
                patch = {"metadata": {"annotations": marks}}
                found.append((CLAIMS, (meta["namespace"], meta["name"]), patch))
        return found


def list_claim_names(pod: Json) -> list[str]:
    """The claims a pod mounts, those of its ephemeral volumes included."""
    names = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in volume:
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def build_claim_reference(claim: Json) -> Json:
    """How a volume names the claim it belongs to."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def build_claim_patch(claim: Json) -> Json:
    """The patch that gives a volume to a claim."""
    marks = {"pv.kubernetes.io/bound-by-controller": "yes"}
    return {"metadata": {"annotations": marks}, "spec": {"claimRef": build_claim_reference(claim)}}


def is_free_for(volume: Json, claim: Json) -> bool:
    """Whether an unclaimed volume is what a claim asks for: class, modes, size and labels."""
    have, asked = volume["spec"], claim["spec"]
    if (have.get("storageClassName") or "") != (asked.get("storageClassName") or ""):
        return False
    if not set(asked.get("accessModes") or ()) <= set(have.get("accessModes") or ()):
        return False
    if have.get("volumeMode", "Filesystem") != asked.get("volumeMode", "Filesystem"):
        return False
    wanted = ((asked.get("resources") or {}).get("requests") or {}).get("storage", "0")
    if Quantity.parse((have.get("capacity") or {}).get("storage", "0")).value < Quantity.parse(wanted).value:
        return False
    selector = asked.get("selector")
    return selector is None or build_label_matcher(selector)(volume["metadata"].get("labels") or {})


def _add_attached(attached: dict[str, set[str]], volume: Json) -> None:
    csi = volume["spec"].get("csi")
    if csi:
        attached.setdefault(csi["driver"], set()).add(csi.get("volumeHandle", volume["metadata"]["name"]))


def _is_reachable(volume: Json, node: NodeRow) -> bool:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    return not required or any(selector_term_matches(term, node.obj) for term in required)


def _is_in_other_zone(volume: Json, node: NodeRow) -> bool:
    """The volume's labels name a zone or region the node is not in; a node without any is anywhere."""
    labels = volume["metadata"].get("labels") or {}
    if not any(key in node.labels for key in ZONE_LABELS):
        return False
    return any(node.labels.get(key) not in labels[key].split("__") for key in ZONE_LABELS if key in labels)


def _topology_allows(term: Json, node: NodeRow) -> bool:
    return all(
        node.labels.get(expression["key"]) in (expression.get("values") or ())
        for expression in term.get("matchLabelExpressions") or ()
    )
