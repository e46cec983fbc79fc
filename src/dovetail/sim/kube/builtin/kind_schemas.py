"""Schemas of the built-in kinds, for unknown-field checks, strategic merge, server-side apply and explain.

They check names and types only: what else a built-in object must satisfy is code of its own, as on a real
server, and so are its defaults.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dovetail.api.schema.nodes import ANYTHING, MISSING, MergeKeys, SchemaNode
from dovetail.api.schema.object_schema import Schema

_JSON_SCHEMA = "apiextensions/v1.JSONSchemaProps"


class UnknownKind(LookupError):
    """A kind that is not built in."""


@cache
def find_builtin_schema(group: str, version: str, kind: str) -> Schema:
    """The schema of a built-in kind; raises UnknownKind for any other."""
    return Schema(_find_root_node(group, version, kind), find_metadata_node(), types_only=True)


def find_merge_keys(group: str, version: str, kind: str) -> MergeKeys:
    """How a strategic merge patch treats the fields of a built-in kind."""
    return _find_root_node(group, version, kind)


def find_metadata_node() -> SchemaNode:
    """The metadata every object has."""
    return find_message_node("meta/v1.ObjectMeta")


def _find_root_node(group: str, version: str, kind: str) -> SchemaNode:
    name = find_message_name(f"{group}/{version}" if group else version, kind)
    if name is None:
        raise UnknownKind(f"{kind} in {group or 'the core group'} {version} is not a built-in kind")
    return _build_kind_node(name)


@cache
def _build_kind_node(name: str) -> SchemaNode:
    """A kind's own node: its message, with the apiVersion and kind that only whole objects carry."""
    inner = find_message_node(name)
    typed = {"apiVersion": _build_scalar("string"), "kind": _build_scalar("string")}
    return SchemaNode(
        type="object", properties={**typed, **inner.properties}, required=inner.required, name=name
    )


_nodes: dict[str, SchemaNode] = {}


def find_message_node(name: str) -> SchemaNode:
    """The node of a message; messages that hold themselves are nodes that do."""
    if name not in _nodes:
        _nodes[name] = node = SchemaNode(type="object", name=name)
        definition = find_message(name)
        node.map_atomic = definition.atomic
        if is_kind(name):
            # A kind inside another, as a claim in a StatefulSet, may say what it is.
            node.properties.update(apiVersion=_build_scalar("string"), kind=_build_scalar("string"))
        required: list[str] = []
        for field in definition.fields:
            if field.inline:
                inner = find_message_node(field.type.removeprefix("@"))
                node.properties.update(inner.properties)
                required.extend(inner.required)
                continue
            node.properties[field.name] = _build_field_node(field)
            required.extend([field.name] if field.required else [])
        node.required = tuple(required)
    return _nodes[name]


def _build_field_node(field: MessageField) -> SchemaNode:
    shared = _find_type_node(field.type)
    strategies = field.patch
    return SchemaNode(
        type=shared.type,
        format=shared.format,
        # The mapping itself is shared, not copied: a message still being built fills it later.
        properties=shared.properties,
        additional=shared.additional,
        items=shared.items,
        required=shared.required,
        # A null means the empty value of its type to a built-in decoder.
        nullable=True,
        preserve=shared.preserve,
        int_or_string=shared.int_or_string,
        list_type=field.list_type,
        list_keys=field.list_keys,
        map_atomic=field.atomic or shared.map_atomic,
        default=field.default,
        merge="merge" in strategies,
        merge_key=field.merge_key,
        retain_keys="retainKeys" in strategies,
        replace="replace" in strategies,
        name=shared.name,
    )


def _build_scalar(kind: str, text_format: str = "") -> SchemaNode:
    return SchemaNode(type=kind, format=text_format, nullable=True)


