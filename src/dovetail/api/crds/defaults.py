"""What the API server fills in before it stores an object, read off the same schemas it is given."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from dovetail.api.crds.definition import Flavour
from dovetail.api.crds.manifest import schema_of

_ABSENT = object()


def defaulted(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as the CRD's defaults would store it; the one given is left as it was.

    An explicit null counts as absent, as it does for the API server. What is not of the right type is
    left for validation to complain about.
    """
    flavour: Flavour = "kwok" if kind == "KWOKNodeClass" else "aws"
    filled: dict[str, Any] = copy.deepcopy(dict(document))
    for name, schema in schema_of(kind, flavour)["properties"].items():
        if name not in ("apiVersion", "kind", "metadata"):
            _fill_field(filled, name, schema)
    return filled


def _fill(value: Any, schema: Mapping[str, Any]) -> None:
    if isinstance(value, list):
        for item in value:
            _fill(item, schema.get("items", {}))
    elif isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            _fill_field(value, name, inner)
        if values := schema.get("additionalProperties"):
            for name in list(value):
                _fill_field(value, name, values)


def _fill_field(parent: dict[str, Any], name: str, schema: Mapping[str, Any]) -> None:
    if parent.get(name, _ABSENT) is None:
        del parent[name]
    if name not in parent and "default" in schema:
        parent[name] = copy.deepcopy(schema["default"])
    if name in parent:
        _fill(parent[name], schema)
