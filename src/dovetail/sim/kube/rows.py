"""The columns of each built-in kind, and the cells of one row.

A kind's row function gets the object and the present moment and returns one cell per column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dovetail.sim.kube.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    access_modes,
    age,
    containers,
    labels,
    parsed,
    ports,
    selector,
    short_duration,
)
from dovetail.sim.kube.pod_cells import node_address, node_roles, node_status, pod_summary, readiness_gates

Object = Mapping[str, Any]
Row = Callable[[Object, datetime], list[Any]]


class Kind(NamedTuple):
    """How one kind is shown. In `columns`, `*` marks those only shown wide, `:i :b :d` their types."""

    columns: str
    row: Row


def parts_of(obj: Object) -> tuple[str, Object, Object]:
    """An object's name, spec and status."""
    name = str((obj.get("metadata") or {}).get("name", ""))
    return name, obj.get("spec") or {}, obj.get("status") or {}


def age_of(obj: Object, now: datetime) -> str:
    """How old an object is."""
    return age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def created_at(obj: Object) -> Any:
    """When an object was created."""
    return (obj.get("metadata") or {}).get("creationTimestamp")


def _pod(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready, word, restarts = pod_summary(obj, now)
    ips = status.get("podIPs") or ()
    return [
        *(name, ready, word, restarts, age_of(obj, now)),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        readiness_gates(obj),
    ]


def _node(obj: Object, now: datetime) -> list[Any]:
    name, _, status = parts_of(obj)
    info = status.get("nodeInfo") or {}
    return [
        *(name, node_status(obj), node_roles(obj), age_of(obj, now), info.get("kubeletVersion") or ""),
        *(node_address(obj, "InternalIP"), node_address(obj, "ExternalIP")),
        *(info.get(key) or UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _workload_tail(spec: Object) -> list[Any]:
    return [*containers(spec.get("template") or {}), selector(spec.get("selector"))]


def _number(part: Object, key: str) -> int:
    return int(part.get(key) or 0)


def _deployment(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready = f"{_number(status, 'readyReplicas')}/{_number(spec, 'replicas')}"
    counts = [_number(status, "updatedReplicas"), _number(status, "availableReplicas")]
    return [name, ready, *counts, age_of(obj, now), *_workload_tail(spec)]


def _replica_set(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    counts = [_number(spec, "replicas"), _number(status, "replicas"), _number(status, "readyReplicas")]
    return [name, *counts, age_of(obj, now), *_workload_tail(spec)]


def _replication_controller(obj: Object, now: datetime) -> list[Any]:
    _, spec, _ = parts_of(obj)
    return [
        *_replica_set({**obj, "spec": {**spec, "selector": None}}, now)[:-1],
        labels(spec.get("selector")),
    ]


_DAEMON_COUNTS = (
    *("desiredNumberScheduled", "currentNumberScheduled", "numberReady"),
    *("updatedNumberScheduled", "numberAvailable"),
)


def _daemon_set(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    counts = [_number(status, key) for key in _DAEMON_COUNTS]
    where = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")
    return [name, *counts, labels(where), age_of(obj, now), *_workload_tail(spec)]


def _stateful_set(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready = f"{_number(status, 'readyReplicas')}/{_number(spec, 'replicas')}"
    return [name, ready, age_of(obj, now), *containers(spec.get("template") or {})]


def _job(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    started, ended = parsed(status.get("startTime")), parsed(status.get("completionTime"))
    length = "" if started is None else short_duration((ended or now) - started)
    return [
        *(name, _job_status(obj, status), _completions(spec, status), length, age_of(obj, now)),
        *_workload_tail(spec),
    ]


def _job_status(obj: Object, status: Object) -> str:
    held = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    for word in ("Complete", "Failed"):
        if word in held:
            return word
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return next((w for w in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if w in held), "Running")


def _completions(spec: Object, status: Object) -> str:
    done = _number(status, "succeeded")
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = _number(spec, "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _cron_job(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    suspended = {True: "True", False: "False"}.get(spec.get("suspend", ""), UNSET)
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        *(name, spec.get("schedule", ""), spec.get("timeZone") or NONE, suspended),
        *(len(status.get("active") or ()), last, age_of(obj, now), *_workload_tail(template)),
    ]


def _service(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    kind = spec.get("type") or "ClusterIP"
    return [
        *(name, kind, spec.get("clusterIP") or NONE, _external(obj, kind)),
        *(ports(spec.get("ports")), age_of(obj, now), labels(spec.get("selector"))),
    ]


def _external(obj: Object, kind: str) -> str:
    _, spec, status = parts_of(obj)
    given = ",".join(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
        found = ",".join(i.get("ip") or i.get("hostname") or "" for i in ingress)
        return ",".join(filter(None, (found, given))) or "<pending>"
    return given or NONE


def _event(obj: Object, now: datetime) -> list[Any]:
    """Either view of an event: core/v1 or events.k8s.io."""
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    start = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    kind, name = str(target.get("kind", "")), target.get("name")
    return [
        *(age(last or start, now), obj.get("type", ""), obj.get("reason", "")),
        f"{kind.lower()}/{name}" if name else kind.lower(),
        target.get("fieldPath", ""),
        _source(obj),
        str(obj.get("message") or obj.get("note") or "").strip(),
        age(start, now),
        series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1,
        parts_of(obj)[0],
    ]


def _source(obj: Object) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = (
        source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    )
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def _namespace(obj: Object, now: datetime) -> list[Any]:
    name, _, status = parts_of(obj)
    return [name, status.get("phase", ""), age_of(obj, now)]


def _config_map(obj: Object, now: datetime) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [parts_of(obj)[0], count, age_of(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def _pdb(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    limits = [str(spec[k]) if spec.get(k) is not None else "N/A" for k in ("minAvailable", "maxUnavailable")]
    return [name, *limits, _number(status, "disruptionsAllowed"), age_of(obj, now)]


def _phase(obj: Object) -> str:
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _claim(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    volume = spec.get("volumeName") or ""
    capacity = str((status.get("capacity") or {}).get("storage", "")) if volume else ""
    modes = access_modes(status.get("accessModes")) if volume else ""
    return [
        *(name, _phase(obj), volume, capacity, modes, spec.get("storageClassName") or ""),
        *(spec.get("volumeAttributesClassName") or UNSET, age_of(obj, now), spec.get("volumeMode") or UNSET),
    ]


def _volume(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    claim = spec.get("claimRef") or {}
    return [
        *(name, str((spec.get("capacity") or {}).get("storage", "")), access_modes(spec.get("accessModes"))),
        *(spec.get("persistentVolumeReclaimPolicy", ""), _phase(obj)),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        *(spec.get("storageClassName") or "", spec.get("volumeAttributesClassName") or UNSET),
        *(status.get("reason", ""), age_of(obj, now), spec.get("volumeMode") or UNSET),
    ]


def _storage_class(obj: Object, now: datetime) -> list[Any]:
    name = parts_of(obj)[0]
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        *(name, obj.get("provisioner", ""), obj.get("reclaimPolicy") or "Delete"),
        *(
            obj.get("volumeBindingMode") or "Immediate",
            bool(obj.get("allowVolumeExpansion")),
            age_of(obj, now),
        ),
    ]


def _csi_node(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    return [name, len(spec.get("drivers") or ()), age_of(obj, now)]


def _attachment(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    volume = (spec.get("source") or {}).get("persistentVolumeName") or ""
    attached = bool(status.get("attached"))
    return [name, spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(obj, now)]


def _priority_class(obj: Object, now: datetime) -> list[Any]:
    default, policy = bool(obj.get("globalDefault")), obj.get("preemptionPolicy") or ""
    return [parts_of(obj)[0], _number(obj, "value"), default, age_of(obj, now), policy]


def _lease(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    return [name, spec.get("holderIdentity") or "", age_of(obj, now)]


def _limit_range(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], created_at(obj)]


def _definition(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    names = spec.get("names") or {}
    held = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    versions = ",".join(v.get("name", "") for v in spec.get("versions") or ())
    return [
        *(
            name,
            spec.get("scope", ""),
            versions,
            created_at(obj),
            spec.get("group", ""),
            names.get("kind", ""),
        ),
        *(",".join(names.get("shortNames") or ()) or NONE, "Established" in held),
    ]


def _plain(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], age_of(obj, now)]


PLAIN = Kind("Name, Age", _plain)
_WORKLOAD = "Containers*, Images*, Selector*"
_REPLICAS = Kind(f"Name, Desired:i, Current:i, Ready:i, Age, {_WORKLOAD}", _replica_set)

KINDS: dict[str, Kind] = {
    "pods": Kind(
        "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
        _pod,
    ),
    "nodes": Kind(
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, "
        "Container-Runtime*",
        _node,
    ),
    "deployments.apps": Kind(f"Name, Ready, Up-to-date, Available, Age, {_WORKLOAD}", _deployment),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": Kind(_REPLICAS.columns, _replication_controller),
    "daemonsets.apps": Kind(
        "Name, Desired:i, Current:i, Ready:i, Up-to-date:i, Available:i, Node Selector, Age, " + _WORKLOAD,
        _daemon_set,
    ),
    "statefulsets.apps": Kind("Name, Ready, Age, Containers*, Images*", _stateful_set),
    "jobs.batch": Kind(f"Name, Status, Completions, Duration, Age, {_WORKLOAD}", _job),
    "cronjobs.batch": Kind(
        f"Name, Schedule, Timezone, Suspend:b, Active:i, Last Schedule, Age, {_WORKLOAD}", _cron_job
    ),
    "services": Kind("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*", _service),
    "events": Kind(
        "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*", _event
    ),
    "namespaces": Kind("Name, Status, Age", _namespace),
    "configmaps": Kind("Name, Data, Age", _config_map),
    "secrets": Kind("Name, Type, Data, Age", _secret),
    "poddisruptionbudgets.policy": Kind(
        "Name, Min Available, Max Unavailable, Allowed Disruptions:i, Age", _pdb
    ),
    "persistentvolumeclaims": Kind(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*",
        _claim,
    ),
    "persistentvolumes": Kind(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
        "Reason, Age, VolumeMode*",
        _volume,
    ),
    "storageclasses.storage.k8s.io": Kind(
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age", _storage_class
    ),
    "csinodes.storage.k8s.io": Kind("Name, Drivers:i, Age", _csi_node),
    "volumeattachments.storage.k8s.io": Kind("Name, Attacher, PV, Node, Attached:b, Age", _attachment),
    "priorityclasses.scheduling.k8s.io": Kind(
        "Name, Value:i, Global-Default:b, Age, PreemptionPolicy", _priority_class
    ),
    "leases.coordination.k8s.io": Kind("Name, Holder, Age", _lease),
    "limitranges": Kind("Name, Created At:d", _limit_range),
    "customresourcedefinitions.apiextensions.k8s.io": Kind(
        "Name, Scope, Versions, Created At:d, Group*, Kind*, ShortNames*, Established:b*", _definition
    ),
}
KINDS["events.events.k8s.io"] = KINDS["events"]
