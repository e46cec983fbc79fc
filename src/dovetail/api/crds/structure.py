"""Records as structural schemas: names, nesting and types come from the records, the rest from tables."""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Union, get_args, get_origin

import msgspec

from dovetail.api.crds.definition import Definition, Field, Flavour
from dovetail.api.crds.patterns import QUANTITY
from dovetail.api.quantity import Quantity
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


def structural_schema(definition: Definition, flavour: Flavour) -> dict[str, Any]:
    """The openAPIV3Schema of a kind, rules included."""
    left = dict(definition.fields)
    root = _object(definition.record, left, "")
    root["properties"] |= _TOP
    root["description"] = definition.says
    if left:
        raise Misconfigured(
            f"{definition.record.__name__} has no field for these constraints: {', '.join(sorted(left))}"
        )
    for rule in definition.rules_of(flavour):
        node = _node_at(root, rule.at)
        node.setdefault("x-kubernetes-validations", []).append({"message": rule.says, "rule": rule.cel})
    return root


def _object(record: Any, left: dict[str, Field], prefix: str) -> dict[str, Any]:
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
        properties[name] = _field(attribute.type, row, left, prefix + name)
        if row.required:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": sorted(required)} if required else {})


def _field(kind: Any, row: Field, left: dict[str, Field], path: str) -> dict[str, Any]:
    schema = _typed(kind, row, left, path)
    return schema | {"description": row.says} | dict(row.schema)


def _typed(kind: Any, row: Field, left: dict[str, Field], path: str) -> dict[str, Any]:
    bare = _without_none(kind)
    if isinstance(bare, types.UnionType) and "type" in row.schema:
        return {}  # records read more than we admit; the row says which it is
    if bare in _SCALARS:
        return dict(_SCALARS[bare])
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _object(bare, left, f"{path}.")
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is tuple:
        items = _typed(arguments[0], row, left, f"{path}[]")
        return {"type": "array", "items": items | dict(row.inner)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = _typed(arguments[1], row, left, path)
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
