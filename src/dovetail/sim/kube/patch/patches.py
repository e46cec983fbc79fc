"""The patches Kubernetes takes: JSON merge (RFC 7386), JSON Patch (RFC 6902) and strategic merge.

Pure: a document and a patch in, a new document out. Inputs are never changed; what a patch does not touch is
shared with the document it was applied to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.api.schema.nodes import ANYTHING, MergeKeys, SchemaNode
from dovetail.api.schema.validation import is_same_json

__all__ = ["MergeKeys", "PatchError", "apply_json_patch", "apply_merge_patch", "apply_strategic_patch"]

# What Kubernetes allows one JSON patch.
OPERATIONS_LIMIT = 10_000
COPY_LIMIT = 3 * 1024 * 1024


def apply_merge_patch(doc: Any, patch: Any) -> Any:
    """The document with a JSON merge patch applied: null removes a key, anything but an object replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_strategic_patch(doc: dict[str, Any], patch: dict[str, Any], keys: MergeKeys) -> dict[str, Any]:
    """The document with a strategic merge patch applied, lists merging as the kind's keys say."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object", 400)
    return merge_objects(doc, patch, keys)


def apply_json_patch(doc: dict[str, Any], ops: Sequence[Any]) -> dict[str, Any]:
    """The document after every operation in turn; the first that fails spoils the whole."""
    if not isinstance(ops, list):
        raise PatchError("a JSON patch must be a list of operations", 400)
    if len(ops) > OPERATIONS_LIMIT:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(ops)}", 413
        )
    draft = _Draft(doc)
    for op in ops:
        _run_operation(draft, op)
    if not isinstance(draft.root, dict):
        raise PatchError("the patched document is not an object", 422)
    return draft.root


class _Draft:
    """A document under patch. A container is copied when it is first changed, and once only."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.copied = 0
        self._own: set[int] = set()

    def open_container(self, path: list[str]) -> Any:
        """The container that holds the last part of a path, free to be changed."""
        self.root = place = self._own_container(self.root)
        for part in path[:-1]:
            child = self._own_container(_step_into(place, part))
            place[part if isinstance(place, dict) else int(part)] = child
            place = child
        return place

    def _own_container(self, container: Any) -> Any:
        if id(container) in self._own or not isinstance(container, dict | list):
            return container
        copy = container.copy()
        self._own.add(id(copy))
        return copy

    def copy_value(self, value: Any) -> Any:
        """A value of its own, as long as a patch has not copied too much."""
        text = msgspec.json.encode(value)
        self.copied += len(text)
        if self.copied > COPY_LIMIT:
            raise PatchError(
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self.copied}, exceeding the limit {COPY_LIMIT}",
                422,
            )
        return msgspec.json.decode(text)


def _run_operation(draft: _Draft, op: Any) -> None:
    if not isinstance(op, dict) or not isinstance(op.get("path"), str):
        raise PatchError("each operation needs an op and a path", 400)
    verb, path = op.get("op"), _parse_pointer(op["path"])
    match verb:
        case "add" | "replace" | "test":
            if "value" not in op:
                raise PatchError(f"the {verb} operation at {op['path']!r} needs a value", 400)
            _write_value(draft, verb, path, op["value"], op["path"])
        case "remove":
            _remove_value(draft, path)
        case "move" | "copy":
            _move_or_copy(draft, op, verb, path)
        case _:
            raise PatchError(f"unknown operation {verb!r}", 400)


def _write_value(draft: _Draft, verb: str, path: list[str], value: Any, text: str) -> None:
    if verb == "add":
        _add_value(draft, path, value)
        return
    current = _get_value(draft.root, path)
    if verb == "replace":
        _replace_value(draft, path, value)
    elif not is_same_json(current, value):
        raise PatchError(f"testing value {text} failed", 422)


def _move_or_copy(draft: _Draft, op: dict[str, Any], verb: str, path: list[str]) -> None:
    if not isinstance(op.get("from"), str):
        raise PatchError(f"the {verb} operation at {op['path']!r} needs a from", 400)
    source = _parse_pointer(op["from"])
    value = _get_value(draft.root, source)
    if verb == "copy":
        _add_value(draft, path, draft.copy_value(value))
        return
    if path[: len(source)] == source and path != source:
        raise PatchError(f"cannot move {op['from']!r} into itself", 422)
    _remove_value(draft, source)
    _add_value(draft, path, value)


