"""The scale subresource: replicas and a selector, whatever the kind calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.types import ScalePaths

if TYPE_CHECKING:
    from dovetail.sim.kube.types import TypeInfo

_BUILTIN = ScalePaths(".spec.replicas", ".status.replicas")


def scale_of(info: TypeInfo, obj: dict[str, Any]) -> dict[str, Any]:
    """An object as a Scale."""
    paths = info.scale or _BUILTIN
    replicas = _read(obj, paths.spec_replicas)
    if replicas is None:
        if info.custom:
            raise status.internal(f"the spec replicas field {paths.spec_replicas!r} does not exist")
        replicas = 0
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec = {"replicas": replicas} if replicas else {}
    state: dict[str, Any] = {"replicas": _read(obj, paths.status_replicas) or 0}
    if selector := _selector(info, obj, paths):
        state["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": spec,
        "status": state,
    }


def with_scale(info: TypeInfo, obj: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """The object with the replicas a Scale asks for, and its optimistic lock."""
    metadata, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not isinstance(metadata, dict):
        raise status.bad_request("Scale cannot be decoded: spec.replicas must be a whole number")
    name = obj["metadata"]["name"]
    if metadata.get("name") not in (None, "", name):
        raise status.bad_request("the name of the scale does not match the name on the URL")
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = Cause("spec.replicas", "FieldValueInvalid", text)
        raise status.invalid_kind("Scale", "autoscaling", name, [cause])
    lock = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
    changed = _write(obj, (info.scale or _BUILTIN).spec_replicas.strip(".").split("."), replicas)
    base = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**changed, "metadata": {**base, **lock}}


def _selector(info: TypeInfo, obj: dict[str, Any], paths: ScalePaths) -> str:
    if info.custom:
        return str(_read(obj, paths.selector) or "") if paths.selector else ""
    selector = obj.get("spec", {}).get("selector") or {}
    if info.resource == "replicationcontrollers":
        selector = {"matchLabels": selector}
    return selector_text(selector)


def selector_text(selector: dict[str, Any]) -> str:
    """A LabelSelector document in the comma-separated form."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        form = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append(form.get(expression["operator"], key))
    return ",".join(sorted(terms))


def _read(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _write(obj: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    head, rest = path[0], path[1:]
    if not rest:
        return {**obj, head: value}
    child = obj.get(head)
    return {**obj, head: _write(child if isinstance(child, dict) else {}, rest, value)}
