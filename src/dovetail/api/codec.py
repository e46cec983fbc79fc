"""JSON to records and back. Raw documents stop here; nobody else walks them.

Records hold only the fields we read, so a write must not be made of a record alone. There are two ways
to write a change without harming what we do not know: `merge_patch` says what differs between two
records and leaves the rest to the server, and `overlay` lays that difference over the whole document.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.api.bad_items import mark_set_aside
from dovetail.api.meta import ListMeta, Object, Record
from dovetail.api.pod import Pod
from dovetail.api.pod_codec import Interner, WirePod, pod_from_wire
from dovetail.api.salvage import salvage_object
from dovetail.api.wire import (
    NoFields,
    NoItems,
    drop_empty_places,
    outline_changes,
    parse_json,
    read_json,
    read_plain,
    to_plain,
)
from dovetail.errors import BadInput, note_contained

__all__ = [
    "Interner",
    "Listing",
    "convert",
    "decode",
    "decode_list",
    "decode_or_salvage",
    "encode",
    "merge_patch",
    "overlay_document",
    "to_dict",
]

R = TypeVar("R", bound=Record)
O = TypeVar("O", bound=Object)  # noqa: E741 - O for object


class Listing(NamedTuple, Generic[O]):
    """One page of a list."""

    items: list[O]
    meta: ListMeta


def decode(kind: type[R], data: bytes | msgspec.Raw, table: Interner | None = None) -> R:
    """A record from JSON. Pods share parts with the others of the same table."""
    if kind is Pod:
        shared = Interner() if table is None else table
        return pod_from_wire(read_json(WirePod, data), shared)  # type: ignore[return-value]
    try:
        return _check_doubt(read_json(kind, data))
    except BadInput:
        mend = getattr(kind, "MENDED", None)
        if mend is None:
            raise
        return read_json(kind, msgspec.json.encode(mend(msgspec.json.decode(data))))


def _check_doubt(record: R) -> R:
    """The record; set aside if it says what cannot be."""
    doubt = record.find_doubt() if isinstance(record, Object) else ""
    return mark_set_aside(record, doubt) if doubt else record  # type: ignore[type-var]


def decode_list(kind: type[O], data: bytes, table: Interner | None = None) -> Listing[O]:
    """A page of records from a List document, and where to go on from there.

    Of an item that cannot be read, what can be is kept, and it is set aside: one object must not keep all
    others from being read.
    """
    shared = Interner() if table is None else table
    try:
        page = read_json(_build_page_type(WirePod if kind is Pod else kind), data)
        items = [_finish_item(kind, each, shared) for each in page.items or ()]
    except BadInput:
        page = read_json(_build_page_type(msgspec.Raw), data)
        found = (decode_or_salvage(kind, each, shared) for each in page.items or ())
        items = [each for each in found if each is not None]
    return Listing(items, page.metadata)


def _finish_item(kind: type[O], item: Any, table: Interner) -> O:
    return pod_from_wire(item, table) if kind is Pod else _check_doubt(item)  # type: ignore[return-value]


def decode_or_salvage(kind: type[O], data: bytes | msgspec.Raw, table: Interner | None = None) -> O | None:
    """A record from JSON or, set aside, what can be read of it; None if not even its name can be."""
    try:
        return decode(kind, data, table)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the objects beside it are read
        note_contained(error)
        try:
            return salvage_object(kind, parse_json(data))
        except (msgspec.DecodeError, RecursionError):
            return None


def convert(kind: type[R], document: Mapping[str, Any], table: Interner | None = None) -> R:
    """A record from a document that is already in memory."""
    if kind is Pod:
        try:
            written = msgspec.json.encode(document)
        except (UnicodeEncodeError, RecursionError) as error:
            raise BadInput(f"reading a Pod: {error}") from error
        return decode(kind, written, table)
    return _check_doubt(read_plain(kind, document))


def to_dict(record: Record) -> dict[str, Any]:
    """The document that stands for a record; a top-level kind says which it is."""
    return _build_document(record, outline=False)


def encode(record: Record) -> bytes:
    """A record as JSON."""
    return msgspec.json.encode(to_dict(record))


def merge_patch(before: Record, after: Record) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one record to the other; lists are replaced as a whole."""
    if before == after:
        # Most writes turn out to change nothing, and to see that is far cheaper than two documents.
        return {}
    if type(before) is type(after) and not isinstance(after, Pod):
        return _diff_documents(*outline_changes(before, after))
    return _diff_documents(_build_document(before, outline=True), _build_document(after, outline=True))


