"""CustomResourceDefinitions: what a definition must say, the types it serves, and the status it earns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dovetail.api.schema.object_schema import Schema
from dovetail.sim.kube.builtin.kind_schemas import find_metadata_node
from dovetail.sim.kube.schema.crd_checks import validate_crd
from dovetail.sim.kube.types import CrdColumn, Generation, ScalePaths, StatusSplit, Subresource, TypeInfo

__all__ = [
    "build_established_status",
    "compile_definition",
    "find_storage_version",
    "list_accepted_names",
    "validate_crd",
    "with_defaults",
]

_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")


def with_defaults(crd: Mapping[str, Any]) -> dict[str, Any]:
    """The definition with the names and the conversion it leaves to the server."""
    spec = dict(crd.get("spec") or {})
    names = dict(spec.get("names") or {})
    kind = names.get("kind") or ""
    names["singular"] = names.get("singular") or kind.lower()
    names["listKind"] = names.get("listKind") or f"{kind}List"
    spec["names"] = names
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    return {**crd, "spec": spec}


def compile_definition(crd: Mapping[str, Any]) -> list[TypeInfo]:
    """The types a valid definition serves, one for each served version."""
    return [_build_type(crd, version) for version in crd["spec"]["versions"] if version.get("served")]


def _build_type(crd: Mapping[str, Any], version: Mapping[str, Any]) -> TypeInfo:
    spec = crd["spec"]
    names = with_defaults(crd)["spec"]["names"]
    subresources = version.get("subresources") or {}
    has_status = "status" in subresources
    document = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return TypeInfo(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names["singular"],
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(_list_subresources(names["kind"], subresources)),
        generation=Generation.SPEC if has_status else Generation.ALL,
        status=StatusSplit.CUSTOM if has_status else StatusSplit.NONE,
        selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        printer_columns=tuple(map(_parse_column, version.get("additionalPrinterColumns") or ())),
        schema=Schema.from_openapi(document, find_metadata_node()),
        scale=_parse_scale(subresources.get("scale")),
        custom=True,
        deprecated=bool(version.get("deprecated")),
        needs_webhook=(spec.get("conversion") or {}).get("strategy") == "Webhook",
        deprecation_warning=_describe_deprecation(spec["group"], names["kind"], version),
    )


def _list_subresources(kind: str, declared: Mapping[str, Any]) -> Iterator[Subresource]:
    if "status" in declared:
        yield Subresource("status", kind)
    if "scale" in declared:
        yield _SCALE


def _parse_column(column: Mapping[str, Any]) -> CrdColumn:
    return CrdColumn(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        description=column.get("description") or "",
        format=column.get("format") or "",
        priority=column.get("priority") or 0,
    )


def _parse_scale(declared: Mapping[str, Any] | None) -> ScalePaths | None:
    if declared is None:
        return None
    return ScalePaths(
        spec_replicas=declared["specReplicasPath"],
        status_replicas=declared["statusReplicasPath"],
        selector=declared.get("labelSelectorPath") or "",
    )


def _describe_deprecation(group: str, kind: str, version: Mapping[str, Any]) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def find_storage_version(crd: Mapping[str, Any]) -> str:
    """The version objects are kept in."""
    return next(str(v["name"]) for v in crd["spec"]["versions"] if v.get("storage"))


def list_accepted_names(crd: Mapping[str, Any]) -> dict[str, Any]:
    """The definition's names, completed."""
    names: dict[str, Any] = with_defaults(crd)["spec"]["names"]
    return {key: value for key, value in names.items() if value}


def build_established_status(
    crd: Mapping[str, Any], now: str, others: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The status a definition has once the server looked at it, among `others` of the same server."""
    old = crd.get("status") or {}
    names = list_accepted_names(crd)
    clash = _find_name_clash(crd, names, others)
    stored = list(old.get("storedVersions") or ())
    if (version := find_storage_version(crd)) not in stored:
        stored.append(version)
    if clash:
        reason, message = clash
        accepted = _build_condition("NamesAccepted", "False", reason, message, now)
        established = _build_condition(
            "Established", "False", "NotAccepted", "not all names are accepted", now
        )
    else:
        accepted = _build_condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
        message = "the initial names have been accepted"
        established = _build_condition("Established", "True", "InitialNamesAccepted", message, now)
    conditions = [
        _keep_transition_time(condition, old.get("conditions") or ()) for condition in (accepted, established)
    ]
    return {
        **old,
        "acceptedNames": (old.get("acceptedNames") or {"plural": "", "kind": ""}) if clash else names,
        "conditions": _merge_conditions(old.get("conditions") or (), conditions),
        "storedVersions": stored,
    }


def _build_condition(kind: str, status: str, reason: str, message: str, now: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _keep_transition_time(new: dict[str, Any], old: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The condition, with the time it became what it is."""
    before = next((c for c in old if c.get("type") == new["type"]), None)
    if before is None or before.get("status") != new["status"]:
        return new
    return {**new, "lastTransitionTime": before.get("lastTransitionTime", new["lastTransitionTime"])}


def _merge_conditions(old: Iterable[Mapping[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mine = {condition["type"] for condition in new}
    return [*new, *(dict(condition) for condition in old if condition.get("type") not in mine)]


def _find_name_clash(
    crd: Mapping[str, Any], names: Mapping[str, Any], others: Iterable[Mapping[str, Any]]
) -> tuple[str, str] | None:
    """The first name that another definition of the group already has."""
    group = crd["spec"]["group"]
    rivals = [
        (other.get("status") or {}).get("acceptedNames") or list_accepted_names(other)
        for other in others
        if other["spec"]["group"] == group and other["metadata"]["name"] != crd["metadata"]["name"]
    ]
    resources = {
        n for r in rivals for n in (r.get("plural"), r.get("singular"), *(r.get("shortNames") or ()))
    }
    kinds = {n for r in rivals for n in (r.get("kind"), r.get("listKind"))}
    wanted = [("PluralConflict", names["plural"]), ("SingularConflict", names["singular"])]
    wanted += [("ShortNamesConflict", name) for name in names.get("shortNames") or ()]
    for reason, name in wanted:
        if name in resources:
            return reason, f'"{name}" is already in use'
    for reason, name in (("KindConflict", names["kind"]), ("ListKindConflict", names["listKind"])):
        if name in kinds:
            return reason, f'"{name}" is already in use'
    return None
