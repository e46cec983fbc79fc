"""Events as workload controllers, kubelets and node controllers leave them, for people who look.

One neighbour hears what the others did and says so. The simulator does without it: nobody reads events there,
and they would cost as much as the pods they are about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import controller_of, is_deleting
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.kube.meta import find_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["WorkloadEvents"]

_COMPONENTS = {
    "ReplicaSet": "replicaset-controller",
    "StatefulSet": "statefulset-controller",
    "DaemonSet": "daemonset-controller",
    "Job": "job-controller",
    "CronJob": "cronjob-controller",
    "Deployment": "deployment-controller",
}
_WORKLOADS = {"ReplicaSet": "replicasets.apps", "StatefulSet": "statefulsets.apps"}


class _PendingEvent(NamedTuple):
    about: Json
    component: str
    kind: str
    reason: str
    message: str
    host: str = ""


class WorkloadEvents(SimController):
    """Says what happened to pods, ReplicaSets, Jobs and Nodes."""

    name = "events"

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self._owned = owned
        self._started = False
        self._pending_events: deque[_PendingEvent] = deque()
        self._number = 0

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {
            "pods": self._handle_pod,
            "replicasets.apps": self._handle_replicaset,
            "jobs.batch": self._handle_job,
            "nodes": self._handle_node,
        }

    def start(self) -> None:
        # What was there before is no news.
        self._pending_events.clear()
        self._started = True

    def reconcile(self, key: Key) -> None:
        while self._pending_events:
            said = self._pending_events.popleft()
            self._number += 1
            try:
                self.api.insert("events", self._build_event(said))
            except ApiError as error:
                # A namespace on its way out takes no events.
                if error.code not in (403, 404):
                    raise

    def _record_event(self, about: Json, component: str, reason: str, message: str, **more: str) -> None:
        if self._started:
            kind, host = more.get("kind", "Normal"), more.get("host", "")
            self._pending_events.append(_PendingEvent(about, component, kind, reason, message, host))
            self.enqueue(("", "events"))

    def _build_event(self, said: _PendingEvent) -> Json:
        namespace = said.about.get("namespace") or "default"
        now = self.format_now()
        # As client-go names events: by the moment, so that a restart gives no name twice.
        moment = int(self.clock.now().timestamp() * 1e6) * 1_000 + self._number % 1_000
        name = f"{said.about['name']}.{moment:x}"
        return {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": said.about,
            "reason": said.reason,
            "message": said.message,
            "source": {"component": said.component} | ({"host": said.host} if said.host else {}),
            "type": said.kind,
            "count": 1,
            "eventTime": None,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "reportingComponent": said.component,
            "reportingInstance": said.host,
        }

    # --- pods -----------------------------------------------------------------------------------------------

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner = controller_of(after)
        if before is None and owner is not None:
            self._record_created(owner, after)
        if before is None or is_deleting(before):
            return
        if is_deleting(after):
            self._record_deleted(owner, after)
        elif _read_phase(before) == "Pending" and _read_phase(after) == "Running":
            self._record_started(after)

    def _record_created(self, owner: Json, pod: Json) -> None:
        component = _COMPONENTS.get(owner["kind"])
        if component is None:
            return
        name = pod["metadata"]["name"]
        message = f"Created pod: {name}"
        if owner["kind"] == "StatefulSet":
            message = f"Create Pod {name} in StatefulSet {owner['name']} successful"
        self._record_event(_build_owner_reference(owner, pod), component, "SuccessfulCreate", message)

    def _record_deleted(self, owner: Json | None, pod: Json) -> None:
        name, host = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        if _read_phase(pod) == "Running":
            for container in pod["spec"].get("containers", ()):
                text = f"Stopping container {container['name']}"
                self._record_event(_build_reference(pod, "v1", "Pod"), "kubelet", "Killing", text, host=host)
        if owner is not None and owner["kind"] in _WORKLOADS and self._is_surplus(owner, pod):
            message = f"Deleted pod: {name}"
            if owner["kind"] == "StatefulSet":
                message = f"Delete Pod {name} in StatefulSet {owner['name']} successful"
            about = _build_owner_reference(owner, pod)
            self._record_event(about, _COMPONENTS[owner["kind"]], "SuccessfulDelete", message)

    def _is_surplus(self, owner: Json, pod: Json) -> bool:
        """Whether the owner has enough pods without this one: then it was the one to delete it."""
        key = (pod["metadata"]["namespace"], owner["name"])
        workload = self.find_object(_WORKLOADS[owner["kind"]], key)
        wanted = 0 if workload is None else int(workload["spec"].get("replicas", 1))
        return self._owned.get_owned_pods(owner["uid"]).active >= wanted

    def _record_started(self, pod: Json) -> None:
        host = pod["spec"].get("nodeName", "")
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"].get("containers", ())):
            about = _build_reference(pod, "v1", "Pod") | {
                "fieldPath": f"spec.containers{{{container['name']}}}"
            }
            pulled = f'Container image "{container.get("image", "")}" already present on machine'
            self._record_event(about, "kubelet", "Pulled", pulled, host=host)
            self._record_event(
                about, "kubelet", "Created", f"Created container: {container['name']}", host=host
            )
            self._record_event(
                about, "kubelet", "Started", f"Started container {container['name']}", host=host
            )

    # --- their owners, and nodes ----------------------------------------------------------------------------

    def _handle_replicaset(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner = controller_of(after)
        was, size = (0 if before is None else _read_replicas(before)), _read_replicas(after)
        if owner is not None and owner["kind"] == "Deployment" and was != size:
            way = "up" if size > was else "down"
            text = f"Scaled {way} replica set {after['metadata']['name']} from {was} to {size}"
            about = _build_owner_reference(owner, after)
            self._record_event(about, _COMPONENTS["Deployment"], "ScalingReplicaSet", text)
        self._record_refused(before, after)

    def _record_refused(self, before: Json | None, after: Json) -> None:
        refused = find_condition(after, "ReplicaFailure")
        known = find_condition(before, "ReplicaFailure") if before is not None else None
        if refused is not None and (known is None or known.get("message") != refused.get("message")):
            about = _build_reference(after, "apps/v1", "ReplicaSet")
            text = f"Error creating: {refused.get('message', '')}"
            self._record_event(about, _COMPONENTS["ReplicaSet"], "FailedCreate", text, kind="Warning")

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner, name = controller_of(after), after["metadata"]["name"]
        if before is None and owner is not None and owner["kind"] == "CronJob":
            about = _build_owner_reference(owner, after)
            self._record_event(about, _COMPONENTS["CronJob"], "SuccessfulCreate", f"Created job {name}")
        for word, reason, text, kind in _ENDINGS:
            if (
                before is not None
                and _is_condition_true(after, word)
                and not _is_condition_true(before, word)
            ):
                why = (
                    (find_condition(after, word) or {}).get("reason", reason) if word == "Failed" else reason
                )
                about = _build_reference(after, "batch/v1", "Job")
                self._record_event(about, _COMPONENTS["Job"], why, text, kind=kind)
                if owner is not None and owner["kind"] == "CronJob":
                    saw = f"Saw completed job: {name}, condition: {word}"
                    about = _build_owner_reference(owner, after)
                    self._record_event(about, _COMPONENTS["CronJob"], "SawCompletedJob", saw)

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        name = after["metadata"]["name"]
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": after["metadata"]["uid"]}
        if before is None:
            text = f"Node {name} event: Registered Node {name} in Controller"
            self._record_event(about, "node-controller", "RegisteredNode", text)
        was = (find_condition(before, "Ready") or {}).get("status") if before is not None else None
        now = (find_condition(after, "Ready") or {}).get("status")
        if was != now and now is not None:
            word = "NodeReady" if now == "True" else "NodeNotReady"
            self._record_event(about, "kubelet", word, f"Node {name} status is now: {word}", host=name)


_ENDINGS = (
    ("Complete", "Completed", "Job completed", "Normal"),
    ("Failed", "BackoffLimitExceeded", "Job has failed", "Warning"),
)


def _read_phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _read_replicas(replicaset: Json) -> int:
    return int(replicaset["spec"].get("replicas", 1))


def _is_condition_true(obj: Json, word: str) -> bool:
    return (find_condition(obj, word) or {}).get("status") == "True"


def _build_reference(obj: Json, api_version: str, kind: str) -> Json:
    meta = obj["metadata"]
    named = {"name": meta["name"], "namespace": meta.get("namespace", ""), "uid": meta["uid"]}
    return {"apiVersion": api_version, "kind": kind, **named, "resourceVersion": meta["resourceVersion"]}


def _build_owner_reference(owner: Json, obj: Json) -> dict[str, Any]:
    named = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    return {**named, "namespace": obj["metadata"]["namespace"]}