def overlay_document(raw: Mapping[str, Any], before: Record, after: Record) -> dict[str, Any]:
    """The document `raw`, which was read as `before`, changed so that it reads as `after`.

    Only what differs between the two is touched. Items of lists are matched by what names them, or
    by being equal, so that what we do not know about an item stays with it.
    """
    return _overlay_mapping(raw, _build_document(before, outline=True), _build_document(after, outline=True))


@cache
def _build_page_type(item: type[Any]) -> type[Any]:
    return msgspec.defstruct(
        f"{item.__name__}List",
        [("items", list[item] | None, None), ("metadata", ListMeta, ListMeta())],  # type: ignore[valid-type]
    )


def _build_document(record: Record, outline: bool) -> dict[str, Any]:
    document: dict[str, Any] = to_plain(record, outline)
    if isinstance(record, Pod) and (node := document.pop("nodeName", None)):
        document["spec"] = document.get("spec", {}) | {"nodeName": node}
    if isinstance(record, Object):
        return {"apiVersion": record.KIND.api_version, "kind": record.KIND.kind} | document
    return document


def _diff_documents(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {
        key: None for key, old in before.items() if key not in after and not _is_blank(old)
    }
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            patch[key] = _diff_documents(old, value)
        else:
            patch[key] = None if _is_blank(value) else drop_empty_places(value)
    return patch


def _overlay_mapping(
    raw: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    result = dict(raw)
    for key in before.keys() - after.keys():
        result.pop(key, None)
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        new = _overlay_value(raw.get(key), before.get(key), value)
        if new or not _is_blank(value):
            result[key] = new
        else:
            result.pop(key, None)
    return result


def _overlay_value(raw: Any, before: Any, after: Any) -> Any:
    if isinstance(raw, dict) and isinstance(after, dict):
        return _overlay_mapping(raw, before or {}, after)
    if isinstance(raw, list) and isinstance(after, list):
        return _merge_lists(raw, before or [], after)
    return drop_empty_places(after)


def _is_blank(value: Any) -> bool:
    return isinstance(value, (NoFields, NoItems))


def _merge_lists(raw: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """The items of `after`, each with the unknown parts of the item it came from."""
    if not all(isinstance(item, dict) for item in (*raw, *before, *after)):
        return list(drop_empty_places(after))
    naming = next((keys for keys in _NAMING if any(keys[0] in item for item in (*before, *after))), ())
    known = dict(zip(_name_items(before, naming), before, strict=True))
    if naming:
        origin = dict(zip(_name_items(raw, naming), raw, strict=True))
    elif len(raw) == len(before):
        origin = dict(zip(known, raw, strict=True))
    else:
        return list(drop_empty_places(after))
    merged = [
        _overlay_mapping(origin[name], known[name], item)
        if name in origin and name in known
        else drop_empty_places(item)
        for name, item in zip(_name_items(after, naming), after, strict=True)
    ]
    # What was never read, such as a pod's other volumes, was not taken away either.
    return merged + [item for name, item in origin.items() if name not in known]


_NAMING = (("uid",), ("type",), ("key", "effect", "operator"), ("name",), ("id",), ("deviceName",))
"""What tells the items of a list apart, by the first of these that an item has."""


def _name_items(items: list[dict[str, Any]], naming: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """A name for each item, or its whole content if nothing names it, and which of its namesakes it is."""
    seen: dict[tuple[Any, ...], int] = {}
    names = []
    for item in items:
        fields = (item.get(key) for key in naming) if naming else (item,)
        name = tuple(msgspec.json.encode(field, order="sorted") for field in fields)
        seen[name] = seen.get(name, 0) + 1
        names.append((*name, seen[name]))
    return names
