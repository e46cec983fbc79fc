"""How single values are shown in a table: ages, labels, selectors, ports and access modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.api.schema.formats import parse_date_time

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def format_age(stamp: Any, now: datetime) -> str:
    """How long ago a moment was, or `<unknown>`."""
    moment = parse_stamp(stamp)
    return UNKNOWN if moment is None else format_duration(now - moment)


def parse_stamp(stamp: Any) -> datetime | None:
    """A timestamp, if it is one."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        return parse_date_time(stamp).astimezone(UTC)
    except ValueError:
        return None


def format_duration(length: timedelta) -> str:
    """A duration to two units at most, coarser as it grows."""
    seconds = int(length.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours = seconds // 60, seconds // 3600
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _join_units(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _join_units(hours, "h", minutes % 60, "m")
    return _format_long_duration(hours)


def _format_long_duration(hours: int) -> str:
    days = hours // 24
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _join_units(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _join_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _join_units(large: int, unit: str, small: int, subunit: str) -> str:
    return f"{large}{unit}{small}{subunit}" if small else f"{large}{unit}"


def format_labels(pairs: Mapping[str, Any] | None) -> str:
    """Labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or NONE


def format_selector(value: Mapping[str, Any] | None) -> str:
    """A label selector as one writes it on the command line."""
    value = value or {}
    terms = [(key, f"{key}={text}") for key, text in (value.get("matchLabels") or {}).items()]
    terms += [(term.get("key", ""), _format_term(term)) for term in value.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms)) or NONE


def _format_term(term: Mapping[str, Any]) -> str:
    key, values = str(term.get("key", "")), ",".join(sorted(term.get("values") or ()))
    return {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }.get(term.get("operator", ""), "<error>")


def format_access_modes(modes: Iterable[str] | None) -> str:
    """Access modes by their initials, each once and in their own order."""
    listed = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in listed)


def format_containers(template: Mapping[str, Any]) -> tuple[str, str]:
    """The names and the images of a pod's containers."""
    listed = (template.get("spec") or {}).get("containers") or ()
    return (
        ",".join(str(container.get("name", "")) for container in listed),
        ",".join(str(container.get("image", "")) for container in listed),
    )


def format_ports(listed: Iterable[Mapping[str, Any]] | None) -> str:
    """Service ports as `80:30080/TCP`."""
    shown = []
    for port in listed or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


Object = Mapping[str, Any]


def summarize_pod(pod: Object, now: datetime) -> tuple[str, str, str]:
    """A pod's ready count, its status word and its restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    init = status.get("initContainerStatuses") or ()
    main = status.get("containerStatuses") or ()
    init_count = len(spec.get("initContainers") or ())
    initializing, ready = _find_init_reason(init, sidecars, init_count)
    counted: Sequence[Object] = init
    reason = initializing or _find_phase_reason(status)
    if not initializing or _is_condition_true(status, "Initialized"):
        reason, running = _find_main_reason(reason, main, status)
        ready += running
        counted = [*(c for c in init if c.get("name") in sidecars), *main]
    total = len(spec.get("containers") or ()) + len(sidecars)
    return f"{ready}/{total}", _override_reason(pod, status, reason), _format_restarts(counted, now)


def _find_phase_reason(status: Object) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def _is_condition_true(status: Object, kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def _find_init_reason(statuses: Iterable[Object], sidecars: set[Any], total: int) -> tuple[str, int]:
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
            return f"Init:{ended.get('reason') or _describe_exit(ended)}", ready
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", ready
        return f"Init:{index}/{total}", ready
    return "", ready


def _describe_exit(ended: Object) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _find_main_reason(reason: str, statuses: Sequence[Object], status: Object) -> tuple[str, int]:
    """The first container's word wins; the number counts the running ones."""
    running = 0
    for container in reversed(statuses):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = ended.get("reason") or _describe_exit(ended)
        elif container.get("ready") and "running" in state:
            running += 1
    if reason == "Completed" and running:
        reason = "Running" if _is_condition_true(status, "Ready") else "NotReady"
    return reason, running


def _override_reason(pod: Object, status: Object, reason: str) -> str:
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def _format_restarts(statuses: Iterable[Object], now: datetime) -> str:
    listed = list(statuses)
    count = sum(int(status.get("restartCount") or 0) for status in listed)
    ends = [
        parse_stamp(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
        for status in listed
    ]
    last = max((end for end in ends if end is not None), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({format_duration(now - last)} ago)"


def format_readiness_gates(pod: Object) -> str:
    """How many of a pod's readiness gates are open."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return "<none>"
    status = pod.get("status") or {}
    opened = sum(_is_condition_true(status, gate.get("conditionType", "")) for gate in gates)
    return f"{opened}/{len(gates)}"


def format_node_status(node: Object) -> str:
    """Whether a node is ready, and whether it takes pods."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else ("Ready" if ready == "True" else "NotReady")
    return word + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def format_node_roles(node: Object) -> str:
    """The roles a node's labels give it."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    return ",".join(sorted(roles)) or "<none>"


def find_node_address(node: Object, kind: str) -> str:
    """A node's first address of a kind."""
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), "<none>")
