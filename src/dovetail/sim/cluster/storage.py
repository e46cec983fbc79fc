"""Storage: claims get volumes where their pods go, and volumes are attached and detached in time."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import deleting, ended
from dovetail.sim.cluster.scheduler.volumes import claim_names
from dovetail.sim.kube.status import ApiError

__all__ = ["Attacher", "Provisioner"]

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, ATTACHMENTS = "storageclasses.storage.k8s.io", "volumeattachments.storage.k8s.io"
SELECTED = "volume.kubernetes.io/selected-node"
ZONE = "topology.kubernetes.io/zone"
DETACH_SECONDS = 6.0


class Provisioner(Neighbour):
    """Makes a volume for each claim, at once or where its first pod goes; also pods' ephemeral claims."""

    name = "persistentvolume-binder"

    def hears(self) -> Mapping[str, Heard]:
        return {CLAIMS: self._heard, "pods": self._pod_heard, VOLUMES: self._volume_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        claim = after or before
        assert claim is not None
        if after is not None and (after.get("status") or {}).get("phase") != "Bound":
            self.enqueue(("claim/" + after["metadata"]["namespace"], after["metadata"]["name"]))
        elif after is None and claim["spec"].get("volumeName"):
            self.enqueue(("volume", claim["spec"]["volumeName"]))

    def _volume_heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None and not after["spec"].get("claimRef"):
            for claim in self.api.list(CLAIMS):
                if (claim.get("status") or {}).get("phase") != "Bound":
                    self.enqueue(("claim/" + claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        if (
            before is None
            and after is not None
            and any("ephemeral" in v for v in after["spec"].get("volumes") or ())
        ):
            self.enqueue(("pod/" + after["metadata"]["namespace"], after["metadata"]["name"]))

    def work(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        try:
            if what == "claim":
                self._bind(self.api.get(CLAIMS, key[1], namespace))
            elif what == "pod":
                self._make_ephemeral(self.api.get("pods", key[1], namespace))
            else:
                self._reclaim(self.api.get(VOLUMES, key[1]))
        except ApiError as error:
            if error.code != 404:
                raise

    def _make_ephemeral(self, pod: Json) -> None:
        meta = pod["metadata"]
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if not template:
                continue
            owner = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
            metadata = {
                **(template.get("metadata") or {}),
                "name": f"{meta['name']}-{volume['name']}",
                "namespace": meta["namespace"],
                "ownerReferences": [owner | {"blockOwnerDeletion": True}],
            }
            body = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": template["spec"],
            }
            try:
                self.api.create(CLAIMS, body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    def _bind(self, claim: Json) -> None:
        if deleting(claim) or (claim.get("status") or {}).get("phase") == "Bound":
            return
        volume = self._matching(claim)
        if volume is None:
            storage = self._storage(claim)
            if storage is None:
                return
            node = (claim["metadata"].get("annotations") or {}).get(SELECTED)
            if storage.get("volumeBindingMode", "Immediate") == "WaitForFirstConsumer" and not node:
                return
            volume = self.api.create(VOLUMES, self._volume(claim, storage, node))
        self._join(claim, volume)

    def _storage(self, claim: Json) -> Json | None:
        name = claim["spec"].get("storageClassName")
        if not name:
            return None
        try:
            return self.api.get(CLASSES, name)
        except ApiError:
            return None

    def _matching(self, claim: Json) -> Json | None:
        """A volume a person made beforehand: the one named, or a free one of the class."""
        wanted, meta = claim["spec"].get("volumeName"), claim["metadata"]
        for volume in self.api.list(VOLUMES):
            reference = volume["spec"].get("claimRef") or {}
            if wanted:
                if volume["metadata"]["name"] == wanted:
                    return volume
            elif reference.get("uid") == meta["uid"] or _reserved_for(reference, meta):
                return volume
        return None

    def _volume(self, claim: Json, storage: Json, node: str | None) -> Json:
        meta, spec = claim["metadata"], claim["spec"]
        name = f"pvc-{meta['uid']}"
        body: Json = {
            "metadata": {
                "name": name,
                "annotations": {"pv.kubernetes.io/provisioned-by": storage["provisioner"]},
            },
            "spec": {
                "capacity": ((spec.get("resources") or {}).get("requests") or {}),
                "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
                "storageClassName": storage["metadata"]["name"],
                "claimRef": _reference(claim),
                "csi": {"driver": storage["provisioner"], "volumeHandle": f"vol-{meta['uid']}"},
            },
        }
        terms = self._topology(storage, node)
        if terms:
            body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
        return body

    def _topology(self, storage: Json, node: str | None) -> list[Json]:
        """The zone of the node the first pod goes to; else the first one allowed; else the first there is."""
        allowed = [
            value
            for term in storage.get("allowedTopologies") or ()
            for expression in term.get("matchLabelExpressions") or ()
            if expression["key"] == ZONE
            for value in expression["values"]
        ]
        zone = ""
        if node:
            labels = self.api.get("nodes", node)["metadata"].get("labels") or {}
            zone = labels.get(ZONE, "")
        elif allowed:
            zone = sorted(allowed)[0]
        else:
            zones = {(n["metadata"].get("labels") or {}).get(ZONE, "") for n in self.api.list("nodes")} - {""}
            zone = min(zones, default="")
        return [{"key": ZONE, "operator": "In", "values": [zone]}] if zone else []

    def _join(self, claim: Json, volume: Json) -> None:
        name, meta = volume["metadata"]["name"], claim["metadata"]
        if (volume["spec"].get("claimRef") or {}).get("uid") != meta["uid"]:
            self.api.patch(VOLUMES, name, {"spec": {"claimRef": _reference(claim)}})
        self.api.patch(VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status")
        marks = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        patch = {"metadata": {"annotations": marks}, "spec": {"volumeName": name}}
        self.api.patch(CLAIMS, meta["name"], patch, meta["namespace"])
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes") or [],
            "capacity": volume["spec"].get("capacity") or {},
        }
        self.api.patch(CLAIMS, meta["name"], {"status": status}, meta["namespace"], subresource="status")

    def _reclaim(self, volume: Json) -> None:
        if volume["spec"].get("persistentVolumeReclaimPolicy", "Delete") == "Delete":
            self.api.delete(VOLUMES, volume["metadata"]["name"])
        else:
            self.api.patch(
                VOLUMES, volume["metadata"]["name"], {"status": {"phase": "Released"}}, subresource="status"
            )


def _reserved_for(reference: Json, claim: Json) -> bool:
    """A volume may be kept for a claim by name before the claim exists."""
    named = (reference.get("namespace"), reference.get("name")) == (claim["namespace"], claim["name"])
    return named and not reference.get("uid")


def _reference(claim: Json) -> Json:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


class Attacher(Neighbour):
    """Attaches the CSI volumes of pods to their nodes, and detaches them seconds after the last is gone."""

    name = "attachdetach-controller"

    def hears(self) -> Mapping[str, Heard]:
        return {"pods": self._pod_heard}

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        node = pod["spec"].get("nodeName")
        if not node or not claim_names(pod):
            return
        arrived = (
            after is not None and not ended(after) and (before is None or not before["spec"].get("nodeName"))
        )
        if arrived:
            self.enqueue(("attach/" + pod["metadata"]["namespace"], pod["metadata"]["name"]))
        elif after is None or ended(after):
            self.enqueue(("detach", node), DETACH_SECONDS)

    def work(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        if what == "detach":
            self._detach(key[1])
            return
        try:
            self._attach(self.api.get("pods", key[1], namespace))
        except ApiError as error:
            if error.code != 404:
                raise

    def _attach(self, pod: Json) -> None:
        for volume, driver in self._volumes(pod):
            name = f"csi-{pod['spec']['nodeName']}-{volume}"
            spec = {
                "attacher": driver,
                "nodeName": pod["spec"]["nodeName"],
                "source": {"persistentVolumeName": volume},
            }
            try:
                self.api.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
                self.api.patch(ATTACHMENTS, name, {"status": {"attached": True}}, subresource="status")
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    def _volumes(self, pod: Json) -> list[tuple[str, str]]:
        found = []
        for name in claim_names(pod):
            try:
                claim = self.api.get(CLAIMS, name, pod["metadata"]["namespace"])
                volume = self.api.get(VOLUMES, claim["spec"].get("volumeName") or "")
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            if "csi" in volume["spec"]:
                found.append((volume["metadata"]["name"], volume["spec"]["csi"]["driver"]))
        return found

    def _detach(self, node: str) -> None:
        pods = self.api.list("pods", field_selector=f"spec.nodeName={node}")
        wanted = {volume for pod in pods if not ended(pod) for volume, _ in self._volumes(pod)}
        for attachment in self.api.list(ATTACHMENTS):
            spec = attachment["spec"]
            if spec["nodeName"] == node and spec["source"].get("persistentVolumeName") not in wanted:
                try:
                    self.api.delete(ATTACHMENTS, attachment["metadata"]["name"])
                except ApiError as error:
                    if error.code != 404:
                        raise
