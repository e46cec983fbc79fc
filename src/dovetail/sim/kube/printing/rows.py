"""The columns of each built-in kind, and the cells of one row.

A kind's row function gets the object and the present moment and returns one cell per column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dovetail.sim.kube.printing.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    find_node_address,
    format_access_modes,
    format_age,
    format_containers,
    format_duration,
    format_labels,
    format_node_roles,
    format_node_status,
    format_ports,
    format_readiness_gates,
    format_selector,
    parse_stamp,
    summarize_pod,
)

Object = Mapping[str, Any]
Row = Callable[[Object, datetime], list[Any]]


class TableKind(NamedTuple):
    """How one kind is shown. In `columns`, `*` marks those only shown wide, `:i :b :d` their types."""

    columns: str
    row: Row


def parts_of(obj: Object) -> tuple[str, Object, Object]:
    """An object's name, spec and status."""
    name = str((obj.get("metadata") or {}).get("name", ""))
    return name, obj.get("spec") or {}, obj.get("status") or {}


def format_object_age(obj: Object, now: datetime) -> str:
    """How old an object is."""
    return format_age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def created_at(obj: Object) -> Any:
    """When an object was created."""
    return (obj.get("metadata") or {}).get("creationTimestamp")


def _build_pod_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready, word, restarts = summarize_pod(obj, now)
    ips = status.get("podIPs") or ()
    return [
        *(name, ready, word, restarts, format_object_age(obj, now)),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        format_readiness_gates(obj),
    ]


