"""Lists as kubectl prints them: the Table kind, for built-in kinds and for CRD printer columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from dovetail.sim.kube.printing.cells import format_age, parse_stamp
from dovetail.sim.kube.printing.rows import KINDS, PLAIN, TableKind
from dovetail.sim.kube.printing.rows_rest import REST_KINDS
from dovetail.sim.kube.types import CrdColumn, TypeInfo

Step = Callable[[Any], Iterator[Any]]

_FILTER = re.compile(
    r"\[\?\(\s*@((?:\.[\w\-/\\.]+|\['[^']*'\])*)\s*(==|!=)?\s*(\"[^\"]*\"|'[^']*'|[\w.\-]+)?\s*\)\]"
)
_STEP = re.compile(
    r"\.((?:\\.|[^.\[\]\\])+)|\['((?:\\.|[^'\\])*)'\]|\[\"((?:\\.|[^\"\\])*)\"\]|\[(-?\d+|\*)\]"
)


class PathError(ValueError):
    """A path outside the subset."""


def find_values(path: str, value: Any) -> list[Any]:
    """Everything the path leads to, in order; nothing where it leads nowhere."""
    found = [value]
    for step in _parse_path(path):
        found = [below for item in found for below in step(item)]
    return found


@lru_cache(maxsize=1024)
def _parse_path(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        if match := _FILTER.match(text, position):
            steps.append(_build_filter(*match.groups()))
        elif match := _STEP.match(text, position):
            steps.append(_build_step(match))
        else:
            raise PathError(f"the JSON path {path!r} is not understood at {text[position:]!r}")
        position = match.end()
    return tuple(steps)


def _build_step(match: re.Match[str]) -> Step:
    dotted, single, double, index = match.groups()
    if index == "*" or dotted == "*":
        return _select_all
    if index is not None:
        return lambda value: _select_element(value, int(index))
    key = re.sub(r"\\(.)", r"\1", next(name for name in (dotted, single, double) if name is not None))
    return lambda value: _select_member(value, key)


def _select_member(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]


def _select_element(value: Any, index: int) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _select_all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield from value.values() if isinstance(value, dict) else value


def _build_filter(path: str, operator: str | None, literal: str | None) -> Step:
    wanted = _parse_literal(literal)

    def keep(value: Any) -> Iterator[Any]:
        for item in _select_all(value):
            found = find_values(path, item)
            if operator is None:
                matches = bool(found)
            else:
                matches = bool(found) and (found[0] == wanted) is (operator == "==")
            if matches:
                yield item

    return keep


def _parse_literal(text: str | None) -> Any:
    if text is None:
        return None
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


_TYPES = {"i": "integer", "b": "boolean", "d": "date"}
_NAME = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def build_table(
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
        "columnDefinitions": list_column_definitions(info) if columns else None,
        "rows": [_build_row(info, obj, include_object, now) for obj in objects],
    }


def list_column_definitions(info: TypeInfo) -> list[dict[str, Any]]:
    """The columns of a type, in order."""
    if info.printer_columns:
        return [_NAME, *map(_describe_custom_column, info.printer_columns)]
    return [_parse_column(text) for text in _find_kind(info).columns.split(", ")]


def _find_kind(info: TypeInfo) -> TableKind:
    if info.custom:
        return PLAIN
    return KINDS.get(info.resource) or REST_KINDS.get(info.resource, PLAIN)


def _parse_column(text: str) -> dict[str, Any]:
    name, _, letter = text.rstrip("*").partition(":")
    return {
        "name": name,
        "type": _TYPES.get(letter, "string"),
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": 1 if text.endswith("*") else 0,
    }


def _describe_custom_column(column: CrdColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _build_row(info: TypeInfo, obj: Mapping[str, Any], include_object: str, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": _build_cells(info, obj, now)}
    if ended := _describe_completion(info, obj):
        row["conditions"] = [ended]
    if include_object == "Object":
        row["object"] = obj
    elif include_object != "None":
        row["object"] = build_partial_metadata(obj)
    return row


def build_partial_metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """An object reduced to its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj.get("metadata") or {},
    }


def _describe_completion(info: TypeInfo, obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """The mark of a pod that has run its course."""
    phase = (obj.get("status") or {}).get("phase")
    if info.resource != "pods" or phase not in ("Succeeded", "Failed"):
        return None
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return {"type": "Completed", "status": "True", "reason": phase, "message": message}


def _build_cells(info: TypeInfo, obj: Mapping[str, Any], now: datetime) -> list[Any]:
    if info.printer_columns:
        name = (obj.get("metadata") or {}).get("name", "")
        return [name, *(_build_custom_cell(column, obj, now) for column in info.printer_columns)]
    return _find_kind(info).row(obj, now)


def _build_custom_cell(column: CrdColumn, obj: Mapping[str, Any], now: datetime) -> Any:
    """A printer column's first result, or null where it is absent or of another type."""
    try:
        found = find_values(column.json_path, obj)
    except PathError:
        return None
    if not found or found[0] is None:
        return None
    return _convert_cell(column.type, found[0], now)


def _convert_cell(kind: str, value: Any, now: datetime) -> Any:
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "integer":
            return int(value) if whole else None
        case "number":
            return value if whole else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return format_age(value, now) if parse_stamp(value) is not None else "<invalid>"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