def _parse_pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer: it must start with a slash", 400)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _parse_index(part: str, length: int) -> int:
    """A position in a list of this length; negative and padded numbers are none."""
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0") or int(part) >= length:
        raise PatchError(f"the index {part!r} is not in the list", 422)
    return int(part)


def _step_into(doc: Any, part: str) -> Any:
    if isinstance(doc, dict):
        if part not in doc:
            raise PatchError(f"the path has no member {part!r}", 422)
        return doc[part]
    if isinstance(doc, list):
        return doc[_parse_index(part, len(doc))]
    raise PatchError(f"the path goes through a scalar at {part!r}", 422)


def _get_value(doc: Any, path: list[str]) -> Any:
    for part in path:
        doc = _step_into(doc, part)
    return doc


def _add_value(draft: _Draft, path: list[str], value: Any) -> None:
    if not path:
        draft.root = value
        return
    place, last = draft.open_container(path), path[-1]
    if isinstance(place, dict):
        place[last] = value
    elif isinstance(place, list):
        place.insert(len(place) if last == "-" else _parse_index(last, len(place) + 1), value)
    else:
        raise PatchError(f"cannot add {last!r} to a scalar", 422)


def _replace_value(draft: _Draft, path: list[str], value: Any) -> None:
    if not path:
        draft.root = value
        return
    place = draft.open_container(path)
    place[path[-1] if isinstance(place, dict) else int(path[-1])] = value


def _remove_value(draft: _Draft, path: list[str]) -> None:
    if not path:
        raise PatchError("cannot remove the whole document", 422)
    _get_value(draft.root, path)
    place = draft.open_container(path)
    del place[path[-1] if isinstance(place, dict) else int(path[-1])]


_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_PREFIX, _ORDER_PREFIX = "$deleteFromPrimitiveList/", "$setElementOrder/"


