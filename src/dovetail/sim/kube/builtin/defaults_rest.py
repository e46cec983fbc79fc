"""Defaults and mutations of nodes, storage, services and the other small kinds."""

from __future__ import annotations

import base64
import ipaddress
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.meta import format_micro_time
from dovetail.sim.kube.schema.crd import build_established_status, with_defaults
from dovetail.sim.kube.schema.crd_checks import validate_crd
from dovetail.sim.kube.status import bad_request
from dovetail.sim.kube.verbs.namespaces import KUBERNETES

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)\Z", re.ASCII)
_SERVICE_NETWORK = ipaddress.ip_network("10.96.0.0/12")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_NODE_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "",
)
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def admit_new_node(core: Core, obj: dict[str, Any]) -> None:
    """A node starts out not ready; its lifecycle controller says when that changes."""
    taints = obj.setdefault("spec", {}).get("taints") or []
    if not any(all(taint.get(key) == _NOT_READY[key] for key in _NOT_READY) for taint in taints):
        obj["spec"]["taints"] = [*taints, dict(_NOT_READY)]
    default_node(obj)


def default_node(obj: dict[str, Any]) -> None:
    """What a node can give away is, unless it says otherwise, all it has."""
    obj.setdefault("spec", {})
    state = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, **(obj.get("status") or {})}
    state["nodeInfo"] = {**_NODE_INFO, **(state.get("nodeInfo") or {})}
    if state.get("capacity") and not state.get("allocatable"):
        state["allocatable"] = state["capacity"]
    obj["status"] = state
    if obj["spec"].get("podCIDR") and not obj["spec"].get("podCIDRs"):
        obj["spec"]["podCIDRs"] = [obj["spec"]["podCIDR"]]


def admit_new_namespace(core: Core, obj: dict[str, Any]) -> None:
    """A namespace is held until it is empty."""
    finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
    if KUBERNETES not in finalizers:
        finalizers.append(KUBERNETES)
    obj["status"] = {"phase": "Active"}


def default_namespace(obj: dict[str, Any]) -> None:
    """Every namespace can be selected by its name."""
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    metadata["labels"] = {**labels, "kubernetes.io/metadata.name": metadata["name"]}


def default_secret(obj: dict[str, Any]) -> None:
    """Plain text becomes data; an untyped secret is opaque."""
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    obj.setdefault("type", "Opaque")


def default_service(obj: dict[str, Any]) -> None:
    """Defaults of a Service."""
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def keep_service_address(core: Core, obj: dict[str, Any], old: dict[str, Any]) -> None:
    """An update that says nothing of addresses keeps them."""
    spec, before = obj["spec"], old["spec"]
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if name in before and spec["type"] != "ExternalName":
            spec.setdefault(name, before[name])


def admit_new_service(core: Core, obj: dict[str, Any]) -> None:
    """Give a service an address of its own, unless it wants none."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    spec["clusterIP"] = spec.get("clusterIP") or find_free_address(core)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    obj["status"] = {"loadBalancer": {}}


def find_free_address(core: Core) -> str:
    """The lowest service address nobody has."""
    taken = {each.obj["spec"].get("clusterIP") for each in core.store.get_bucket("services").in_namespace("")}
    hosts = (str(address) for address in _SERVICE_NETWORK.hosts())
    next(hosts)  # the first belongs to the API server
    return next(address for address in hosts if address not in taken)


def default_claim(obj: dict[str, Any]) -> None:
    """Defaults of a PersistentVolumeClaim."""
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def admit_new_claim(core: Core, obj: dict[str, Any]) -> None:
    """A claim is protected while in use, and belongs to the default class if it names none."""
    _add_finalizer(obj, "kubernetes.io/pvc-protection")
    obj["status"] = {"phase": "Pending"}
    annotations = obj["metadata"].get("annotations") or {}
    if "storageClassName" not in obj["spec"] and "volume.beta.kubernetes.io/storage-class" not in annotations:
        found = find_default_class(core)
        if found:
            obj["spec"]["storageClassName"] = found


def find_default_class(core: Core) -> str:
    """The newest storage class marked as default."""
    classes = (each.obj for each in core.store.get_bucket("storageclasses.storage.k8s.io").in_namespace(""))
    marked = [
        (each["metadata"]["creationTimestamp"], each["metadata"]["name"])
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    return max(marked)[1] if marked else ""


def default_volume(obj: dict[str, Any]) -> None:
    """Defaults of a PersistentVolume."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if spec.get("hostPath"):
        spec["hostPath"].setdefault("type", "")


