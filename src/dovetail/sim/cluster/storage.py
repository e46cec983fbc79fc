"""Storage: claims get volumes, at once or where their first pod goes; nothing in use is taken away."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api.quantity import Quantity
from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import has_pod_ended, is_deleting
from dovetail.sim.cluster.scheduler.volumes import (
    SELECTED,
    build_claim_patch,
    build_claim_reference,
    is_free_for,
    list_claim_names,
)
from dovetail.sim.kube.status import ApiError

__all__ = ["StorageProtection", "VolumeProvisioner"]

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
CLAIM_GUARD, VOLUME_GUARD = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
ZONE = "topology.kubernetes.io/zone"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumeProvisioner(SimController):
    """Makes a volume for each claim, at once or where its first pod goes; also pods' ephemeral claims."""

    name = "persistentvolume-binder"

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {
            CLAIMS: self._handle_claim,
            "pods": self._handle_pod,
            VOLUMES: self._handle_volume,
            CLASSES: self._handle_class,
        }

    def _handle_claim(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            if before is not None and before["spec"].get("volumeName"):
                self.enqueue(("volume", before["spec"]["volumeName"]))
        elif (after.get("status") or {}).get("phase") != "Bound":
            self.enqueue(("claim/" + after["metadata"]["namespace"], after["metadata"]["name"]))

    def _handle_volume(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        if (after.get("status") or {}).get("phase") != "Bound":
            self.enqueue(("volume", after["metadata"]["name"]))
            self._retry_claims()

    def _handle_class(self, before: Json | None, after: Json | None) -> None:
        self._retry_claims()

    def _retry_claims(self) -> None:
        for claim in self.list_objects(CLAIMS):
            if (claim.get("status") or {}).get("phase") != "Bound":
                self.enqueue(("claim/" + claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        if before is None and after is not None:
            volumes = after["spec"].get("volumes")
            if volumes and any("ephemeral" in v for v in volumes):
                self.enqueue(("pod/" + after["metadata"]["namespace"], after["metadata"]["name"]))

    def reconcile(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        if what == "claim":
            if (claim := self.find_object(CLAIMS, (namespace, key[1]))) is not None:
                self._bind_claim(claim)
        elif what == "pod":
            if (pod := self.find_object("pods", (namespace, key[1]))) is not None:
                self._create_ephemeral_claims(pod)
        elif (volume := self.find_object(VOLUMES, ("", key[1]))) is not None:
            self._release_volume(volume)

    def _create_ephemeral_claims(self, pod: Json) -> None:
        meta = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        owner |= {"controller": True, "blockOwnerDeletion": True}
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            name = f"{meta['name']}-{volume['name']}"
            if not template or self.find_object(CLAIMS, (meta["namespace"], name)) is not None:
                continue
            metadata = {
                **(template.get("metadata") or {}),
                "name": name,
                "namespace": meta["namespace"],
                "ownerReferences": [owner],
            }
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
            self.api.create(CLAIMS, {**body, "spec": template["spec"]})

    def _bind_claim(self, claim: Json) -> None:
        if is_deleting(claim) or (claim.get("status") or {}).get("phase") == "Bound":
            return
        volume = self._find_existing_volume(claim)
        if volume is None:
            volume = self._provision_volume(claim)
        if volume is not None:
            self._bind_volume(claim, volume)

    def _provision_volume(self, claim: Json) -> Json | None:
        storage = self.find_object(CLASSES, ("", claim["spec"].get("storageClassName") or ""))
        named = claim["spec"].get("volumeName")
        if storage is None or storage["provisioner"] == NO_PROVISIONER or named:
            return None
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if storage.get("volumeBindingMode", "Immediate") == "WaitForFirstConsumer":
            if not node:
                return None
            if self.find_object("nodes", ("", node)) is None:
                # The node is gone: the scheduler has to choose again.
                patch = {"metadata": {"annotations": {SELECTED: None}}}
                meta = claim["metadata"]
                self.api.patch(CLAIMS, meta["name"], patch, meta["namespace"])
                return None
        name = f"pvc-{claim['metadata']['uid']}"
        return self.find_object(VOLUMES, ("", name)) or self.api.create(
            VOLUMES, self._build_volume(claim, storage, node)
        )

    def _find_existing_volume(self, claim: Json) -> Json | None:
        """A volume a person made: the one named or kept for the claim, else the smallest that will do."""
        wanted, meta = claim["spec"].get("volumeName"), claim["metadata"]
        storage = self.find_object(CLASSES, ("", claim["spec"].get("storageClassName") or ""))
        waits = (storage or {}).get("volumeBindingMode", "Immediate") == "WaitForFirstConsumer"
        fitting = []
        for volume in self.list_objects(VOLUMES):
            reference = volume["spec"].get("claimRef") or {}
            if wanted:
                if volume["metadata"]["name"] == wanted and _is_free_or_mine(reference, meta):
                    return volume
            elif reference and _is_free_or_mine(reference, meta):
                return volume
            elif not reference and not waits and is_free_for(volume, claim):
                fitting.append(volume)
        return min(fitting, key=_size_key, default=None)

    def _build_volume(self, claim: Json, storage: Json, node: str | None) -> Json:
        meta, spec = claim["metadata"], claim["spec"]
        body: Json = {
            "metadata": {
                "name": f"pvc-{meta['uid']}",
                "annotations": {"pv.kubernetes.io/provisioned-by": storage["provisioner"]},
            },
            "spec": {
                "capacity": ((spec.get("resources") or {}).get("requests") or {}),
                "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
                "storageClassName": storage["metadata"]["name"],
                "claimRef": build_claim_reference(claim),
                "csi": {"driver": storage["provisioner"], "volumeHandle": f"vol-{meta['uid']}"},
            },
        }
        zone = self._choose_zone(storage, node)
        if zone:
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
            body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        return body

    def _choose_zone(self, storage: Json, node: str | None) -> str:
        """The zone of the node the first pod goes to; else the first one allowed; else the first there is."""
        if node:
            found = self.find_object("nodes", ("", node)) or {"metadata": {}}
            return str((found["metadata"].get("labels") or {}).get(ZONE, ""))
        allowed = [
            value
            for term in storage.get("allowedTopologies") or ()
            for expression in term.get("matchLabelExpressions") or ()
            if expression["key"] == ZONE
            for value in expression["values"]
        ]
        zones = {(n["metadata"].get("labels") or {}).get(ZONE, "") for n in self.list_objects("nodes")} - {""}
        return min(allowed or zones, default="")

    def _bind_volume(self, claim: Json, volume: Json) -> None:
        name, meta = volume["metadata"]["name"], claim["metadata"]
        if (volume["spec"].get("claimRef") or {}).get("uid") != meta["uid"]:
            self.api.patch(VOLUMES, name, build_claim_patch(claim))
        self._set_phase(name, "Bound")
        marks = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        patch = {"metadata": {"annotations": marks}, "spec": {"volumeName": name}}
        bound = self.api.patch(CLAIMS, meta["name"], patch, meta["namespace"])
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes") or [],
            "capacity": volume["spec"].get("capacity") or {},
        }
        self.api.report_status(CLAIMS, bound, status)

    def _release_volume(self, volume: Json) -> None:
        """A volume whose claim is gone is deleted or released, as its policy says."""
        reference, name = volume["spec"].get("claimRef") or {}, volume["metadata"]["name"]
        if is_deleting(volume):
            return
        phase = "Available"
        if reference.get("uid"):
            claim = self.find_object(CLAIMS, (reference.get("namespace", ""), reference.get("name", "")))
            if claim is not None and claim["metadata"]["uid"] == reference["uid"]:
                return
            if volume["spec"].get("persistentVolumeReclaimPolicy", "Retain") == "Delete":
                self.api.delete(VOLUMES, name)
                return
            phase = "Released"
        if (volume.get("status") or {}).get("phase") != phase:
            self._set_phase(name, phase)

    def _set_phase(self, name: str, phase: str) -> None:
        status = {"phase": phase, "lastPhaseTransitionTime": self.format_now()}
        self.api.patch(VOLUMES, name, {"status": status}, subresource="status")


class StorageProtection(SimController):
    """Lets go of deleted claims when no pod uses them, and of deleted volumes when no claim does."""

    name = "pvc-protection-controller"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._users: dict[Key, set[Key]] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {CLAIMS: self._handle_claim, VOLUMES: self._handle_volume, "pods": self._handle_pod}

    def _handle_claim(self, before: Json | None, after: Json | None) -> None:
        if after is not None and is_deleting(after):
            self.enqueue(("claim/" + after["metadata"]["namespace"], after["metadata"]["name"]))
        elif after is None and before is not None and before["spec"].get("volumeName"):
            self.enqueue(("volume", before["spec"]["volumeName"]))

    def _handle_volume(self, before: Json | None, after: Json | None) -> None:
        if after is not None and is_deleting(after):
            self.enqueue(("volume", after["metadata"]["name"]))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        if not pod["spec"].get("volumes") or (
            before is not None and after is not None and not has_pod_ended(after)
        ):
            return
        meta = pod["metadata"]
        user, uses = (meta["namespace"], meta["name"]), after is not None and not has_pod_ended(after)
        for name in list_claim_names(pod):
            users = self._users.setdefault((meta["namespace"], name), set())
            if uses:
                users.add(user)
                continue
            users.discard(user)
            if not users:
                del self._users[meta["namespace"], name]
            self.enqueue(("claim/" + meta["namespace"], name))

    def reconcile(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        if what == "claim":
            claim = self.find_object(CLAIMS, (namespace, key[1]))
            if claim is not None and is_deleting(claim) and not self._users.get((namespace, key[1])):
                self._remove_finalizer(CLAIMS, claim, CLAIM_GUARD)
            return
        volume = self.find_object(VOLUMES, ("", key[1]))
        if volume is not None and is_deleting(volume) and not self._is_claimed(volume):
            self._remove_finalizer(VOLUMES, volume, VOLUME_GUARD)

    def _is_claimed(self, volume: Json) -> bool:
        reference = volume["spec"].get("claimRef") or {}
        claim = self.find_object(CLAIMS, (reference.get("namespace", ""), reference.get("name", "")))
        return claim is not None and claim["metadata"]["uid"] == reference.get("uid")

    def _remove_finalizer(self, resource: str, obj: Json, guard: str) -> None:
        meta = obj["metadata"]
        finalizers = [f for f in meta.get("finalizers") or () if f != guard]
        if len(finalizers) == len(meta.get("finalizers") or ()):
            return
        patch = {"metadata": {"finalizers": finalizers or None}}
        try:
            self.api.patch(resource, meta["name"], patch, meta.get("namespace", ""))
        except ApiError as error:
            if error.code != 404:
                raise


def _is_free_or_mine(reference: Json, claim: Json) -> bool:
    """A volume may be kept for a claim by name before the claim exists."""
    if not reference:
        return True
    if reference.get("uid"):
        return bool(reference["uid"] == claim["uid"])
    return (reference.get("namespace"), reference.get("name")) == (claim["namespace"], claim["name"])


def _size_key(volume: Json) -> tuple[int, str]:
    storage = (volume["spec"].get("capacity") or {}).get("storage", "0")
    return Quantity.parse(storage).value, volume["metadata"]["name"]
