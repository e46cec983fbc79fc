"""What kubelets post: the status of a node, and of a pod that runs, recovers or has ended."""

from __future__ import annotations

import zlib
from typing import Any

from dovetail.sim.kube.meta import find_condition, with_condition

__all__ = ["build_ended_status", "build_node_status", "build_recovered_status", "build_running_status"]

Json = dict[str, Any]
CALM = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
READY_KINDS = ("ContainersReady", "Ready")


def build_node_status(node: Json, now: str, *, is_ready: bool) -> Json | None:
    """The node's status as its kubelet would have it; None when there is nothing to say."""
    status = dict(node.get("status") or {})
    for kind, reason, message in CALM:
        have = find_condition({"status": status}, kind)
        if have is None or have["status"] == "Unknown":
            calm = {"type": kind, "status": "False", "reason": reason, "message": message}
            status = with_condition(status, {**calm, "lastHeartbeatTime": now}, now)
    wanted = ("True", "KubeletReady") if is_ready else ("False", "KubeletNotReady")
    have = find_condition({"status": status}, "Ready") or {}
    if (have.get("status"), have.get("reason")) != wanted:
        message = "kubelet is posting ready status" if is_ready else "the node is starting"
        ready = {"type": "Ready", "status": wanted[0], "reason": wanted[1], "message": message}
        status = with_condition(status, {**ready, "lastHeartbeatTime": now}, now)
    name = node["metadata"]["name"]
    addresses = [
        {"type": "InternalIP", "address": derive_address(name)},
        {"type": "Hostname", "address": name},
    ]
    status.setdefault("addresses", addresses)
    if not (status.get("nodeInfo") or {}).get("kubeletVersion"):
        status["nodeInfo"] = _build_node_info(node)
    status.setdefault("allocatable", status.get("capacity", {}))
    return status if status != node.get("status") else None


def build_running_status(pod: Json, now: str, *, is_ready: bool) -> Json:
    """A pod whose containers have started."""
    uid, spec, status = pod["metadata"]["uid"], pod["spec"], pod.get("status") or {}
    before = {c["type"]: c for c in status.get("conditions") or ()}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        up = is_ready or kind not in READY_KINDS
        state = {"type": kind, "status": "True" if up else "False"}
        if not up:
            state |= {"reason": "ContainersNotReady"}
        before[kind] = {**state, "lastTransitionTime": now}
    address = derive_address(uid)
    result = {
        **status,
        "conditions": list(before.values()),
        "phase": "Running",
        "hostIP": derive_address(spec["nodeName"]),
        "hostIPs": [{"ip": derive_address(spec["nodeName"])}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "containerStatuses": [
            _build_container_status(c, uid, now, is_ready) for c in spec.get("containers", ())
        ],
    }
    first = [_build_init_status(c, uid, now) for c in spec.get("initContainers") or ()]
    return {**result, "initContainerStatuses": first} if first else result


def build_recovered_status(pod: Json, now: str) -> Json:
    """A pod that was written off with its node, and is fine."""
    status = pod["status"]
    for kind in READY_KINDS:
        status = with_condition(status, {"type": kind, "status": "True"}, now)
    return dict(status)


def build_ended_status(pod: Json, phase: str, now: str) -> Json:
    """A pod whose containers are through."""
    status: Json = dict(pod["status"])
    code = 0 if phase == "Succeeded" else 1
    why = "PodCompleted" if code == 0 else "PodFailed"
    for kind in READY_KINDS:
        status = with_condition(status, {"type": kind, "status": "False", "reason": why}, now)
    over = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}
    statuses = [
        {**each, "ready": False, "started": False, "state": {"terminated": over}}
        for each in status.get("containerStatuses", ())
    ]
    return {**status, "phase": phase, "containerStatuses": statuses}


def derive_address(name: str) -> str:
    """An address in 10/8 that depends on the name alone."""
    number = zlib.crc32(name.encode()) & 0xFFFFFF
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _build_node_info(node: Json) -> Json:
    labels = node["metadata"].get("labels") or {}
    return {
        "architecture": labels.get("kubernetes.io/arch", "amd64"),
        "operatingSystem": labels.get("kubernetes.io/os", "linux"),
        "kubeletVersion": "v1.35.0-sim",
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": "sim://1",
        "kubeProxyVersion": "v1.35.0-sim",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _build_container_status(container: Json, uid: str, now: str, is_ready: bool) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": container.get("image", ""),
        "containerID": f"sim://{uid}/{container['name']}",
        "ready": is_ready,
        "started": True,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": now}},
    }


def _build_init_status(container: Json, uid: str, now: str) -> Json:
    """An init container: done, or running on beside the others if it is a sidecar."""
    if container.get("restartPolicy") == "Always":
        return _build_container_status(container, uid, now, True)
    over = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {
        **_build_container_status(container, uid, now, True),
        "started": False,
        "state": {"terminated": over},
    }