class PatchError(Exception):
    """A patch that cannot be applied: `code` 400 when it is malformed, 422 when the document says no."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def merge_objects(doc: dict[str, Any], patch: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    """The object with the patch merged in."""
    verb = patch.get(_PATCH)
    if verb == "replace":
        bare: dict[str, Any] = _strip_directives(patch)
        return bare
    if verb == "delete":
        return {}
    if verb not in (None, "merge"):
        raise PatchError(f"unrecognized value {verb!r} for the $patch directive", 400)
    result = _apply_retain_keys(doc, patch)
    for key, value in patch.items():
        if key.startswith(_DELETE_PREFIX):
            _delete_values(result, key.removeprefix(_DELETE_PREFIX), value)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, node.find_child(key) or ANYTHING)
    for key, value in patch.items():
        if key.startswith(_ORDER_PREFIX):
            _order_field(doc, result, patch, key.removeprefix(_ORDER_PREFIX), value, node)
        elif key.startswith("$") and key not in (_PATCH, _RETAIN) and not key.startswith(_DELETE_PREFIX):
            raise PatchError(f"unknown directive {key!r}", 400)
    return result


def _apply_retain_keys(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(doc)
    if not isinstance(keep, list):
        raise PatchError("$retainKeys must be a list of keys", 400)
    stray = [key for key in patch if not key.startswith("$") and patch[key] is not None and key not in keep]
    if stray:
        raise PatchError(f"$retainKeys does not name {stray[0]!r}, which the patch sets", 400)
    return {key: value for key, value in doc.items() if key in keep}


def _merge_field(result: dict[str, Any], key: str, value: Any, node: SchemaNode) -> None:
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
    result: dict[str, Any], key: str, value: dict[str, Any], current: Any, node: SchemaNode
) -> None:
    if value.get(_PATCH) == "delete":
        result.pop(key, None)
    elif node.replace or not isinstance(current, dict):
        result[key] = merge_objects({}, value, node)
    else:
        result[key] = merge_objects(current, value, node)


def _merge_lists(current: list[Any], patch: list[Any], node: SchemaNode) -> list[Any]:
    if not node.merge:
        return [
            _strip_directives(item) if isinstance(item, dict) else item
            for item in patch
            if not _directive_only(item)
        ]
    if node.merge_key:
        merged = _merge_keyed(current, patch, node)
    elif any(isinstance(item, dict | list) for item in patch):
        raise PatchError("a list of plain values was given objects", 400)
    else:
        merged = list(dict.fromkeys([*current, *patch]))
    # Without an order of its own, a patch is its own order.
    wanted = [_read_identity(item, node) for item in patch if not _has_directive(item)]
    return _order_items(merged, wanted, [_read_identity(item, node) for item in current], node)


def _directive_only(item: Any) -> bool:
    return isinstance(item, dict) and set(item) == {_PATCH}


def _merge_keyed(current: list[Any], patch: list[Any], node: SchemaNode) -> list[Any]:
    name, items = node.merge_key, node.items or ANYTHING
    verbs = {str(item[_PATCH]) for item in patch if _has_directive(item)}
    if odd := sorted(verbs - {"replace", "delete"}):
        raise PatchError(f"the $patch directive of a list's element may not be {odd[0]!r}", 400)
    if "replace" in verbs:
        return [_strip_directives(item) for item in patch if not _has_directive(item)]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or name not in item:
            raise PatchError(f"an element of the list lacks its merge key {name!r}", 400)
        where = [i for i, old in enumerate(result) if isinstance(old, dict) and old.get(name) == item[name]]
        if _has_directive(item):
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
    doc: dict[str, Any], result: dict[str, Any], patch: dict[str, Any], key: str, order: Any, node: SchemaNode
) -> None:
    child = node.find_child(key)
    if not isinstance(order, list):
        raise PatchError(f"{_ORDER_PREFIX}{key} must be a list", 400)
    if child is None or not child.merge or not isinstance(result.get(key), list):
        return
    wanted = [_read_identity(item, child) for item in order]
    mine = patch.get(key) or []
    given = [_read_identity(item, child) for item in mine if not _has_directive(item)]
    if given != [item for item in wanted if item in given]:
        raise PatchError(f"{_ORDER_PREFIX}{key} lists the elements of the patch in another order", 400)
    server = _server_order([_read_identity(item, child) for item in doc.get(key) or []], mine, child)
    result[key] = _order_items(result[key], wanted, server, child)


def _server_order(server: list[Any], patch: list[Any], node: SchemaNode) -> list[Any]:
    """The order the server's list counts as having.

    kube-apiserver: elements the patch adds take the slots of those it deletes, at the end of the list.
    """
    gone = [_read_identity(item, node) for item in patch if _has_directive(item)]
    kept = [item for item in server if item not in gone]
    added = [_read_identity(item, node) for item in patch if not _has_directive(item)]
    return [*kept, *(item for item in added if item not in kept)][: len(server)]


def _has_directive(item: Any) -> bool:
    return isinstance(item, dict) and _PATCH in item


def _read_identity(item: Any, node: SchemaNode) -> Any:
    return item.get(node.merge_key) if isinstance(item, dict) else item


def _order_items(items: list[Any], wanted: list[Any], server: list[Any], node: SchemaNode) -> list[Any]:
    """Listed elements in the order asked for; each other one stays before what followed it on the server."""
    listed = sorted(
        (item for item in items if _read_identity(item, node) in wanted),
        key=lambda item: wanted.index(_read_identity(item, node)),
    )
    others = [item for item in items if _read_identity(item, node) not in wanted]
    result: list[Any] = []
    while listed and others:
        if _comes_before(others[0], listed[0], server, node):
            result.append(others.pop(0))
        else:
            result.append(listed.pop(0))
    return [*result, *listed, *others]


def _comes_before(other: Any, item: Any, server: list[Any], node: SchemaNode) -> bool:
    mine, theirs = _read_identity(other, node), _read_identity(item, node)
    return mine in server and theirs in server and server.index(mine) < server.index(theirs)


def _strip_directives(value: Any) -> Any:
    """A value without the directives in it."""
    if isinstance(value, dict):
        return {
            key: _strip_directives(item)
            for key, item in value.items()
            if not key.startswith("$") and item is not None
        }
    if isinstance(value, list):
        return [_strip_directives(item) for item in value if not _directive_only(item)]
    return value
