"""Strategic merge: objects merge by key, lists by the key their kind declares, with kubectl's directives.

$patch: replace | merge | delete         on an object or on an element of a keyed list
$retainKeys: [a, b]                      other keys of the object go
$deleteFromPrimitiveList/field: [x]      these values go
$setElementOrder/field: [..]             the order of the result; what is not listed keeps its place
"""

from __future__ import annotations

from typing import Any

from dovetail.sim.kube.nodes import ANYTHING, Node

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_PREFIX, _ORDER_PREFIX = "$deleteFromPrimitiveList/", "$setElementOrder/"


class PatchError(Exception):
    """A patch that cannot be applied: `code` 400 when it is malformed, 422 when the document says no."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def merge_objects(doc: dict[str, Any], patch: dict[str, Any], node: Node) -> dict[str, Any]:
    """The object with the patch merged in."""
    verb = patch.get(_PATCH)
    if verb == "replace":
        bare: dict[str, Any] = _bare(patch)
        return bare
    if verb == "delete":
        return {}
    if verb not in (None, "merge"):
        raise PatchError(f"unrecognized value {verb!r} for the $patch directive", 400)
    result = _retained(doc, patch)
    for key, value in patch.items():
        if key.startswith(_DELETE_PREFIX):
            _delete_values(result, key.removeprefix(_DELETE_PREFIX), value)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, node.child(key) or ANYTHING)
    for key, value in patch.items():
        if key.startswith(_ORDER_PREFIX):
            _order_field(doc, result, patch, key.removeprefix(_ORDER_PREFIX), value, node)
        elif key.startswith("$") and key not in (_PATCH, _RETAIN) and not key.startswith(_DELETE_PREFIX):
            raise PatchError(f"unknown directive {key!r}", 400)
    return result


def _retained(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(doc)
    if not isinstance(keep, list):
        raise PatchError("$retainKeys must be a list of keys", 400)
    stray = [key for key in patch if not key.startswith("$") and patch[key] is not None and key not in keep]
    if stray:
        raise PatchError(f"$retainKeys does not name {stray[0]!r}, which the patch sets", 400)
    return {key: value for key, value in doc.items() if key in keep}


def _merge_field(result: dict[str, Any], key: str, value: Any, node: Node) -> None:
    current = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        _merge_object_field(result, key, value, current, node)
    elif isinstance(value, list):
        result[key] = _merge_lists(current if isinstance(current, list) else [], value, node)
    else:
        result[key] = value


def _merge_object_field(
    result: dict[str, Any], key: str, value: dict[str, Any], current: Any, node: Node
) -> None:
    if value.get(_PATCH) == "delete":
        result.pop(key, None)
    elif node.replace or not isinstance(current, dict):
        result[key] = merge_objects({}, value, node)
    else:
        result[key] = merge_objects(current, value, node)


def _merge_lists(current: list[Any], patch: list[Any], node: Node) -> list[Any]:
    if not node.merge:
        return [
            _bare(item) if isinstance(item, dict) else item for item in patch if not _directive_only(item)
        ]
    if node.merge_key:
        merged = _merge_keyed(current, patch, node)
    elif any(isinstance(item, dict | list) for item in patch):
        raise PatchError("a list of plain values was given objects", 400)
    else:
        merged = list(dict.fromkeys([*current, *patch]))
    # Without an order of its own, a patch is its own order.
    wanted = [_identity(item, node) for item in patch if not _marked(item)]
    return _ordered(merged, wanted, [_identity(item, node) for item in current], node)


def _directive_only(item: Any) -> bool:
    return isinstance(item, dict) and set(item) == {_PATCH}


def _merge_keyed(current: list[Any], patch: list[Any], node: Node) -> list[Any]:
    name, items = node.merge_key, node.items or ANYTHING
    verbs = {str(item[_PATCH]) for item in patch if _marked(item)}
    if odd := sorted(verbs - {"replace", "delete"}):
        raise PatchError(f"the $patch directive of a list's element may not be {odd[0]!r}", 400)
    if "replace" in verbs:
        return [_bare(item) for item in patch if not _marked(item)]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or name not in item:
            raise PatchError(f"an element of the list lacks its merge key {name!r}", 400)
        where = [i for i, old in enumerate(result) if isinstance(old, dict) and old.get(name) == item[name]]
        if _marked(item):
            result = [old for i, old in enumerate(result) if i not in where]
        elif where:
            result[where[0]] = merge_objects(result[where[0]], item, items)
        else:
            result.append(merge_objects({}, item, items))
    return result


def _delete_values(result: dict[str, Any], key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise PatchError(f"{_DELETE_PREFIX}{key} must be a list", 400)
    if isinstance(result.get(key), list):
        result[key] = [item for item in result[key] if item not in values]


def _order_field(
    doc: dict[str, Any], result: dict[str, Any], patch: dict[str, Any], key: str, order: Any, node: Node
) -> None:
    child = node.child(key)
    if not isinstance(order, list):
        raise PatchError(f"{_ORDER_PREFIX}{key} must be a list", 400)
    if child is None or not child.merge or not isinstance(result.get(key), list):
        return
    wanted = [_identity(item, child) for item in order]
    mine = patch.get(key) or []
    given = [_identity(item, child) for item in mine if not _marked(item)]
    if given != [item for item in wanted if item in given]:
        raise PatchError(f"{_ORDER_PREFIX}{key} lists the elements of the patch in another order", 400)
    server = _server_order([_identity(item, child) for item in doc.get(key) or []], mine, child)
    result[key] = _ordered(result[key], wanted, server, child)


def _server_order(server: list[Any], patch: list[Any], node: Node) -> list[Any]:
    """The order the server's list counts as having.

    kube-apiserver: elements the patch adds take the slots of those it deletes, at the end of the list.
    """
    gone = [_identity(item, node) for item in patch if _marked(item)]
    kept = [item for item in server if item not in gone]
    added = [_identity(item, node) for item in patch if not _marked(item)]
    return [*kept, *(item for item in added if item not in kept)][: len(server)]


def _marked(item: Any) -> bool:
    return isinstance(item, dict) and _PATCH in item


def _identity(item: Any, node: Node) -> Any:
    return item.get(node.merge_key) if isinstance(item, dict) else item


def _ordered(items: list[Any], wanted: list[Any], server: list[Any], node: Node) -> list[Any]:
    """Listed elements in the order asked for; each other one stays before what followed it on the server."""
    listed = sorted(
        (item for item in items if _identity(item, node) in wanted),
        key=lambda item: wanted.index(_identity(item, node)),
    )
    others = [item for item in items if _identity(item, node) not in wanted]
    result: list[Any] = []
    while listed and others:
        if _precedes(others[0], listed[0], server, node):
            result.append(others.pop(0))
        else:
            result.append(listed.pop(0))
    return [*result, *listed, *others]


def _precedes(other: Any, item: Any, server: list[Any], node: Node) -> bool:
    mine, theirs = _identity(other, node), _identity(item, node)
    return mine in server and theirs in server and server.index(mine) < server.index(theirs)


def _bare(value: Any) -> Any:
    """A value without the directives in it."""
    if isinstance(value, dict):
        return {
            key: _bare(item) for key, item in value.items() if not key.startswith("$") and item is not None
        }
    if isinstance(value, list):
        return [_bare(item) for item in value if not _directive_only(item)]
    return value
