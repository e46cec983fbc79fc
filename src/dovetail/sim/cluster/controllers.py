"""Everyone around the API server, in the order they hear of things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.cronjobs import CronJobController
from dovetail.sim.cluster.daemonsets import DaemonSetController
from dovetail.sim.cluster.deployments import DeploymentController
from dovetail.sim.cluster.disruption_budgets import PdbController
from dovetail.sim.cluster.jobs import JobController
from dovetail.sim.cluster.kubelet import Kubelet, KubeletOptions
from dovetail.sim.cluster.node_lifecycle import (
    NodeLifecycleController,
    PodGarbageCollector,
    TaintEvictionController,
)
from dovetail.sim.cluster.objects import has_pod_ended
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.cluster.replicasets import ReplicaSetController
from dovetail.sim.cluster.scheduler import KubeScheduler
from dovetail.sim.cluster.scheduler.volumes import list_claim_names
from dovetail.sim.cluster.statefulsets import StatefulSetController
from dovetail.sim.cluster.storage import StorageProtection, VolumeProvisioner
from dovetail.sim.cluster.workload_events import WorkloadEvents
from dovetail.sim.kube.status import ApiError

__all__ = ["SimClusterOptions", "VolumeAttacher", "start_controllers"]

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
DETACH_SECONDS = 6.0


class VolumeAttacher(SimController):
    """Attaches the CSI volumes of pods to their nodes, and detaches them when nobody there needs them."""

    name = "attachdetach-controller"

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"pods": self._handle_pod}

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        node = pod["spec"].get("nodeName")
        if not node or not pod["spec"].get("volumes") or not list_claim_names(pod):
            return
        if after is None or has_pod_ended(after):
            self.enqueue(("detach", node), DETACH_SECONDS)
        elif before is None or not before["spec"].get("nodeName"):
            self.enqueue(("attach/" + pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def reconcile(self, key: Key) -> None:
        what, _, namespace = key[0].partition("/")
        if what == "detach":
            self._detach_volumes(key[1])
        elif (pod := self.find_object("pods", (namespace, key[1]))) is not None and not has_pod_ended(pod):
            self._attach_volumes(pod)

    def _attach_volumes(self, pod: Json) -> None:
        node = pod["spec"]["nodeName"]
        for volume, driver in self._list_volumes(pod):
            name = f"csi-{node}-{volume}"
            if self.find_object(ATTACHMENTS, ("", name)) is not None:
                continue
            spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
            self.api.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
            self.api.patch(ATTACHMENTS, name, {"status": {"attached": True}}, subresource="status")

    def _list_volumes(self, pod: Json) -> list[tuple[str, str]]:
        found = []
        for name in list_claim_names(pod):
            claim = self.find_object(CLAIMS, (pod["metadata"]["namespace"], name)) or {"spec": {}}
            volume = self.find_object(VOLUMES, ("", claim["spec"].get("volumeName") or ""))
            if volume is not None and "csi" in volume["spec"]:
                found.append((volume["metadata"]["name"], volume["spec"]["csi"]["driver"]))
        return found

    def _detach_volumes(self, node: str) -> None:
        wanted = {
            v
            for pod in self.list_pods_on_node(node)
            if not has_pod_ended(pod)
            for v, _ in self._list_volumes(pod)
        }
        for attachment in self.list_objects(ATTACHMENTS):
            spec = attachment["spec"]
            if spec["nodeName"] == node and spec["source"].get("persistentVolumeName") not in wanted:
                try:
                    self.api.delete(ATTACHMENTS, attachment["metadata"]["name"])
                except ApiError as error:
                    if error.code != 404:
                        raise


@dataclass(frozen=True, slots=True)
class SimClusterOptions:
    """How the neighbours behave."""

    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    # Whether what controllers do is said in events, for people who look.
    events: bool = False


def start_controllers(
    manager: SimControllerManager, options: SimClusterOptions | None = None
) -> dict[str, SimController]:
    """Bring everyone in; those who keep indexes for others hear of things first."""
    options = options or SimClusterOptions()
    owned = OwnerIndex(manager)
    everyone: list[SimController] = [
        owned,
        PdbController(manager),
        KubeScheduler(manager),
        Kubelet(manager, options.kubelet),
        NodeLifecycleController(manager),
        TaintEvictionController(manager),
        DeploymentController(manager, owned),
        ReplicaSetController(manager, owned),
        StatefulSetController(manager, owned),
        DaemonSetController(manager, owned),
        JobController(manager, owned),
        CronJobController(manager),
        VolumeProvisioner(manager),
        StorageProtection(manager),
        VolumeAttacher(manager),
        PodGarbageCollector(manager),
    ]
    if options.events:
        everyone.append(WorkloadEvents(manager, owned))
    for neighbour in everyone:
        manager.add(neighbour)
    return {neighbour.name: neighbour for neighbour in everyone}