def admit_new_attachment(core: Core, obj: dict[str, Any]) -> None:
    """A volume is not attached yet."""
    obj["status"] = {"attached": False}


def admit_new_volume(core: Core, obj: dict[str, Any]) -> None:
    """A volume is protected while bound."""
    _add_finalizer(obj, "kubernetes.io/pv-protection")
    obj["status"] = {"phase": "Pending"}


def _add_finalizer(obj: dict[str, Any], finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def default_csi_driver(obj: dict[str, Any]) -> None:
    """Defaults of a CSIDriver."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def default_policy_matches(obj: dict[str, Any]) -> None:
    """Defaults of what a ValidatingAdmissionPolicy or its binding matches."""
    spec = obj.setdefault("spec", {})
    if obj["kind"] == "ValidatingAdmissionPolicy":
        spec.setdefault("failurePolicy", "Fail")
    for name in ("matchConstraints", "matchResources"):
        matches = spec.get(name)
        if matches is None:
            continue
        matches.setdefault("matchPolicy", "Equivalent")
        matches.setdefault("namespaceSelector", {})
        matches.setdefault("objectSelector", {})
        for rule in (*(matches.get("resourceRules") or ()), *(matches.get("excludeResourceRules") or ())):
            rule.setdefault("scope", "*")


def default_storage_class(obj: dict[str, Any]) -> None:
    """Defaults of a StorageClass."""
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def default_priority_class(obj: dict[str, Any]) -> None:
    """Defaults of a PriorityClass."""
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_lease(obj: dict[str, Any]) -> None:
    """Lease times have microseconds."""
    spec = obj.setdefault("spec", {})
    for name in ("acquireTime", "renewTime"):
        if name in spec:
            spec[name] = parse_micro_time(spec[name])


def default_event(obj: dict[str, Any]) -> None:
    """Event times have microseconds; a nameless count is one kind of event, seen once."""
    if obj.get("eventTime"):
        obj["eventTime"] = parse_micro_time(obj["eventTime"])
    series = obj.get("series") or {}
    if series.get("lastObservedTime"):
        series["lastObservedTime"] = parse_micro_time(series["lastObservedTime"])


def parse_micro_time(text: str) -> str:
    """A time with microseconds, in UTC. Fewer or more digits are refused, as on a real server."""
    if not _MICRO_TIME.match(text):
        raise bad_request(
            f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00": it needs six decimals'
        )
    try:
        return format_micro_time(datetime.fromisoformat(text))
    except ValueError as error:
        raise bad_request(f'parsing time "{text}": {error}') from error


def default_limit_range(obj: dict[str, Any]) -> None:
    """For containers, a default limit is the most allowed, and a default request the default limit."""
    for limit in obj.setdefault("spec", {}).get("limits") or ():
        if limit.get("type") != "Container":
            continue
        default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        request = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
        if default:
            limit["default"] = default
        if request:
            limit["defaultRequest"] = request


def default_definition(obj: dict[str, Any]) -> None:
    """Names and conversion a definition leaves to the server."""
    obj.update(with_defaults(obj))


def establish(core: Core, obj: dict[str, Any]) -> None:
    """The status of a definition: served at once, unless another has its names."""
    if validate_crd(obj):
        return  # it will be refused, and its status cannot be told
    if not obj["metadata"].get("deletionTimestamp"):
        _add_finalizer(obj, CRD_FINALIZER)
    mine = obj["metadata"]["name"]
    others = [
        e.obj for e in core.store.get_bucket(_CRDS).in_namespace("") if e.obj["metadata"]["name"] != mine
    ]
    obj["status"] = build_established_status(obj, core.format_now(), others)
