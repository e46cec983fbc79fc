"""Unknown fields: dropped, and reported as the client asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.api.schema.nodes import SchemaNode
from dovetail.sim.kube.builtin.kind_schemas import find_builtin_schema
from dovetail.sim.kube.status import bad_request
from dovetail.sim.kube.store import encode

if TYPE_CHECKING:
    from dovetail.api.schema.object_schema import Schema
    from dovetail.sim.kube.core import WriteOptions
    from dovetail.sim.kube.types import TypeInfo


def find_schema(info: TypeInfo) -> Schema:
    """The schema of a custom or built-in type."""
    if info.schema is not None:
        return info.schema
    return find_builtin_schema(info.group, info.version, info.kind)


def check_types(info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None = None) -> None:
    """A built-in kind whose fields have other types than it says cannot even be decoded."""
    causes = [
        cause for cause in find_schema(info).validate(obj, old) if cause.type == "FieldValueTypeInvalid"
    ]
    if causes:
        listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        raise bad_request(
            f"{info.kind} in version {info.version!r} cannot be handled as a {info.kind}: {listed}"
        )


def prune_unknown_fields(
    info: TypeInfo, obj: dict[str, Any], options: WriteOptions, old: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The object without unknown fields; they are an error, a warning or nothing, as asked."""
    schema = find_schema(info)
    if not info.custom:
        check_types(info, obj, old)
    pruned, unknown = schema.prune(obj)
    if unknown and options.validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        kind = f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: '
        raise bad_request(f"{'' if info.custom else kind}strict decoding error: {listed}")
    if options.validation == "Warn":
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)
    return pruned


class _Plan(NamedTuple):
    """Where below a node amounts can stand."""

    properties: dict[str, SchemaNode]
    additional: SchemaNode | None
    items: SchemaNode | None


_plans: dict[int, _Plan | None] = {}


def normalize_object(node: SchemaNode, obj: dict[str, Any]) -> dict[str, Any]:
    """The object without nulls and with every amount in its one canonical spelling."""
    text = encode(obj)
    if b"null" in text:
        obj = drop_nulls(obj)
    if b"{}" in text or b"[]" in text:
        obj = _trim_empty(node, obj)
    canonical: dict[str, Any] = _rewrite_quantities(node, obj, "")
    return canonical


def drop_nulls(value: Any) -> Any:
    """A document without the keys that are null; to a typed decoder they were never given."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value if item is not None]
    return value


def _trim_empty(node: SchemaNode, value: Any) -> Any:
    """Without empty maps and lists: to a typed server they are the same as absent ones."""
    if isinstance(value, list):
        if node.items is None:
            return value
        items = node.items
        trimmed = [_trim_empty(items, item) for item in value]
        return value if all(a is b for a, b in zip(trimmed, value, strict=True)) else trimmed
    if not isinstance(value, dict) or not (node.properties or node.additional):
        return value
    kept = {}
    for key, item in value.items():
        child = node.find_child(key)
        if child is None:
            kept[key] = item
        elif item or not isinstance(item, dict | list) or not _is_omitted(node, key, child):
            kept[key] = _trim_empty(child, item)
    same = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
    return value if same else kept


def _is_omitted(node: SchemaNode, key: str, child: SchemaNode) -> bool:
    """Whether a field is left out when it is empty: maps and lists are, structures and required ones not."""
    plain = child.items is not None or (child.additional is not None and not child.properties)
    return plain and bool(node.properties) and key not in node.required


def _rewrite_quantities(node: SchemaNode, value: Any, path: str) -> Any:
    if node.name == "quantity":
        return _rewrite_quantity(value, path)
    plan = _find_plan(node)
    if plan is None:
        return value
    if isinstance(value, list):
        if plan.items is None:
            return value
        items = [_rewrite_quantities(plan.items, item, f"{path}[{i}]") for i, item in enumerate(value)]
        return items if items != value else value
    if not isinstance(value, dict):
        return value
    changed = {}
    for key, item in value.items():
        child = plan.properties.get(key, plan.additional)
        if child is not None:
            after = _rewrite_quantities(child, item, f"{path}.{key}" if path else key)
            if after is not item:
                changed[key] = after
    return {**value, **changed} if changed else value


def _rewrite_quantity(value: Any, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise bad_request(f"{path}: quantities must be text or a number")
    try:
        text = format_canonical_quantity(str(value))
    except BadQuantity as error:
        raise bad_request(f"{path}: {error}") from error
    return value if text == value else text


@lru_cache(maxsize=65536)
def format_canonical_quantity(text: str) -> str:
    """A quantity's canonical spelling."""
    return str(Quantity.parse(text))


def _find_plan(node: SchemaNode) -> _Plan | None:
    key = id(node)
    if key not in _plans:
        _plans[key] = _build_plan(node)
    return _plans[key]


def _build_plan(node: SchemaNode) -> _Plan | None:
    properties = {name: child for name, child in node.properties.items() if _leads_to_quantity(child, set())}
    additional = node.additional if node.additional and _leads_to_quantity(node.additional, set()) else None
    items = node.items if node.items and _leads_to_quantity(node.items, set()) else None
    return _Plan(properties, additional, items) if properties or additional or items else None


def _leads_to_quantity(node: SchemaNode, seen: set[int]) -> bool:
    """Whether an amount can stand at a node or below it."""
    if node.name == "quantity":
        return True
    # Nodes share their mapping of properties with the message they stand for, which may hold itself.
    mark = id(node.properties) if node.properties else id(node)
    if mark in seen:
        return False
    seen.add(mark)
    below = [*node.properties.values(), *(each for each in (node.additional, node.items) if each)]
    return any(_leads_to_quantity(child, seen) for child in below)
