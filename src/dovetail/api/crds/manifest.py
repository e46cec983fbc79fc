"""Definitions as CustomResourceDefinition manifests."""

from __future__ import annotations

import copy
import types
from collections.abc import Mapping
from datetime import datetime
from functools import cache, reduce
from operator import or_
from typing import Any, Union, get_args, get_origin

import msgspec

from dovetail.api.crds.commitment import COMMITMENT
from dovetail.api.crds.definition import CrdDefinition, FieldSchema, PrinterColumn
from dovetail.api.crds.nodeclaim import NODECLAIM
from dovetail.api.crds.nodepool import NODEPOOL
from dovetail.api.crds.other_kinds import CAPACITYBUFFER, NODEOVERLAY, ZONESHIFT
from dovetail.api.crds.patterns import QUANTITY
from dovetail.api.crds.providers import PROVIDER_APIS, find_provider_api
from dovetail.api.crds.spend_limit import SPENDLIMIT
from dovetail.api.meta import Object
from dovetail.api.quantity import Quantity
from dovetail.api.schema.object_schema import Schema
from dovetail.errors import Misconfigured

_SCALARS: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Quantity: {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": True,
    },
}
_TOP = {
    "apiVersion": {"type": "string", "description": "The version of the schema this object is written in."},
    "kind": {"type": "string", "description": "The kind of object this is."},
    "metadata": {"type": "object"},
}


def build_structural_schema(definition: CrdDefinition, provider: str) -> dict[str, Any]:
    """The openAPIV3Schema of a kind, rules included."""
    left = dict(definition.fields)
    root = _build_object(definition.record, left, "")
    root["properties"] |= _TOP
    root["description"] = definition.says
    if left:
        raise Misconfigured(
            f"{definition.record.__name__} has no field for these constraints: {', '.join(sorted(left))}"
        )
    for rule in definition.rules_of(provider):
        node = _node_at(root, rule.at)
        node.setdefault("x-kubernetes-validations", []).append({"message": rule.says, "rule": rule.cel})
    return root


def _build_object(record: Any, left: dict[str, FieldSchema], prefix: str) -> dict[str, Any]:
    """One record. Rows are taken out of `left` as they are used, so that what stays belongs to no field."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for attribute in msgspec.structs.fields(record):
        name = attribute.encode_name
        if not prefix and name == "metadata":
            continue
        row = left.pop(prefix + name, None)
        if row is None:
            raise Misconfigured(f"{record.__name__}.{attribute.name} has no row for {prefix + name}")
        properties[name] = _build_field(attribute.type, row, left, prefix + name)
        if row.required:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": sorted(required)} if required else {})


def _build_field(kind: Any, row: FieldSchema, left: dict[str, FieldSchema], path: str) -> dict[str, Any]:
    schema = _build_type(kind, row, left, path)
    return schema | {"description": row.says} | dict(row.schema)


def _build_type(kind: Any, row: FieldSchema, left: dict[str, FieldSchema], path: str) -> dict[str, Any]:
    bare = _without_none(kind)
    if isinstance(bare, types.UnionType) and "type" in row.schema:
        return {}  # records read more than we admit; the row says which it is
    if bare in _SCALARS:
        return dict(_SCALARS[bare])
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _build_object(bare, left, f"{path}.")
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is tuple:
        items = _build_type(arguments[0], row, left, f"{path}[]")
        return {"type": "array", "items": items | dict(row.inner)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = _build_type(arguments[1], row, left, path)
        return {"type": "object", "additionalProperties": values | dict(row.inner)}
    raise Misconfigured(f"{path}: no schema for {kind!r}")


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    return reduce(or_, (part for part in get_args(kind) if part is not type(None)))


def _node_at(root: dict[str, Any], path: str) -> dict[str, Any]:
    """The part of the schema that describes the field at a rule's path."""
    node = root
    for step in path.replace("[]", ".[]").split("."):
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


_CORE = (NODEPOOL, NODECLAIM, NODEOVERLAY, CAPACITYBUFFER)
# The kinds of our own, which Karpenter does not have. Each is optional: one that is not installed has no
# objects. A new one is a line here, followed by `make crds chart docs`.
OWN: tuple[CrdDefinition, ...] = (ZONESHIFT, SPENDLIMIT, COMMITMENT)


def list_definitions(provider: str) -> tuple[CrdDefinition, ...]:
    """The kinds to install with this provider."""
    return (*_CORE, find_provider_api(provider).definition)


def build_manifests(provider: str) -> tuple[dict[str, Any], ...]:
    """The CRDs to install with this provider; a fresh copy, free to be changed."""
    return tuple(_build_manifest(definition, provider) for definition in list_definitions(provider))


def build_own_manifests() -> tuple[dict[str, Any], ...]:
    """The CRDs of our own kinds, which are the same for every provider; a fresh copy, free to be changed."""
    return tuple(_build_manifest(definition, "") for definition in OWN)


def build_zonal_manifest() -> dict[str, Any]:
    """The CRD of ZoneShift alone: all that zonal shifts need."""
    return _build_manifest(ZONESHIFT, "")


def build_own_manifest(record: type[Object]) -> dict[str, Any]:
    """The CRD of one of our own kinds."""
    (definition,) = (each for each in OWN if each.record is record)
    return _build_manifest(definition, "")


def is_own_kind(record: type[Object]) -> bool:
    """Whether the kind is one of our own, so that a cluster need not have it."""
    return any(definition.record is record for definition in OWN)


def find_definition(api_version: str, kind: str, provider: str) -> CrdDefinition | None:
    """What is installed under this name, if anything is; of our own kinds, what would be."""
    return next(
        (
            definition
            for definition in (*list_definitions(provider), *OWN)
            if (definition.record.KIND.api_version, definition.record.KIND.kind) == (api_version, kind)
        ),
        None,
    )


@cache
def build_schema(kind: str, provider: str) -> dict[str, Any]:
    """One kind's openAPIV3Schema, built once: to be read, not changed."""
    (definition,) = (d for d in (*list_definitions(provider), *OWN) if d.record.KIND.kind == kind)
    return build_structural_schema(definition, provider)


def _build_manifest(definition: CrdDefinition, provider: str) -> dict[str, Any]:
    kind = definition.record.KIND
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": _build_names(definition),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_build_version(definition, provider)],
        },
    }


def _build_names(definition: CrdDefinition) -> dict[str, Any]:
    kind = definition.record.KIND
    names: dict[str, Any] = {
        "categories": list(definition.categories),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    return names | ({"shortNames": list(definition.short_names)} if definition.short_names else {})


def _build_version(definition: CrdDefinition, provider: str) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if definition.scale:
        subresources["scale"] = dict(definition.scale)
    version = {
        "name": definition.record.KIND.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": build_structural_schema(definition, provider)},
        "subresources": subresources,
    }
    columns = [_build_column(column) for column in definition.columns]
    return version | ({"additionalPrinterColumns": columns} if columns else {})


def _build_column(column: PrinterColumn) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})


@cache
def find_schema(kind: str, provider: str) -> Schema:
    """The same, read; without its CEL rules, which the definition has as functions too."""
    return Schema.from_openapi(build_schema(kind, provider), rules=False)


def apply_defaults(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as the CRD's defaults would store it; the one given is left as it was.

    An explicit null counts as absent, as it does for the API server. What is not of the right type is
    left for validation to complain about.
    """
    owners = (name for name, api in PROVIDER_APIS.items() if api.kind.kind == kind)
    return find_schema(kind, next(owners, "aws")).apply_defaults(copy.deepcopy(dict(document)))
