"""The patches Kubernetes takes: JSON merge (RFC 7386), JSON Patch (RFC 6902) and strategic merge.

Pure: a document and a patch in, a new document out. Inputs are never changed; what a patch does not touch is
shared with the document it was applied to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.sim.kube.nodes import MergeKeys
from dovetail.sim.kube.strategic import PatchError, merge_objects
from dovetail.sim.kube.validation import same

__all__ = ["MergeKeys", "PatchError", "json_patch", "merge", "strategic"]

OPERATIONS_LIMIT = 10_000


def merge(doc: Any, patch: Any) -> Any:
    """The document with a JSON merge patch applied: null removes a key, anything but an object replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(doc: dict[str, Any], patch: dict[str, Any], keys: MergeKeys) -> dict[str, Any]:
    """The document with a strategic merge patch applied, lists merging as the kind's keys say."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object", 400)
    return merge_objects(doc, patch, keys)


def json_patch(doc: dict[str, Any], ops: Sequence[Any]) -> dict[str, Any]:
    """The document after every operation in turn; the first that fails spoils the whole."""
    if not isinstance(ops, list):
        raise PatchError("a JSON patch must be a list of operations", 400)
    if len(ops) > OPERATIONS_LIMIT:
        raise PatchError(f"a JSON patch may hold at most {OPERATIONS_LIMIT} operations, not {len(ops)}", 413)
    result: Any = doc
    for op in ops:
        result = _operate(result, op)
    if not isinstance(result, dict):
        raise PatchError("the patched document is not an object", 422)
    return result


def _operate(doc: Any, op: Any) -> Any:
    if not isinstance(op, dict) or not isinstance(op.get("path"), str):
        raise PatchError("each operation needs an op and a path", 400)
    verb, path = op.get("op"), _pointer(op["path"])
    match verb:
        case "add" | "replace" | "test":
            if "value" not in op:
                raise PatchError(f"the {verb} operation at {op['path']!r} needs a value", 400)
            return _write(doc, verb, path, op["value"], op["path"])
        case "remove":
            return _removed(doc, path)
        case "move" | "copy":
            return _transfer(doc, op, verb, path)
    raise PatchError(f"unknown operation {verb!r}", 400)


def _write(doc: Any, verb: str, path: list[str], value: Any, text: str) -> Any:
    if verb == "add":
        return _added(doc, path, value)
    current = _get(doc, path)
    if verb == "test":
        if not same(current, value):
            raise PatchError(f"testing value {text} failed", 422)
        return doc
    return _replaced(doc, path, value)


def _transfer(doc: Any, op: dict[str, Any], verb: str, path: list[str]) -> Any:
    if not isinstance(op.get("from"), str):
        raise PatchError(f"the {verb} operation at {op['path']!r} needs a from", 400)
    source = _pointer(op["from"])
    value = _get(doc, source)
    if verb == "move":
        if path[: len(source)] == source and path != source:
            raise PatchError(f"cannot move {op['from']!r} into itself", 422)
        doc = _removed(doc, source)
    return _added(doc, path, value)


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer: it must start with a slash", 400)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(part: str, length: int) -> int:
    """A position in a list of this length; negative and padded numbers are none."""
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0") or int(part) >= length:
        raise PatchError(f"the index {part!r} is not in the list", 422)
    return int(part)


def _step(doc: Any, part: str) -> Any:
    if isinstance(doc, dict):
        if part not in doc:
            raise PatchError(f"the path has no member {part!r}", 422)
        return doc[part]
    if isinstance(doc, list):
        return doc[_index(part, len(doc))]
    raise PatchError(f"the path goes through a scalar at {part!r}", 422)


def _get(doc: Any, path: list[str]) -> Any:
    for part in path:
        doc = _step(doc, part)
    return doc


def _with_child(doc: Any, part: str, child: Any) -> Any:
    """A copy of a container with one existing member exchanged."""
    if isinstance(doc, dict):
        return {**doc, part: child}
    position = _index(part, len(doc))
    return [*doc[:position], child, *doc[position + 1 :]]


def _added(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    head, *rest = path
    if rest:
        return _with_child(doc, head, _added(_step(doc, head), rest, value))
    if isinstance(doc, dict):
        return {**doc, head: value}
    if isinstance(doc, list):
        position = len(doc) if head == "-" else _index(head, len(doc) + 1)
        return [*doc[:position], value, *doc[position:]]
    raise PatchError(f"cannot add {head!r} to a scalar", 422)


def _replaced(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    head, *rest = path
    return _with_child(doc, head, _replaced(_step(doc, head), rest, value))


def _removed(doc: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("cannot remove the whole document", 422)
    head, *rest = path
    member = _step(doc, head)
    if rest:
        return _with_child(doc, head, _removed(member, rest))
    if isinstance(doc, dict):
        return {key: item for key, item in doc.items() if key != head}
    position = _index(head, len(doc))
    return [*doc[:position], *doc[position + 1 :]]
