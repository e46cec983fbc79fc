"""The kubelets of all simulated nodes: nodes become ready, pods start, stop and run to their ends.

Which nodes are simulated, and how slow they are, is said by labels and annotations on the objects
themselves, so that a test or a person can change it with kubectl:

    kwok.x-k8s.io/node: fake                   (node)  this node has a simulated kubelet
    sim.dovetail.dev/ready-after: 5s           (node)  stays NotReady that long after it appears
    sim.dovetail.dev/heartbeat: stopped        (node)  the kubelet falls silent
    sim.dovetail.dev/start-after: 2s           (pod)   starts that long after it is bound
    sim.dovetail.dev/run-for: 30s              (pod)   runs that long, then succeeds
    sim.dovetail.dev/fails: "true"             (pod)   ends as Failed instead
    sim.dovetail.dev/never-ready: "true"       (pod)   runs and never becomes Ready
    sim.dovetail.dev/stop-after: 40s           (pod)   takes that long to stop, up to its grace period
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.settings.durations import parse as parse_duration
from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import deleting, ended, key_of, parse_time
from dovetail.sim.kube.conditions import with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["Kubelet", "KubeletDelays"]

PREFIX = "sim.dovetail.dev/"
READY_AFTER, HEARTBEAT = PREFIX + "ready-after", PREFIX + "heartbeat"
START_AFTER, RUN_FOR, FAILS = PREFIX + "start-after", PREFIX + "run-for", PREFIX + "fails"
NEVER_READY, STOP_AFTER = PREFIX + "never-ready", PREFIX + "stop-after"
LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
CALM = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


@dataclass(frozen=True, slots=True)
class KubeletDelays:
    """How long things take on a simulated node unless an annotation says otherwise. Seconds."""

    node_ready: float = 1.0
    pod_start: float = 1.0
    pod_stop: float = 1.0
    heartbeat: float = 10.0


class Kubelet(Neighbour):
    """All simulated kubelets at once. Keys: ("", node), and (namespace, pod)."""

    name = "kubelet"

    def __init__(self, desk: Desk, delays: KubeletDelays | None = None) -> None:
        super().__init__(desk)
        self.delays = delays or KubeletDelays()
        self._ours: set[str] = set()
        self._first_seen: dict[str, float] = {}
        self._bound_at: dict[str, float] = {}
        self._stopping_at: dict[str, float] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {"nodes": self._node_heard, "pods": self._pod_heard}

    def simulates(self, node: Json) -> bool:
        """Whether this node's kubelet is ours to play."""
        meta = node["metadata"]
        fake = (meta.get("labels") or {}).get("kwok.x-k8s.io/node") or (meta.get("annotations") or {}).get(
            "kwok.x-k8s.io/node"
        )
        return bool(fake == "fake")

    # Nodes

    def _node_heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            name = before["metadata"]["name"] if before else ""
            self._ours.discard(name)
            self._first_seen.pop(name, None)
            return
        name = after["metadata"]["name"]
        if name not in self._ours and self.simulates(after):
            self._ours.add(name)
            self._first_seen[name] = self.clock.monotonic()
            self.enqueue(("", name))
            for pod in self.api.list("pods", field_selector=f"spec.nodeName={name}"):
                self.enqueue(key_of(pod))

    def work(self, key: Key) -> None:
        if key[0]:
            self._work_pod(key)
        else:
            self._work_node(key[1])

    def _work_node(self, name: str) -> None:
        if name not in self._ours:
            return
        node = self.api.get("nodes", name)
        annotations = node["metadata"].get("annotations") or {}
        silent = annotations.get(HEARTBEAT) == "stopped"
        if not silent:
            self._renew_lease(node)
            wait = _seconds(annotations.get(READY_AFTER), self.delays.node_ready)
            left = self._first_seen[name] + wait - self.clock.monotonic()
            self._report(node, is_ready=left <= 1e-9)
            if left > 1e-9:
                self.enqueue(("", name), min(left, self.delays.heartbeat))
                return
        self.enqueue(("", name), self.delays.heartbeat)

    def _report(self, node: Json, *, is_ready: bool) -> None:
        now, status = self.now(), dict(node.get("status") or {})
        for kind, reason, message in CALM:
            if not _has(status, kind):
                calm = {"type": kind, "status": "False", "reason": reason, "message": message}
                status = with_condition(status, {**calm, "lastHeartbeatTime": now}, now)
        wanted = ("True", "KubeletReady") if is_ready else ("False", "KubeletNotReady")
        have: Json = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        if (have.get("status"), have.get("reason")) != wanted:
            message = "kubelet is posting ready status" if is_ready else "the node is starting"
            ready = {"type": "Ready", "status": wanted[0], "reason": wanted[1], "message": message}
            status = with_condition(status, {**ready, "lastHeartbeatTime": now}, now)
        status.setdefault(
            "addresses", [{"type": "InternalIP", "address": _address(node["metadata"]["name"])}]
        )
        status.setdefault("nodeInfo", _node_info(node))
        status.setdefault("allocatable", status.get("capacity", {}))
        if status != node.get("status"):
            self.api.patch("nodes", node["metadata"]["name"], {"status": status}, subresource="status")

    def _renew_lease(self, node: Json) -> None:
        name, now = node["metadata"]["name"], self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            self.api.patch(LEASES, name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
            meta = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            self.api.create(LEASES, {"metadata": meta, "spec": spec}, LEASE_NAMESPACE)

    # Pods

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        if pod["spec"].get("nodeName") not in self._ours:
            return
        if after is None:
            uid = pod["metadata"]["uid"]
            self._bound_at.pop(uid, None)
            self._stopping_at.pop(uid, None)
            return
        phase = (after.get("status") or {}).get("phase", "Pending")
        if phase == "Pending" or deleting(after) or before is None:
            self.enqueue(key_of(after))

    def _work_pod(self, key: Key) -> None:
        try:
            pod = self.api.get("pods", key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if pod["spec"].get("nodeName") not in self._ours:
            return
        if deleting(pod):
            self._stop(pod)
        elif (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            self._start_pod(pod)
        elif not ended(pod):
            self._maybe_end(pod)

    def _start_pod(self, pod: Json) -> None:
        notes, uid = pod["metadata"].get("annotations") or {}, pod["metadata"]["uid"]
        bound = self._bound_at.setdefault(uid, self.clock.monotonic())
        left = bound + _seconds(notes.get(START_AFTER), self.delays.pod_start) - self.clock.monotonic()
        if left > 1e-9:
            self.enqueue(key_of(pod), left)
            return
        now, status = self.now(), dict(pod.get("status") or {})
        is_ready = notes.get(NEVER_READY) != "true"
        for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
            up = is_ready or kind not in ("ContainersReady", "Ready")
            status = with_condition(status, {"type": kind, "status": "True" if up else "False"}, now)
        address = _address(uid)
        status |= {
            "phase": "Running",
            "hostIP": _address(pod["spec"]["nodeName"]),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "containerStatuses": [_running(c, uid, now, is_ready) for c in pod["spec"].get("containers", ())],
        }
        self.api.patch(
            "pods",
            pod["metadata"]["name"],
            {"status": status},
            pod["metadata"]["namespace"],
            subresource="status",
        )
        if notes.get(RUN_FOR):
            self.enqueue(key_of(pod), _seconds(notes[RUN_FOR], 0))

    def _maybe_end(self, pod: Json) -> None:
        notes = pod["metadata"].get("annotations") or {}
        if not notes.get(RUN_FOR):
            return
        started = parse_time(pod["status"]["startTime"])
        left = _seconds(notes[RUN_FOR], 0) - (self.clock.now() - started).total_seconds()
        if left > 1e-9:
            self.enqueue(key_of(pod), left)
            return
        self._end(pod, "Failed" if notes.get(FAILS) == "true" else "Succeeded")

    def _end(self, pod: Json, phase: str) -> None:
        now, status = self.now(), dict(pod["status"])
        code = 0 if phase == "Succeeded" else 1
        for kind in ("Ready", "ContainersReady"):
            status = with_condition(status, {"type": kind, "status": "False", "reason": "PodCompleted"}, now)
        over = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}
        statuses = [
            {**each, "ready": False, "started": False, "state": {"terminated": over}}
            for each in status.get("containerStatuses", ())
        ]
        status |= {"phase": phase, "containerStatuses": statuses}
        self.api.patch(
            "pods",
            pod["metadata"]["name"],
            {"status": status},
            pod["metadata"]["namespace"],
            subresource="status",
        )

    def _stop(self, pod: Json) -> None:
        meta = pod["metadata"]
        started = self._stopping_at.setdefault(meta["uid"], self.clock.monotonic())
        notes = meta.get("annotations") or {}
        takes = _seconds(notes.get(STOP_AFTER), self.delays.pod_stop)
        left = started + min(takes, meta.get("deletionGracePeriodSeconds") or 0) - self.clock.monotonic()
        if left > 1e-9:
            self.enqueue(key_of(pod), left)
            return
        try:
            self.api.delete("pods", meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _seconds(text: str | None, default: float) -> float:
    if not text:
        return default
    try:
        return parse_duration(text).total_seconds()
    except ValueError:
        return default


def _has(status: Json, kind: str) -> bool:
    return any(c.get("type") == kind for c in status.get("conditions") or ())


def _address(name: str) -> str:
    """An address in 10/8 that depends on the name alone."""
    number = zlib.crc32(name.encode()) & 0xFFFFFF
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _node_info(node: Json) -> Json:
    labels = node["metadata"].get("labels") or {}
    return {
        "architecture": labels.get("kubernetes.io/arch", "amd64"),
        "operatingSystem": labels.get("kubernetes.io/os", "linux"),
        "kubeletVersion": "v1.34.0-sim",
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": "sim://1",
        "kubeProxyVersion": "v1.34.0-sim",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _running(container: Json, uid: str, now: str, is_ready: bool) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": container.get("image", ""),
        "containerID": f"sim://{uid}/{container['name']}",
        "ready": is_ready,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