def _build_node_row(obj: Object, now: datetime) -> list[Any]:
    name, _, status = parts_of(obj)
    info = status.get("nodeInfo") or {}
    return [
        *(
            name,
            format_node_status(obj),
            format_node_roles(obj),
            format_object_age(obj, now),
            info.get("kubeletVersion") or "",
        ),
        *(find_node_address(obj, "InternalIP"), find_node_address(obj, "ExternalIP")),
        *(info.get(key) or UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _build_workload_tail(spec: Object) -> list[Any]:
    return [*format_containers(spec.get("template") or {}), format_selector(spec.get("selector"))]


def _read_number(part: Object, key: str) -> int:
    return int(part.get(key) or 0)


def _build_deployment_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready = f"{_read_number(status, 'readyReplicas')}/{_read_number(spec, 'replicas')}"
    counts = [_read_number(status, "updatedReplicas"), _read_number(status, "availableReplicas")]
    return [name, ready, *counts, format_object_age(obj, now), *_build_workload_tail(spec)]


def _build_replica_set_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    counts = [
        _read_number(spec, "replicas"),
        _read_number(status, "replicas"),
        _read_number(status, "readyReplicas"),
    ]
    return [name, *counts, format_object_age(obj, now), *_build_workload_tail(spec)]


def _build_replication_controller_row(obj: Object, now: datetime) -> list[Any]:
    _, spec, _ = parts_of(obj)
    return [
        *_build_replica_set_row({**obj, "spec": {**spec, "selector": None}}, now)[:-1],
        format_labels(spec.get("selector")),
    ]


_DAEMON_COUNTS = (
    *("desiredNumberScheduled", "currentNumberScheduled", "numberReady"),
    *("updatedNumberScheduled", "numberAvailable"),
)


def _build_daemon_set_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    counts = [_read_number(status, key) for key in _DAEMON_COUNTS]
    where = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")
    return [name, *counts, format_labels(where), format_object_age(obj, now), *_build_workload_tail(spec)]


def _build_stateful_set_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    ready = f"{_read_number(status, 'readyReplicas')}/{_read_number(spec, 'replicas')}"
    return [name, ready, format_object_age(obj, now), *format_containers(spec.get("template") or {})]


def _build_job_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    started, ended = parse_stamp(status.get("startTime")), parse_stamp(status.get("completionTime"))
    length = "" if started is None else format_duration((ended or now) - started)
    return [
        *(
            name,
            _describe_job_status(obj, status),
            _format_completions(spec, status),
            length,
            format_object_age(obj, now),
        ),
        *_build_workload_tail(spec),
    ]


def _describe_job_status(obj: Object, status: Object) -> str:
    held = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    for word in ("Complete", "Failed"):
        if word in held:
            return word
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return next((w for w in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if w in held), "Running")


def _format_completions(spec: Object, status: Object) -> str:
    done = _read_number(status, "succeeded")
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = _read_number(spec, "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _build_cron_job_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    suspended = {True: "True", False: "False"}.get(spec.get("suspend", ""), UNSET)
    last = format_age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        *(name, spec.get("schedule", ""), spec.get("timeZone") or NONE, suspended),
        *(
            len(status.get("active") or ()),
            last,
            format_object_age(obj, now),
            *_build_workload_tail(template),
        ),
    ]


def _build_service_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    kind = spec.get("type") or "ClusterIP"
    return [
        *(name, kind, spec.get("clusterIP") or NONE, _format_external_address(obj, kind)),
        *(format_ports(spec.get("ports")), format_object_age(obj, now), format_labels(spec.get("selector"))),
    ]


def _format_external_address(obj: Object, kind: str) -> str:
    _, spec, status = parts_of(obj)
    given = ",".join(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
        found = ",".join(i.get("ip") or i.get("hostname") or "" for i in ingress)
        return ",".join(filter(None, (found, given))) or "<pending>"
    return given or NONE


def _build_event_row(obj: Object, now: datetime) -> list[Any]:
    """Either view of an event: core/v1 or events.k8s.io."""
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    start = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    kind, name = str(target.get("kind", "")), target.get("name")
    return [
        *(format_age(last or start, now), obj.get("type", ""), obj.get("reason", "")),
        f"{kind.lower()}/{name}" if name else kind.lower(),
        target.get("fieldPath", ""),
        _format_source(obj),
        str(obj.get("message") or obj.get("note") or "").strip(),
        format_age(start, now),
        series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1,
        parts_of(obj)[0],
    ]


def _format_source(obj: Object) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = (
        source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    )
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def _build_namespace_row(obj: Object, now: datetime) -> list[Any]:
    name, _, status = parts_of(obj)
    return [name, status.get("phase", ""), format_object_age(obj, now)]


def _build_config_map_row(obj: Object, now: datetime) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [parts_of(obj)[0], count, format_object_age(obj, now)]


def _build_secret_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], obj.get("type", ""), len(obj.get("data") or ()), format_object_age(obj, now)]


def _build_pdb_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    limits = [str(spec[k]) if spec.get(k) is not None else "N/A" for k in ("minAvailable", "maxUnavailable")]
    return [name, *limits, _read_number(status, "disruptionsAllowed"), format_object_age(obj, now)]


def _read_phase(obj: Object) -> str:
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _build_claim_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    volume = spec.get("volumeName") or ""
    capacity = str((status.get("capacity") or {}).get("storage", "")) if volume else ""
    modes = format_access_modes(status.get("accessModes")) if volume else ""
    return [
        *(name, _read_phase(obj), volume, capacity, modes, spec.get("storageClassName") or ""),
        *(
            spec.get("volumeAttributesClassName") or UNSET,
            format_object_age(obj, now),
            spec.get("volumeMode") or UNSET,
        ),
    ]


def _build_volume_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    claim = spec.get("claimRef") or {}
    return [
        *(
            name,
            str((spec.get("capacity") or {}).get("storage", "")),
            format_access_modes(spec.get("accessModes")),
        ),
        *(spec.get("persistentVolumeReclaimPolicy", ""), _read_phase(obj)),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        *(spec.get("storageClassName") or "", spec.get("volumeAttributesClassName") or UNSET),
        *(status.get("reason", ""), format_object_age(obj, now), spec.get("volumeMode") or UNSET),
    ]


def _build_storage_class_row(obj: Object, now: datetime) -> list[Any]:
    name = parts_of(obj)[0]
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        *(name, obj.get("provisioner", ""), obj.get("reclaimPolicy") or "Delete"),
        *(
            obj.get("volumeBindingMode") or "Immediate",
            bool(obj.get("allowVolumeExpansion")),
            format_object_age(obj, now),
        ),
    ]


