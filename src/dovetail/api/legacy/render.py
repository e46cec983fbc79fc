"""A conversion as text: YAML with the notes above the objects they concern, or a JSON list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from dovetail.api.legacy.convert import Conversion
from dovetail.api.legacy.notes import Note
from dovetail.api.manifests import write_manifest

_ORDER = ("apiVersion", "kind", "metadata", "type", "immutable", "data", "spec", "status")
_METADATA = ("name", "generateName", "namespace", "labels", "annotations")


def render_conversion(conversion: Conversion, fmt: Literal["yaml", "json"] = "yaml") -> str:
    """The manifests in the order kubectl prints them. JSON has no comments: there the notes are left out."""
    ordered = [_order_manifest(value) for value in conversion.manifests]
    if fmt == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": ordered}, indent=2) + "\n"
    loose = "".join(_format_note(note) for note in conversion.notes if note.target is None)
    parts = [loose] if loose else []
    for index, value in enumerate(ordered):
        notes = "".join(_format_note(note) for note in conversion.notes if note.target == index)
        parts.append(notes + write_manifest(value))
    return "---\n".join(parts)


def _format_note(note: Note) -> str:
    # A line break of any kind inside a note would end the comment and begin YAML.
    return f"# {' '.join(f'{note.severity}: {note.subject}: {note.message}'.split())}\n"


def _order_manifest(value: Mapping[str, Any]) -> dict[str, Any]:
    made = _order_keys(value, _ORDER)
    if isinstance(made.get("metadata"), dict):
        made["metadata"] = _order_keys(made["metadata"], _METADATA)
    return made


def _order_keys(value: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    """The well-known keys first, the others as they were."""
    return {
        key: value[key] for key in (*(k for k in first if k in value), *(k for k in value if k not in first))
    }
