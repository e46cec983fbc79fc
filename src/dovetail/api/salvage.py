"""As much of an object as can be read, when not all of it can.

An object that cannot be read is not an object that is gone: a machine whose NodeClaim vanished from memory
would be collected as an orphan, a node whose pod vanished would be empty. So every field that can be read is
kept, the others have their default, and the object carries that it is set aside and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from dovetail.api.bad_items import mark_set_aside
from dovetail.api.labels import POD_ANNOTATIONS_READ
from dovetail.api.meta import Object, ObjectMeta, Record
from dovetail.api.pod import Pod
from dovetail.api.wire import read_plain
from dovetail.errors import BadInput, shorten_text

__all__ = ["Loss", "find_losses", "salvage_object"]

O = TypeVar("O", bound=Object)  # noqa: E741 - O for object

_NOTHING: Any = object()
"""What is left of a value that cannot be read at all."""
_DEEPEST = 64


class Loss(NamedTuple):
    """A field that cannot be read, and why."""

    path: str
    why: str


def find_losses(kind: type[Object], document: Any) -> tuple[Loss, ...]:
    """The fields of a document of this kind that cannot be read."""
    lost: list[Loss] = []
    try:
        _keep_value(kind, document, "", lost)
    except RecursionError:
        lost.append(Loss("", "it is nested too deep"))
    return tuple(lost)


def salvage_object(kind: type[O], document: Any) -> O | None:
    """What can be read of a document of this kind, set aside; None if not even its name can be."""
    lost: list[Loss] = []
    try:
        found = _keep_value(kind, document, "", lost)
    except RecursionError:
        found = None
    if not isinstance(found, kind) or not found.name:
        return None
    if isinstance(found, Pod):
        found = _as_pods_are_kept(found, document)
    if not lost:
        lost.append(Loss("", "it makes no sense as a whole"))
    first = lost[0]
    more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    kept: O = found
    return mark_set_aside(
        kept, f"{first.path or kind.KIND.kind} cannot be read{more}: {shorten_text(first.why)}"
    )


def _keep_value(kind: Any, value: Any, path: str, lost: list[Loss]) -> Any:
    """The value as this type, without those parts of it that are none."""
    try:
        return read_plain(kind, value)
    except BadInput as error:
        why = str(error)
    if path.count(".") < _DEEPEST:
        for each in _list_choices(kind):
            found = _keep_parts(each, value, path, lost)
            if found is not _NOTHING:
                return found
    lost.append(Loss(path, why))
    return _NOTHING


def _list_choices(kind: Any) -> tuple[Any, ...]:
    """The types a value may be of; `X | None` may be an X."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _keep_parts(kind: Any, value: Any, path: str, lost: list[Loss]) -> Any:
    """A record, list or mapping of which each part is kept that can be."""
    if isinstance(kind, type) and issubclass(kind, Record) and isinstance(value, Mapping):
        return _keep_record(kind, value, path, lost)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (tuple, list) and isinstance(value, list):
        found = [_keep_value(inner[0], each, f"{path}[{i}]", lost) for i, each in enumerate(value)]
        return tuple(each for each in found if each is not _NOTHING)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return _NOTHING
        entries = {key: _keep_value(inner[1], each, f"{path}[{key}]", lost) for key, each in value.items()}
        return {key: each for key, each in entries.items() if each is not _NOTHING}
    return _NOTHING


def _keep_record(kind: type[Record], value: Mapping[str, Any], path: str, lost: list[Loss]) -> Any:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if value.get(field.encode_name) is None:
            continue
        at = f"{path}.{field.encode_name}" if path else field.encode_name
        kept = _keep_value(field.type, value[field.encode_name], at, lost)
        if kept is not _NOTHING:
            found[field.name] = kept
    try:
        return kind(**found)
    except TypeError:  # a field without a default is among those that cannot be read
        return _NOTHING


def _as_pods_are_kept(pod: Pod, document: Mapping[str, Any]) -> Pod:
    """The node's name is found elsewhere on the wire, and of annotations only those we read are kept."""
    spec = document.get("spec")
    node = spec.get("nodeName") if isinstance(spec, Mapping) else None
    notes = {key: value for key, value in pod.annotations.items() if key in POD_ANNOTATIONS_READ}
    metadata: ObjectMeta = replace(pod.metadata, annotations=notes)
    return replace(pod, metadata=metadata, node_name=node if isinstance(node, str) else "")
