"""The columns of autoscalers, network kinds, roles, quotas, webhooks and their like."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from dovetail.sim.kube.builtin.autoscalers import to_v2
from dovetail.sim.kube.printing.cells import NONE, UNKNOWN, UNSET, format_selector
from dovetail.sim.kube.printing.rows import Object, TableKind, created_at, format_object_age, parts_of

_SHOWN_METRICS = 2
_SHOWN_ADDRESSES = 3


def _build_autoscaler_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(to_v2(dict(obj)))
    target = spec.get("scaleTargetRef") or {}
    return [
        *(name, f"{target.get('kind', '')}/{target.get('name', '')}"),
        _format_targets(spec.get("metrics") or [], status.get("currentMetrics") or []),
        *(str(spec.get("minReplicas", UNSET)), spec.get("maxReplicas", 0), status.get("currentReplicas", 0)),
        format_object_age(obj, now),
    ]


def _format_targets(metrics: list[Any], current: list[Any]) -> str:
    if not metrics:
        return NONE
    shown = [
        _format_target(each, current[index] if index < len(current) else {})
        for index, each in enumerate(metrics[:_SHOWN_METRICS])
    ]
    more = len(metrics) - len(shown)
    return ", ".join(shown) + (f" + {more} more..." if more else "")


def _format_target(metric: Object, current: Object) -> str:
    """One metric: what it is now, and what it should be."""
    kind = metric.get("type", "")
    field = kind[:1].lower() + kind[1:]
    source, wanted = metric.get(field) or {}, (metric.get(field) or {}).get("target") or {}
    now = (current.get(field) or {}).get("current") or {}
    named = f"{source.get('name', '')}: " if "Resource" in kind else ""
    if "averageUtilization" in wanted:
        share = now.get("averageUtilization")
        return f"{named}{UNKNOWN if share is None else f'{share}%'}/{wanted['averageUtilization']}%"
    average = "averageValue" in wanted
    amount = "averageValue" if average else "value"
    suffix = " (avg)" if average and kind in ("Object", "External") else ""
    return f"{named}{now.get(amount, UNKNOWN)}/{wanted.get(amount, UNKNOWN)}{suffix}"


def _build_ingress_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    shown = ",".join(hosts[:_SHOWN_ADDRESSES])
    if len(hosts) > _SHOWN_ADDRESSES:
        shown = f"{shown} + {len(hosts) - _SHOWN_ADDRESSES} more..."
    points = (status.get("loadBalancer") or {}).get("ingress") or ()
    address = ",".join(point.get("ip") or point.get("hostname", "") for point in points)
    ports = "80, 443" if spec.get("tls") else "80"
    return [
        name,
        spec.get("ingressClassName") or NONE,
        shown or "*",
        address,
        ports,
        format_object_age(obj, now),
    ]


def _build_ingress_class_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    given = spec.get("parameters") or {}
    kind = ".".join(filter(None, (given.get("kind"), given.get("apiGroup"))))
    return [
        name,
        spec.get("controller", ""),
        f"{kind}/{given.get('name')}" if given else NONE,
        format_object_age(obj, now),
    ]


def _build_network_policy_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    return [name, format_selector(spec.get("podSelector")), format_object_age(obj, now)]


def _build_role_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], created_at(obj)]


def _build_role_binding_row(obj: Object, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()
    accounts = [f"{s.get('namespace', '')}/{s['name']}" for s in subjects if s["kind"] == "ServiceAccount"]
    return [
        *(parts_of(obj)[0], f"{role.get('kind', '')}/{role.get('name', '')}", format_object_age(obj, now)),
        *(", ".join(s["name"] for s in subjects if s["kind"] == kind) for kind in ("User", "Group")),
        ", ".join(accounts),
    ]


def _build_quota_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, status = parts_of(obj)
    hard = status.get("hard") or spec.get("hard") or {}
    used = status.get("used") or {}
    lines = {key: f"{key}: {used.get(key, 0)}/{hard[key]}" for key in sorted(hard)}
    limits = [line for key, line in lines.items() if key.startswith("limits.")]
    requests = [line for key, line in lines.items() if not key.startswith("limits.")]
    return [name, ", ".join(requests), ", ".join(limits), format_object_age(obj, now)]


def _build_runtime_class_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], obj.get("handler", ""), format_object_age(obj, now)]


def _build_webhooks_row(obj: Object, now: datetime) -> list[Any]:
    return [parts_of(obj)[0], len(obj.get("webhooks") or ()), format_object_age(obj, now)]


def _build_policy_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    kind = spec.get("paramKind") or {}
    shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
    return [name, len(spec.get("validations") or ()), shown, format_object_age(obj, now)]


def _build_policy_binding_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    given = spec.get("paramRef") or {}
    shown = "/".join(filter(None, (given.get("namespace"), given.get("name")))) or UNSET
    return [name, spec.get("policyName", ""), shown, format_object_age(obj, now)]


def _build_driver_row(obj: Object, now: datetime) -> list[Any]:
    name, spec, _ = parts_of(obj)
    tokens = ",".join(each.get("audience", "") for each in spec.get("tokenRequests") or ()) or UNSET
    flags = [spec.get(key, default) for key, default in _DRIVER_FLAGS]
    modes = ",".join(spec.get("volumeLifecycleModes") or ("Persistent",))
    return [name, *flags, tokens, spec.get("requiresRepublish", False), modes, format_object_age(obj, now)]


_DRIVER_FLAGS = (("attachRequired", True), ("podInfoOnMount", False), ("storageCapacity", False))


def _build_slice_row(obj: Object, now: datetime) -> list[Any]:
    ports = _format_list(str(port.get("port", "*")) for port in obj.get("ports") or ())
    addresses = (address for each in obj.get("endpoints") or () for address in each.get("addresses") or ())
    return [
        parts_of(obj)[0],
        obj.get("addressType", ""),
        ports,
        _format_list(addresses),
        format_object_age(obj, now),
    ]


def _format_list(items: Iterable[str]) -> str:
    found = list(items)
    if not found:
        return UNSET
    more = f" + {len(found) - _SHOWN_ADDRESSES} more..." if len(found) > _SHOWN_ADDRESSES else ""
    return ",".join(found[:_SHOWN_ADDRESSES]) + more


def _build_revision_row(obj: Object, now: datetime) -> list[Any]:
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = f"{'.'.join(filter(None, (owner['kind'].lower(), group)))}/{owner['name']}"
    return [parts_of(obj)[0], shown, obj.get("revision", 0), format_object_age(obj, now)]


_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_BINDINGS = TableKind("Name, Role, Age, Users*, Groups*, ServiceAccounts*", _build_role_binding_row)
_ROLES = TableKind("Name, Created At:d", _build_role_row)
_HOOKS = TableKind("Name, Webhooks:i, Age", _build_webhooks_row)
REST_KINDS: dict[str, TableKind] = {
    "horizontalpodautoscalers.autoscaling": TableKind(
        "Name, Reference, Targets, MinPods, MaxPods, Replicas:i, Age", _build_autoscaler_row
    ),
    "ingresses.networking.k8s.io": TableKind("Name, Class, Hosts, Address, Ports, Age", _build_ingress_row),
    "ingressclasses.networking.k8s.io": TableKind(
        "Name, Controller, Parameters, Age", _build_ingress_class_row
    ),
    "networkpolicies.networking.k8s.io": TableKind("Name, Pod-Selector, Age", _build_network_policy_row),
    f"roles.{_RBAC}": _ROLES,
    f"clusterroles.{_RBAC}": _ROLES,
    f"rolebindings.{_RBAC}": _BINDINGS,
    f"clusterrolebindings.{_RBAC}": _BINDINGS,
    "resourcequotas": TableKind("Name, Request, Limit, Age", _build_quota_row),
    "runtimeclasses.node.k8s.io": TableKind("Name, Handler, Age", _build_runtime_class_row),
    f"mutatingwebhookconfigurations.{_ADMISSION}": _HOOKS,
    f"validatingwebhookconfigurations.{_ADMISSION}": _HOOKS,
    f"validatingadmissionpolicies.{_ADMISSION}": TableKind(
        "Name, Validations:i, ParamKind, Age", _build_policy_row
    ),
    f"validatingadmissionpolicybindings.{_ADMISSION}": TableKind(
        "Name, PolicyName, ParamRef, Age", _build_policy_binding_row
    ),
    "csidrivers.storage.k8s.io": TableKind(
        "Name, AttachRequired:b, PodInfoOnMount:b, StorageCapacity:b, TokenRequests, RequiresRepublish:b, "
        "Modes, Age",
        _build_driver_row,
    ),
    "endpointslices.discovery.k8s.io": TableKind(
        "Name, AddressType, Ports, Endpoints, Age", _build_slice_row
    ),
    "controllerrevisions.apps": TableKind("Name, Controller, Revision:i, Age", _build_revision_row),
}
