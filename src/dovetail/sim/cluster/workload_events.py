"""Events as workload controllers, kubelets and node controllers leave them, for people who look.

One neighbour hears what the others did and says so. The simulator does without it: nobody reads events there,
and they would cost as much as the pods they are about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.kube.conditions import condition_of
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


class _Said(NamedTuple):
    about: Json
    component: str
    kind: str
    reason: str
    message: str
    host: str = ""


class WorkloadEvents(Neighbour):
    """Says what happened to pods, ReplicaSets, Jobs and Nodes."""

    name = "events"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self._owned = owned
        self._started = False
        self._said: deque[_Said] = deque()
        self._number = 0

    def hears(self) -> Mapping[str, Heard]:
        return {
            "pods": self._hear_pod,
            "replicasets.apps": self._hear_replica_set,
            "jobs.batch": self._hear_job,
            "nodes": self._hear_node,
        }

    def start(self) -> None:
        # What was there before is no news.
        self._said.clear()
        self._started = True

    def work(self, key: Key) -> None:
        while self._said:
            said = self._said.popleft()
            self._number += 1
            try:
                self.api.insert("events", self._event(said))
            except ApiError as error:
                # A namespace on its way out takes no events.
                if error.code not in (403, 404):
                    raise

    def _say(self, about: Json, component: str, reason: str, message: str, **more: str) -> None:
        if self._started:
            kind, host = more.get("kind", "Normal"), more.get("host", "")
            self._said.append(_Said(about, component, kind, reason, message, host))
            self.enqueue(("", "events"))

    def _event(self, said: _Said) -> Json:
        namespace = said.about.get("namespace") or "default"
        now = self.now()
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

    def _hear_pod(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner = controller_of(after)
        if before is None and owner is not None:
            self._say_created(owner, after)
        if before is None or deleting(before):
            return
        if deleting(after):
            self._say_deleted(owner, after)
        elif _phase(before) == "Pending" and _phase(after) == "Running":
            self._say_started(after)

    def _say_created(self, owner: Json, pod: Json) -> None:
        component = _COMPONENTS.get(owner["kind"])
        if component is None:
            return
        name = pod["metadata"]["name"]
        message = f"Created pod: {name}"
        if owner["kind"] == "StatefulSet":
            message = f"Create Pod {name} in StatefulSet {owner['name']} successful"
        self._say(_owner_reference(owner, pod), component, "SuccessfulCreate", message)

    def _say_deleted(self, owner: Json | None, pod: Json) -> None:
        name, host = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        if _phase(pod) == "Running":
            for container in pod["spec"].get("containers", ()):
                text = f"Stopping container {container['name']}"
                self._say(_reference(pod, "v1", "Pod"), "kubelet", "Killing", text, host=host)
        if owner is not None and owner["kind"] in _WORKLOADS and self._is_surplus(owner, pod):
            message = f"Deleted pod: {name}"
            if owner["kind"] == "StatefulSet":
                message = f"Delete Pod {name} in StatefulSet {owner['name']} successful"
            about = _owner_reference(owner, pod)
            self._say(about, _COMPONENTS[owner["kind"]], "SuccessfulDelete", message)

    def _is_surplus(self, owner: Json, pod: Json) -> bool:
        """Whether the owner has enough pods without this one: then it was the one to delete it."""
        key = (pod["metadata"]["namespace"], owner["name"])
        workload = self.find(_WORKLOADS[owner["kind"]], key)
        wanted = 0 if workload is None else int(workload["spec"].get("replicas", 1))
        return self._owned.family(owner["uid"]).active >= wanted

    def _say_started(self, pod: Json) -> None:
        host = pod["spec"].get("nodeName", "")
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"].get("containers", ())):
            about = _reference(pod, "v1", "Pod") | {"fieldPath": f"spec.containers{{{container['name']}}}"}
            pulled = f'Container image "{container.get("image", "")}" already present on machine'
            self._say(about, "kubelet", "Pulled", pulled, host=host)
            self._say(about, "kubelet", "Created", f"Created container: {container['name']}", host=host)
            self._say(about, "kubelet", "Started", f"Started container {container['name']}", host=host)

    # --- their owners, and nodes ----------------------------------------------------------------------------

    def _hear_replica_set(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner = controller_of(after)
        was, size = (0 if before is None else _size(before)), _size(after)
        if owner is not None and owner["kind"] == "Deployment" and was != size:
            way = "up" if size > was else "down"
            text = f"Scaled {way} replica set {after['metadata']['name']} from {was} to {size}"
            about = _owner_reference(owner, after)
            self._say(about, _COMPONENTS["Deployment"], "ScalingReplicaSet", text)
        self._say_refused(before, after)

    def _say_refused(self, before: Json | None, after: Json) -> None:
        refused = condition_of(after, "ReplicaFailure")
        known = condition_of(before, "ReplicaFailure") if before is not None else None
        if refused is not None and (known is None or known.get("message") != refused.get("message")):
            about = _reference(after, "apps/v1", "ReplicaSet")
            text = f"Error creating: {refused.get('message', '')}"
            self._say(about, _COMPONENTS["ReplicaSet"], "FailedCreate", text, kind="Warning")

    def _hear_job(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        owner, name = controller_of(after), after["metadata"]["name"]
        if before is None and owner is not None and owner["kind"] == "CronJob":
            about = _owner_reference(owner, after)
            self._say(about, _COMPONENTS["CronJob"], "SuccessfulCreate", f"Created job {name}")
        for word, reason, text, kind in _ENDINGS:
            if before is not None and _holds(after, word) and not _holds(before, word):
                why = (condition_of(after, word) or {}).get("reason", reason) if word == "Failed" else reason
                about = _reference(after, "batch/v1", "Job")
                self._say(about, _COMPONENTS["Job"], why, text, kind=kind)
                if owner is not None and owner["kind"] == "CronJob":
                    saw = f"Saw completed job: {name}, condition: {word}"
                    about = _owner_reference(owner, after)
                    self._say(about, _COMPONENTS["CronJob"], "SawCompletedJob", saw)

    def _hear_node(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        name = after["metadata"]["name"]
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": after["metadata"]["uid"]}
        if before is None:
            text = f"Node {name} event: Registered Node {name} in Controller"
            self._say(about, "node-controller", "RegisteredNode", text)
        was = (condition_of(before, "Ready") or {}).get("status") if before is not None else None
        now = (condition_of(after, "Ready") or {}).get("status")
        if was != now and now is not None:
            word = "NodeReady" if now == "True" else "NodeNotReady"
            self._say(about, "kubelet", word, f"Node {name} status is now: {word}", host=name)


_ENDINGS = (
    ("Complete", "Completed", "Job completed", "Normal"),
    ("Failed", "BackoffLimitExceeded", "Job has failed", "Warning"),
)


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _size(replicaset: Json) -> int:
    return int(replicaset["spec"].get("replicas", 1))


def _holds(obj: Json, word: str) -> bool:
    return (condition_of(obj, word) or {}).get("status") == "True"


def _reference(obj: Json, api_version: str, kind: str) -> Json:
    meta = obj["metadata"]
    named = {"name": meta["name"], "namespace": meta.get("namespace", ""), "uid": meta["uid"]}
    return {"apiVersion": api_version, "kind": kind, **named, "resourceVersion": meta["resourceVersion"]}


def _owner_reference(owner: Json, obj: Json) -> dict[str, Any]:
    named = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    return {**named, "namespace": obj["metadata"]["namespace"]}
