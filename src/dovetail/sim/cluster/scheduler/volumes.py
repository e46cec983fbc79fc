"""Where a pod's volumes let it go: zones of bound volumes, topologies of those to come, limits per node."""

from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.fitting import selector_term_matches
from dovetail.sim.cluster.scheduler.board import Node
from dovetail.sim.cluster.scheduler.pods import PodInfo
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError

__all__ = ["NoVolumes", "Volumes", "claim_names"]

Json = dict[str, Any]
CLASSES, CSI_NODES = "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"
CONFLICT = "node(s) had volume node affinity conflict"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
TAKEN = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
FULL = "node(s) exceed max volume count"


class NoVolumes(Exception):
    """The pod's volumes rule out every node for now; the text says why."""


class Volumes:
    """The volumes of one pod, in one attempt."""

    def __init__(self, pod: PodInfo, api: LocalApi) -> None:
        self.api = api
        self.bound: list[Json] = []
        self.to_make: list[tuple[Json, Json]] = []
        self._users = 0
        for name in claim_names(pod.obj):
            self._take(name, pod)

    def _take(self, name: str, pod: PodInfo) -> None:
        claim = self._find("persistentvolumeclaims", name, pod.namespace)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            raise NoVolumes(f'persistentvolumeclaim "{name}" not found')
        if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
            self._alone(name, pod)
        if claim["spec"].get("volumeName") and (claim.get("status") or {}).get("phase") == "Bound":
            volume = self._find("persistentvolumes", claim["spec"]["volumeName"])
            if volume is None:
                raise NoVolumes(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
            self.bound.append(volume)
            return
        storage = self._find(CLASSES, claim["spec"].get("storageClassName") or "")
        if storage is None or storage.get("volumeBindingMode", "Immediate") == "Immediate":
            raise NoVolumes("pod has unbound immediate PersistentVolumeClaims")
        self.to_make.append((claim, storage))

    def _alone(self, name: str, pod: PodInfo) -> None:
        for other in self.api.list("pods", pod.namespace):
            elsewhere = other["metadata"]["name"] != pod.key[1] and other["spec"].get("nodeName")
            if elsewhere and name in claim_names(other):
                raise NoVolumes(TAKEN)

    def _find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        try:
            return self.api.get(resource, name, namespace) if name else None
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    @property
    def empty(self) -> bool:
        return not self.bound and not self.to_make

    def verdict(self, node: Node) -> str | None:
        """Why the volumes will not follow the pod to this node."""
        for volume in self.bound:
            required = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get(
                "nodeSelectorTerms"
            )
            if required and not any(selector_term_matches(term, node.obj) for term in required):
                return CONFLICT
        for claim, storage in self.to_make:
            chosen = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
            if chosen and chosen != node.name:
                return NO_VOLUME
            topologies = storage.get("allowedTopologies")
            if topologies and not any(_allows(term, node) for term in topologies):
                return NO_VOLUME
        return FULL if self._over_limit(node) else None

    def _over_limit(self, node: Node) -> bool:
        csi_node = self._find(CSI_NODES, node.name)
        limits = {
            driver["name"]: driver["allocatable"]["count"]
            for driver in ((csi_node or {}).get("spec") or {}).get("drivers") or ()
            if (driver.get("allocatable") or {}).get("count") is not None
        }
        if not limits:
            return False
        attached: dict[str, set[str]] = {}
        for pod in node.pods.values():
            for name in claim_names(pod.obj):
                self._file(attached, name, pod.namespace)
        before = {driver: len(names) for driver, names in attached.items()}
        for volume in self.bound:
            csi = volume["spec"].get("csi") or {}
            attached.setdefault(csi.get("driver", ""), set()).add(
                csi.get("volumeHandle", volume["metadata"]["name"])
            )
        for claim, storage in self.to_make:
            attached.setdefault(storage["provisioner"], set()).add(claim["metadata"]["uid"])
        return any(
            len(names) > limits.get(driver, len(names)) and len(names) > before.get(driver, 0)
            for driver, names in attached.items()
        )

    def _file(self, attached: dict[str, set[str]], name: str, namespace: str) -> None:
        claim = self._find("persistentvolumeclaims", name, namespace)
        if claim is None:
            return
        volume = self._find("persistentvolumes", claim["spec"].get("volumeName") or "")
        if volume is not None:
            csi = volume["spec"].get("csi") or {}
            attached.setdefault(csi.get("driver", ""), set()).add(
                csi.get("volumeHandle", volume["metadata"]["name"])
            )

    def select(self, node: str) -> bool:
        """Tell the provisioner of claims still to be made where the pod goes; true when all are ready."""
        for claim, storage in self.to_make:
            notes = claim["metadata"].get("annotations") or {}
            if notes.get("volume.kubernetes.io/selected-node") != node:
                driver = storage["provisioner"]
                marks = {
                    "volume.kubernetes.io/selected-node": node,
                    "volume.kubernetes.io/storage-provisioner": driver,
                    "volume.beta.kubernetes.io/storage-provisioner": driver,
                }
                meta = claim["metadata"]
                patch = {"metadata": {"annotations": marks}}
                self.api.patch("persistentvolumeclaims", meta["name"], patch, meta["namespace"])
        return not self.to_make


def claim_names(pod: Json) -> list[str]:
    """The claims a pod mounts, those of its ephemeral volumes included."""
    names = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in volume:
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def _allows(term: Json, node: Node) -> bool:
    return all(
        node.labels.get(expression["key"]) in (expression.get("values") or ())
        for expression in term.get("matchLabelExpressions") or ()
    )
