"""The patches Kubernetes takes: JSON merge (RFC 7386), JSON Patch (RFC 6902) and strategic merge.

Pure: a document and a patch in, a new document out. Inputs are never changed; what a patch does not touch is
shared with the document it was applied to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.sim.kube.nodes import MergeKeys
from dovetail.sim.kube.strategic import PatchError, merge_objects
from dovetail.sim.kube.validation import same

__all__ = ["MergeKeys", "PatchError", "json_patch", "merge", "strategic"]

# What Kubernetes allows one JSON patch.
OPERATIONS_LIMIT = 10_000
COPY_LIMIT = 3 * 1024 * 1024


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
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(ops)}", 413
        )
    draft = _Draft(doc)
    for op in ops:
        _operate(draft, op)
    if not isinstance(draft.root, dict):
        raise PatchError("the patched document is not an object", 422)
    return draft.root


class _Draft:
    """A document under patch. A container is copied when it is first changed, and once only."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.copied = 0
        self._own: set[int] = set()

    def open(self, path: list[str]) -> Any:
        """The container that holds the last part of a path, free to be changed."""
        self.root = place = self._owned(self.root)
        for part in path[:-1]:
            child = self._owned(_step(place, part))
            place[part if isinstance(place, dict) else int(part)] = child
            place = child
        return place

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own or not isinstance(container, dict | list):
            return container
        copy = container.copy()
        self._own.add(id(copy))
        return copy

    def copy(self, value: Any) -> Any:
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


def _operate(draft: _Draft, op: Any) -> None:
    if not isinstance(op, dict) or not isinstance(op.get("path"), str):
        raise PatchError("each operation needs an op and a path", 400)
    verb, path = op.get("op"), _pointer(op["path"])
    match verb:
        case "add" | "replace" | "test":
            if "value" not in op:
                raise PatchError(f"the {verb} operation at {op['path']!r} needs a value", 400)
            _write(draft, verb, path, op["value"], op["path"])
        case "remove":
            _remove(draft, path)
        case "move" | "copy":
            _transfer(draft, op, verb, path)
        case _:
            raise PatchError(f"unknown operation {verb!r}", 400)


def _write(draft: _Draft, verb: str, path: list[str], value: Any, text: str) -> None:
    if verb == "add":
        _add(draft, path, value)
        return
    current = _get(draft.root, path)
    if verb == "replace":
        _replace(draft, path, value)
    elif not same(current, value):
        raise PatchError(f"testing value {text} failed", 422)


def _transfer(draft: _Draft, op: dict[str, Any], verb: str, path: list[str]) -> None:
    if not isinstance(op.get("from"), str):
        raise PatchError(f"the {verb} operation at {op['path']!r} needs a from", 400)
    source = _pointer(op["from"])
    value = _get(draft.root, source)
    if verb == "copy":
        _add(draft, path, draft.copy(value))
        return
    if path[: len(source)] == source and path != source:
        raise PatchError(f"cannot move {op['from']!r} into itself", 422)
    _remove(draft, source)
    _add(draft, path, value)


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


def _add(draft: _Draft, path: list[str], value: Any) -> None:
    if not path:
        draft.root = value
        return
    place, last = draft.open(path), path[-1]
    if isinstance(place, dict):
        place[last] = value
    elif isinstance(place, list):
        place.insert(len(place) if last == "-" else _index(last, len(place) + 1), value)
    else:
        raise PatchError(f"cannot add {last!r} to a scalar", 422)


def _replace(draft: _Draft, path: list[str], value: Any) -> None:
    if not path:
        draft.root = value
        return
    place = draft.open(path)
    place[path[-1] if isinstance(place, dict) else int(path[-1])] = value


def _remove(draft: _Draft, path: list[str]) -> None:
    if not path:
        raise PatchError("cannot remove the whole document", 422)
    _get(draft.root, path)
    place = draft.open(path)
    del place[path[-1] if isinstance(place, dict) else int(path[-1])]
