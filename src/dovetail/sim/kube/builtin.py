"""Schemas of the built-in kinds, for unknown-field checks, strategic merge, server-side apply and explain.

They check names and types only: what else a built-in object must satisfy is code of its own, as on a real
server, and so are its defaults.
"""

from __future__ import annotations

from functools import cache

from dovetail.sim.kube.builtin_fields import Field, is_kind, message, message_of
from dovetail.sim.kube.nodes import ANYTHING, MergeKeys, Node
from dovetail.sim.kube.schema import Schema

_JSON_SCHEMA = "apiextensions/v1.JSONSchemaProps"


class UnknownKind(LookupError):
    """A kind that is not built in."""


@cache
def schema_for(group: str, version: str, kind: str) -> Schema:
    """The schema of a built-in kind; raises UnknownKind for any other."""
    return Schema(_root(group, version, kind), object_meta(), types_only=True)


def merge_keys(group: str, version: str, kind: str) -> MergeKeys:
    """How a strategic merge patch treats the fields of a built-in kind."""
    return _root(group, version, kind)


def object_meta() -> Node:
    """The metadata every object has."""
    return message_node("meta/v1.ObjectMeta")


def _root(group: str, version: str, kind: str) -> Node:
    name = message_of(f"{group}/{version}" if group else version, kind)
    if name is None:
        raise UnknownKind(f"{kind} in {group or 'the core group'} {version} is not a built-in kind")
    return _kind_node(name)


@cache
def _kind_node(name: str) -> Node:
    """A kind's own node: its message, with the apiVersion and kind that only whole objects carry."""
    inner = message_node(name)
    typed = {"apiVersion": _scalar("string"), "kind": _scalar("string")}
    return Node(type="object", properties={**typed, **inner.properties}, required=inner.required, name=name)


_nodes: dict[str, Node] = {}


def message_node(name: str) -> Node:
    """The node of a message; messages that hold themselves are nodes that do."""
    if name not in _nodes:
        _nodes[name] = node = Node(type="object", name=name)
        definition = message(name)
        node.map_atomic = definition.atomic
        if is_kind(name):
            # A kind inside another, as a claim in a StatefulSet, may say what it is.
            node.properties.update(apiVersion=_scalar("string"), kind=_scalar("string"))
        required: list[str] = []
        for field in definition.fields:
            if field.inline:
                inner = message_node(field.type.removeprefix("@"))
                node.properties.update(inner.properties)
                required.extend(inner.required)
                continue
            node.properties[field.name] = _field_node(field)
            required.extend([field.name] if field.required else [])
        node.required = tuple(required)
    return _nodes[name]


def _field_node(field: Field) -> Node:
    shared = _type_node(field.type)
    strategies = field.patch
    return Node(
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


def _scalar(kind: str, text_format: str = "") -> Node:
    return Node(type=kind, format=text_format, nullable=True)


_SCALARS = {
    "s": _scalar("string"),
    "b": _scalar("boolean"),
    "i": _scalar("integer", "int32"),
    "l": _scalar("integer", "int64"),
    "d": _scalar("number", "double"),
    "y": _scalar("string", "byte"),
    "T": _scalar("string", "date-time"),
    "M": _scalar("string", "date-time"),
    "D": _scalar("string"),
    "I": Node(int_or_string=True, nullable=True),
    # That its text reads as an amount is checked by its kind.
    "Q": Node(type="quantity", name="quantity", nullable=True),
    "V": Node(type="array", items=_scalar("string"), nullable=True),
    "R": Node(type="object", preserve=True, nullable=True),
    "F": Node(type="object", preserve=True, nullable=True, map_atomic=True),
    "J": ANYTHING,
}


def _type_node(text: str) -> Node:
    if text in _SCALARS:
        return _SCALARS[text]
    if text.startswith("[]"):
        return Node(type="array", items=_type_node(text[2:]))
    if text.startswith("{}"):
        return Node(type="object", additional=_type_node(text[2:]))
    if text in ("SB", "SA", "SS"):
        # A JSON schema, or a bool, a list of schemas or a list of names in its place.
        return Node(properties=message_node(_JSON_SCHEMA).properties, items=_schema_items(text))
    return message_node(text.removeprefix("@"))


def _schema_items(text: str) -> Node | None:
    return {"SA": message_node(_JSON_SCHEMA), "SS": _SCALARS["s"]}.get(text)
