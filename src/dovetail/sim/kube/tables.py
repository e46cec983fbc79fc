"""Lists as kubectl prints them: the Table kind, for built-in kinds and for CRD printer columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dovetail.sim.kube.cells import age, parsed
from dovetail.sim.kube.jsonpath import PathError, find
from dovetail.sim.kube.rows import KINDS, PLAIN, Kind
from dovetail.sim.kube.rows_rest import REST_KINDS
from dovetail.sim.kube.types import PrinterColumn, TypeInfo

_TYPES = {"i": "integer", "b": "boolean", "d": "date"}
_NAME = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def table(
    info: TypeInfo,
    objects: Iterable[Mapping[str, Any]],
    include_object: str = "Metadata",
    *,
    now: datetime,
    metadata: Mapping[str, Any] | None = None,
    columns: bool = True,
) -> dict[str, Any]:
    """The objects as a Table. `columns` is false for all but the first event of a watch."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata or {}),
        "columnDefinitions": column_definitions(info) if columns else None,
        "rows": [_row(info, obj, include_object, now) for obj in objects],
    }


def column_definitions(info: TypeInfo) -> list[dict[str, Any]]:
    """The columns of a type, in order."""
    if info.printer_columns:
        return [_NAME, *map(_custom_definition, info.printer_columns)]
    return [_definition(text) for text in _kind(info).columns.split(", ")]


def _kind(info: TypeInfo) -> Kind:
    if info.custom:
        return PLAIN
    return KINDS.get(info.resource) or REST_KINDS.get(info.resource, PLAIN)


def _definition(text: str) -> dict[str, Any]:
    name, _, letter = text.rstrip("*").partition(":")
    return {
        "name": name,
        "type": _TYPES.get(letter, "string"),
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": 1 if text.endswith("*") else 0,
    }


def _custom_definition(column: PrinterColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(info: TypeInfo, obj: Mapping[str, Any], include_object: str, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": _cells(info, obj, now)}
    if ended := _ended(info, obj):
        row["conditions"] = [ended]
    if include_object == "Object":
        row["object"] = obj
    elif include_object != "None":
        row["object"] = partial_metadata(obj)
    return row


def partial_metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """An object reduced to its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj.get("metadata") or {},
    }


def _ended(info: TypeInfo, obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """The mark of a pod that has run its course."""
    phase = (obj.get("status") or {}).get("phase")
    if info.resource != "pods" or phase not in ("Succeeded", "Failed"):
        return None
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return {"type": "Completed", "status": "True", "reason": phase, "message": message}


def _cells(info: TypeInfo, obj: Mapping[str, Any], now: datetime) -> list[Any]:
    if info.printer_columns:
        name = (obj.get("metadata") or {}).get("name", "")
        return [name, *(_custom_cell(column, obj, now) for column in info.printer_columns)]
    return _kind(info).row(obj, now)


def _custom_cell(column: PrinterColumn, obj: Mapping[str, Any], now: datetime) -> Any:
    """A printer column's first result, or null where it is absent or of another type."""
    try:
        found = find(column.json_path, obj)
    except PathError:
        return None
    if not found or found[0] is None:
        return None
    return _typed(column.type, found[0], now)


def _typed(kind: str, value: Any, now: datetime) -> Any:
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "integer":
            return int(value) if whole else None
        case "number":
            return value if whole else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return age(value, now) if parsed(value) is not None else "<invalid>"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
