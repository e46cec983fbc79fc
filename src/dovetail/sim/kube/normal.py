"""Built-in objects as a typed server would print them: no nulls, canonical quantities."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.sim.kube.nodes import Node
from dovetail.sim.kube.status import bad_request
from dovetail.sim.kube.store import encode


class _Plan(NamedTuple):
    """Where below a node amounts can stand."""

    properties: dict[str, Node]
    additional: Node | None
    items: Node | None


_plans: dict[int, _Plan | None] = {}


def normalise(node: Node, obj: dict[str, Any]) -> dict[str, Any]:
    """The object without nulls and with every amount in its one canonical spelling."""
    text = encode(obj)
    if b"null" in text:
        obj = without_nulls(obj)
    if b"{}" in text or b"[]" in text:
        obj = _trimmed(node, obj)
    canonical: dict[str, Any] = _canonical(node, obj, "")
    return canonical


def without_nulls(value: Any) -> Any:
    """A document without the keys that are null; to a typed decoder they were never given."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def _trimmed(node: Node, value: Any) -> Any:
    """Without empty maps and lists: to a typed server they are the same as absent ones."""
    if isinstance(value, list):
        if node.items is None:
            return value
        items = node.items
        trimmed = [_trimmed(items, item) for item in value]
        return value if all(a is b for a, b in zip(trimmed, value, strict=True)) else trimmed
    if not isinstance(value, dict) or not (node.properties or node.additional):
        return value
    kept = {}
    for key, item in value.items():
        child = node.child(key)
        if child is None:
            kept[key] = item
        elif item or not isinstance(item, dict | list) or not _omitted(node, key, child):
            kept[key] = _trimmed(child, item)
    same = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
    return value if same else kept


def _omitted(node: Node, key: str, child: Node) -> bool:
    """Whether a field is left out when it is empty: maps and lists are, structures and required ones not."""
    plain = child.items is not None or (child.additional is not None and not child.properties)
    return plain and bool(node.properties) and key not in node.required


def _canonical(node: Node, value: Any, path: str) -> Any:
    if node.name == "quantity":
        return _amount(value, path)
    plan = _plan(node)
    if plan is None:
        return value
    if isinstance(value, list):
        if plan.items is None:
            return value
        items = [_canonical(plan.items, item, f"{path}[{i}]") for i, item in enumerate(value)]
        return items if items != value else value
    if not isinstance(value, dict):
        return value
    changed = {}
    for key, item in value.items():
        child = plan.properties.get(key, plan.additional)
        if child is not None:
            after = _canonical(child, item, f"{path}.{key}" if path else key)
            if after is not item:
                changed[key] = after
    return {**value, **changed} if changed else value


def _amount(value: Any, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise bad_request(f"{path}: quantities must be text or a number")
    try:
        text = canonical_text(str(value))
    except BadQuantity as error:
        raise bad_request(f"{path}: {error}") from error
    return value if text == value else text


@lru_cache(maxsize=65536)
def canonical_text(text: str) -> str:
    """A quantity's canonical spelling."""
    return str(Quantity.parse(text))


def _plan(node: Node) -> _Plan | None:
    key = id(node)
    if key not in _plans:
        _plans[key] = _made(node)
    return _plans[key]


def _made(node: Node) -> _Plan | None:
    properties = {name: child for name, child in node.properties.items() if _leads(child, set())}
    additional = node.additional if node.additional and _leads(node.additional, set()) else None
    items = node.items if node.items and _leads(node.items, set()) else None
    return _Plan(properties, additional, items) if properties or additional or items else None


def _leads(node: Node, seen: set[int]) -> bool:
    """Whether an amount can stand at a node or below it."""
    if node.name == "quantity":
        return True
    # Nodes share their mapping of properties with the message they stand for, which may hold itself.
    mark = id(node.properties) if node.properties else id(node)
    if mark in seen:
        return False
    seen.add(mark)
    below = [*node.properties.values(), *(each for each in (node.additional, node.items) if each)]
    return any(_leads(child, seen) for child in below)
