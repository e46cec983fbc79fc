"""What a table says of a pod and of a node: one word for a whole status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dovetail.sim.kube.cells import parsed, short_duration

Object = Mapping[str, Any]


def pod_summary(pod: Object, now: datetime) -> tuple[str, str, str]:
    """A pod's ready count, its status word and its restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    init = status.get("initContainerStatuses") or ()
    main = status.get("containerStatuses") or ()
    init_count = len(spec.get("initContainers") or ())
    initializing, ready = _init_reason(init, sidecars, init_count)
    counted: Sequence[Object] = init
    reason = initializing or _phase_reason(status)
    if not initializing or _condition(status, "Initialized"):
        reason, running = _main_reason(reason, main, status)
        ready += running
        counted = [*(c for c in init if c.get("name") in sidecars), *main]
    total = len(spec.get("containers") or ()) + len(sidecars)
    return f"{ready}/{total}", _overridden(pod, status, reason), _restarts(counted, now)


def _phase_reason(status: Object) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def _condition(status: Object, kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def _init_reason(statuses: Iterable[Object], sidecars: set[Any], total: int) -> tuple[str, int]:
    """What initialisation is stuck at, if it is, and how many sidecars are ready before that."""
    ready = 0
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if status.get("name") in sidecars and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or _exit(ended)}", ready
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", ready
        return f"Init:{index}/{total}", ready
    return "", ready


def _exit(ended: Object) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _main_reason(reason: str, statuses: Sequence[Object], status: Object) -> tuple[str, int]:
    """The first container's word wins; the number counts the running ones."""
    running = 0
    for container in reversed(statuses):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = ended.get("reason") or _exit(ended)
        elif container.get("ready") and "running" in state:
            running += 1
    if reason == "Completed" and running:
        reason = "Running" if _condition(status, "Ready") else "NotReady"
    return reason, running


def _overridden(pod: Object, status: Object, reason: str) -> str:
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def _restarts(statuses: Iterable[Object], now: datetime) -> str:
    listed = list(statuses)
    count = sum(int(status.get("restartCount") or 0) for status in listed)
    ends = [
        parsed(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
        for status in listed
    ]
    last = max((end for end in ends if end is not None), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({short_duration(now - last)} ago)"


def readiness_gates(pod: Object) -> str:
    """How many of a pod's readiness gates are open."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return "<none>"
    status = pod.get("status") or {}
    opened = sum(_condition(status, gate.get("conditionType", "")) for gate in gates)
    return f"{opened}/{len(gates)}"


def node_status(node: Object) -> str:
    """Whether a node is ready, and whether it takes pods."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else ("Ready" if ready == "True" else "NotReady")
    return word + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def node_roles(node: Object) -> str:
    """The roles a node's labels give it."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    return ",".join(sorted(roles)) or "<none>"


def node_address(node: Object, kind: str) -> str:
    """A node's first address of a kind."""
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), "<none>")