_SCALARS = {
    "s": _build_scalar("string"),
    "b": _build_scalar("boolean"),
    "i": _build_scalar("integer", "int32"),
    "l": _build_scalar("integer", "int64"),
    "d": _build_scalar("number", "double"),
    "y": _build_scalar("string", "byte"),
    "T": _build_scalar("string", "date-time"),
    "M": _build_scalar("string", "date-time"),
    "D": _build_scalar("string"),
    "I": SchemaNode(int_or_string=True, nullable=True),
    # That its text reads as an amount is checked by its kind.
    "Q": SchemaNode(type="quantity", name="quantity", nullable=True),
    "V": SchemaNode(type="array", items=_build_scalar("string"), nullable=True),
    "R": SchemaNode(type="object", preserve=True, nullable=True),
    "F": SchemaNode(type="object", preserve=True, nullable=True, map_atomic=True),
    "J": ANYTHING,
}


def _find_type_node(text: str) -> SchemaNode:
    if text in _SCALARS:
        return _SCALARS[text]
    if text.startswith("[]"):
        return SchemaNode(type="array", items=_find_type_node(text[2:]))
    if text.startswith("{}"):
        return SchemaNode(type="object", additional=_find_type_node(text[2:]))
    if text in ("SB", "SA", "SS"):
        # A JSON schema, or a bool, a list of schemas or a list of names in its place.
        return SchemaNode(
            properties=find_message_node(_JSON_SCHEMA).properties, items=_find_schema_items(text)
        )
    return find_message_node(text.removeprefix("@"))


def _find_schema_items(text: str) -> SchemaNode | None:
    return {"SA": find_message_node(_JSON_SCHEMA), "SS": _SCALARS["s"]}.get(text)


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message: its JSON name, its type in the table's letters, its protobuf number."""

    name: str
    type: str
    number: int
    pointer: bool = False
    omit_empty: bool = False
    required: bool = False
    inline: bool = False
    atomic: bool = False
    patch: tuple[str, ...] = ()
    merge_key: str = ""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class BuiltinMessage:
    """One structure; an atomic one belongs to one applier as a whole."""

    name: str
    fields: tuple[MessageField, ...]
    atomic: bool = False


@cache
def _read_table() -> dict[str, Any]:
    text = files("dovetail.sim.kube").joinpath("data/builtin.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def find_message(name: str) -> BuiltinMessage:
    """The message of a name such as `core/v1.PodSpec`."""
    entry = _read_table()["messages"][name]
    return BuiltinMessage(name, tuple(map(_parse_field, entry["fields"])), bool(entry.get("atomic")))


def find_message_name(api_version: str, kind: str) -> str | None:
    """The name of the message a kind is written as, or None for a kind that is not built in."""
    if kind == "DeleteOptions":
        return "meta/v1.DeleteOptions"
    found: str | None = _read_table()["kinds"].get(f"{api_version}/{kind}")
    return found


@cache
def _read_descriptions() -> dict[str, Any]:
    text = files("dovetail.sim.kube").joinpath("data/descriptions.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def describe_kind(kind: str) -> str:
    """What a built-in kind is, in a sentence; empty if nobody wrote one."""
    return str(_read_descriptions()["kinds"].get(kind, ""))


def describe_field(name: str, field: str) -> str:
    """What a field of a message is, in a sentence; empty if nobody wrote one."""
    found = _read_descriptions()
    own = found["fields"].get(name, {}).get(field)
    return str(own or found["anywhere"].get(field, ""))


@cache
def _list_kind_messages() -> frozenset[str]:
    return frozenset(_read_table()["kinds"].values())


def is_kind(name: str) -> bool:
    """Whether a message is a kind of its own, and not only a part of one."""
    return name in _list_kind_messages()


def _parse_field(row: list[Any]) -> MessageField:
    name, kind, number, *flags = row
    values = {flag[0]: flag[2:] for flag in flags if "=" in flag}
    return MessageField(
        name=name,
        type=kind,
        number=number,
        pointer="p" in flags,
        omit_empty="o" in flags,
        required="r" in flags,
        inline="n" in flags,
        atomic="A" in flags,
        patch=tuple(values.get("P", "").split(",")),
        merge_key=values.get("K", ""),
        list_type=values.get("L", "atomic"),
        list_keys=tuple(values["M"].split(",")) if "M" in values else (),
        default=json.loads(values["D"]) if "D" in values else MISSING,
    )