def _build_csi_node_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    return [name, len(spec.get("drivers") or ()), format_object_age(obj, now)]


def _build_attachment_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    volume = (spec.get("source") or {}).get("persistentVolumeName") or ""
    attached = bool(status.get("attached"))
    return [
        name,
        spec.get("attacher", ""),
        volume,
        spec.get("nodeName", ""),
        attached,
        format_object_age(obj, now),
    ]


def _build_priority_class_row(obj: Object, now: datetime) -> list[Any]:
    default, policy = bool(obj.get("globalDefault")), obj.get("preemptionPolicy") or ""
    return [parts_of(obj)[0], _read_number(obj, "value"), default, format_object_age(obj, now), policy]


def _build_lease_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    return [name, spec.get("holderIdentity") or "", format_object_age(obj, now)]


def _build_limit_range_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], created_at(obj)]


def _build_definition_row(obj: Object, now: datetime) -> list[Any]:
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


def _build_plain_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], format_object_age(obj, now)]


PLAIN = TableKind("Name, Age", _build_plain_row)
_WORKLOAD = "Containers*, Images*, Selector*"
_REPLICAS = TableKind(f"Name, Desired:i, Current:i, Ready:i, Age, {_WORKLOAD}", _build_replica_set_row)

KINDS: dict[str, TableKind] = {
    "pods": TableKind(
        "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
        _build_pod_row,
    ),
    "nodes": TableKind(
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, "
        "Container-Runtime*",
        _build_node_row,
    ),
    "deployments.apps": TableKind(
        f"Name, Ready, Up-to-date, Available, Age, {_WORKLOAD}", _build_deployment_row
    ),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": TableKind(_REPLICAS.columns, _build_replication_controller_row),
    "daemonsets.apps": TableKind(
        "Name, Desired:i, Current:i, Ready:i, Up-to-date:i, Available:i, Node Selector, Age, " + _WORKLOAD,
        _build_daemon_set_row,
    ),
    "statefulsets.apps": TableKind("Name, Ready, Age, Containers*, Images*", _build_stateful_set_row),
    "jobs.batch": TableKind(f"Name, Status, Completions, Duration, Age, {_WORKLOAD}", _build_job_row),
    "cronjobs.batch": TableKind(
        f"Name, Schedule, Timezone, Suspend:b, Active:i, Last Schedule, Age, {_WORKLOAD}", _build_cron_job_row
    ),
    "services": TableKind("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*", _build_service_row),
    "events": TableKind(
        "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
        _build_event_row,
    ),
    "namespaces": TableKind("Name, Status, Age", _build_namespace_row),
    "configmaps": TableKind("Name, Data, Age", _build_config_map_row),
    "secrets": TableKind("Name, Type, Data, Age", _build_secret_row),
    "poddisruptionbudgets.policy": TableKind(
        "Name, Min Available, Max Unavailable, Allowed Disruptions:i, Age", _build_pdb_row
    ),
    "persistentvolumeclaims": TableKind(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*",
        _build_claim_row,
    ),
    "persistentvolumes": TableKind(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
        "Reason, Age, VolumeMode*",
        _build_volume_row,
    ),
    "storageclasses.storage.k8s.io": TableKind(
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        _build_storage_class_row,
    ),
    "csinodes.storage.k8s.io": TableKind("Name, Drivers:i, Age", _build_csi_node_row),
    "volumeattachments.storage.k8s.io": TableKind(
        "Name, Attacher, PV, Node, Attached:b, Age", _build_attachment_row
    ),
    "priorityclasses.scheduling.k8s.io": TableKind(
        "Name, Value:i, Global-Default:b, Age, PreemptionPolicy", _build_priority_class_row
    ),
    "leases.coordination.k8s.io": TableKind("Name, Holder, Age", _build_lease_row),
    "limitranges": TableKind("Name, Created At:d", _build_limit_range_row),
    "customresourcedefinitions.apiextensions.k8s.io": TableKind(
        "Name, Scope, Versions, Created At:d, Group*, Kind*, ShortNames*, Established:b*",
        _build_definition_row,
    ),
}
KINDS["events.events.k8s.io"] = KINDS["events"]
