"""VolumeAttachments: volumes follow their pods to nodes, and leave some seconds after the last is gone."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import ended
from dovetail.sim.cluster.scheduler.volumes import claim_names
from dovetail.sim.kube.status import ApiError

__all__ = ["Attacher"]

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
DETACH_SECONDS = 6.0


class Attacher(Neighbour):
    """Attaches the CSI volumes of pods to their nodes, and detaches them when nobody there needs them."""

    name = "attachdetach-controller"

    def hears(self) -> Mapping[str, Heard]:
        return {"pods": self._pod_heard}

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        node = pod["spec"].get("nodeName")
        if not node or not pod["spec"].get("volumes") or not claim_names(pod):
            return
        if after is None or ended(after):
            self.enqueue(("detach", node), DETACH_SECONDS)
        elif before is None or not before["spec"].get("nodeName"):
            self.enqueue(("attach/" + pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def work(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        if what == "detach":
            self._detach(key[1])
        elif (pod := self.find("pods", (namespace, key[1]))) is not None and not ended(pod):
            self._attach(pod)

    def _attach(self, pod: Json) -> None:
        node = pod["spec"]["nodeName"]
        for volume, driver in self._volumes(pod):
            name = f"csi-{node}-{volume}"
            if self.find(ATTACHMENTS, ("", name)) is not None:
                continue
            spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
            self.api.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
            self.api.patch(ATTACHMENTS, name, {"status": {"attached": True}}, subresource="status")

    def _volumes(self, pod: Json) -> list[tuple[str, str]]:
        found = []
        for name in claim_names(pod):
            claim = self.find(CLAIMS, (pod["metadata"]["namespace"], name)) or {"spec": {}}
            volume = self.find(VOLUMES, ("", claim["spec"].get("volumeName") or ""))
            if volume is not None and "csi" in volume["spec"]:
                found.append((volume["metadata"]["name"], volume["spec"]["csi"]["driver"]))
        return found

    def _detach(self, node: str) -> None:
        wanted = {v for pod in self.on_node(node) if not ended(pod) for v, _ in self._volumes(pod)}
        for attachment in self.every(ATTACHMENTS):
            spec = attachment["spec"]
            if spec["nodeName"] == node and spec["source"].get("persistentVolumeName") not in wanted:
                try:
                    self.api.delete(ATTACHMENTS, attachment["metadata"]["name"])
                except ApiError as error:
                    if error.code != 404:
                        raise
