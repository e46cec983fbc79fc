"""Interpret a structural schema over a plain document: what the API server would say before any rule runs.

Only what our own CRDs use is understood. On an update, what has not changed is not complained about, so that
a tighter schema does not freeze objects that were stored before it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from dovetail.api.crds.patterns import MEANING
from dovetail.api.manifests import Severity
from dovetail.api.patterns import compile_pattern
from dovetail.api.validation.complaint import Complaint, field_path

ABSENT: Any = object()
_UNTYPED = ("apiVersion", "kind", "metadata")
_INT_RANGES = {"int32": 1 << 31, "int64": 1 << 63}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

Found = Iterator[Complaint]


def schema_complaints(
    schema: Mapping[str, Any], document: Mapping[str, Any], old: Any = ABSENT
) -> tuple[Complaint, ...]:
    """Everything the schema alone finds wrong with a document, unknown fields as warnings."""
    return tuple(_check_value(schema, document, old, ""))


def is_same_json(a: Any, b: Any) -> bool:
    """JSON equality: 1 and 1.0 are one number, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same_json, a, b))
    return bool(a == b)


def prune_value(schema: Mapping[str, Any], value: Any, *, top: bool = True) -> Any:
    """The value without the fields the API server would drop."""
    if isinstance(value, list):
        return [prune_value(schema.get("items", {}), item, top=False) for item in value]
    if not isinstance(value, dict):
        return value
    properties, values = schema.get("properties", {}), schema.get("additionalProperties")
    kept: dict[str, Any] = {}
    for name, item in value.items():
        inner = properties.get(name, values)
        if top and name in _UNTYPED:
            kept[name] = item
        elif inner is not None:
            kept[name] = prune_value(inner, item, top=False)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            kept[name] = item
    return kept


def _check_value(schema: Mapping[str, Any], value: Any, old: Any, path: str) -> Found:
    if old is not ABSENT and is_same_json(value, old):
        return
    wrong = _describe_mistype(schema, value)
    if wrong:
        yield Complaint(path, wrong, "type")
        return
    for keyword, check in _CHECKS.items():
        if keyword in schema and (message := check(value, schema[keyword])):
            yield Complaint(path, message, _RULES[keyword])
    if isinstance(value, dict):
        yield from _check_object(schema, value, old, path)
    elif isinstance(value, list):
        yield from _check_list(schema, value, old, path)


def _describe_mistype(schema: Mapping[str, Any], value: Any) -> str | None:
    """Why the value is of the wrong type, or None."""
    wanted = schema.get("type", "integer or string")
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, str) or _is_whole(value)
    else:
        fits = _TYPES[wanted](value)
    if not fits:
        quotes = ": put it in quotes" if wanted == "string" and isinstance(value, int | float) else ""
        return f"must be {_choose_article(wanted)} {wanted}, not {_show_value(value)}{quotes}"
    form = schema.get("format")
    if form == "date-time" and not _is_moment(value):
        return f"must be a time such as 2026-06-01T12:00:00Z, not {_show_value(value)}"
    limit = _INT_RANGES.get(form or "")
    if limit and not -limit <= value < limit:
        return f"{value} does not fit in {form}"
    return None


def _check_object(schema: Mapping[str, Any], value: dict[str, Any], old: Any, path: str) -> Found:
    properties = schema.get("properties", {})
    values = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield Complaint(field_path(path, name), "is required", "required")
    for name, item in value.items():
        inner = properties.get(name, values)
        if not path and name in _UNTYPED:
            continue
        if inner is None:
            yield _warn_unknown(schema, name, path)
            continue
        before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
        yield from _check_value(inner, item, before, field_path(path, name))


def _warn_unknown(schema: Mapping[str, Any], name: str, path: str) -> Complaint:
    near = difflib.get_close_matches(name, schema["properties"], n=1, cutoff=0.6)
    kept = schema.get("x-kubernetes-preserve-unknown-fields")
    fate = "is kept but has no effect" if kept else "would be dropped"
    hint = f": did you mean {near[0]}?" if near else ""
    return Complaint(
        field_path(path, name), f"is not a field of this kind and {fate}{hint}", "unknown", Severity.WARNING
    )


def _check_list(schema: Mapping[str, Any], value: list[Any], old: Any, path: str) -> Found:
    items, keys = schema["items"], schema.get("x-kubernetes-list-map-keys", ())
    kind = schema.get("x-kubernetes-list-type")
    earlier = (
        {_identify_item(item, keys): item for item in old} if kind == "map" and isinstance(old, list) else {}
    )
    seen: set[str] = set()
    for index, item in enumerate(value):
        identity = _identify_item(item, keys)
        if kind in ("set", "map") and identity in seen:
            yield Complaint(f"{path}[{index}]", "is in the list already", "duplicate")
        seen.add(identity)
        yield from _check_value(items, item, earlier.get(identity, ABSENT), f"{path}[{index}]")


def _identify_item(item: Any, keys: tuple[str, ...]) -> str:
    if keys and isinstance(item, dict):
        item = {key: item[key] for key in keys if key in item}
    return json.dumps(item, sort_keys=True, default=str)


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_moment(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace("Z", "+00:00")))
    except ValueError:
        return False
    return True


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_whole,
}


def _show_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _choose_article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _check_pattern(value: Any, pattern: str) -> str | None:
    if not isinstance(value, str) or compile_pattern(pattern).has_match(value):
        return None
    return f"{_show_value(value)} is not {MEANING.get(pattern, f'of the form {pattern}')}"


def _check_enum(value: Any, allowed: list[Any]) -> str | None:
    if value in allowed:
        return None
    return f"{_show_value(value)} is not one of {', '.join(map(str, allowed))}"


def _too_few(value: Any, least: int) -> str | None:
    return None if len(value) >= least else f"has {len(value)}, needs at least {least}"


def _too_many(value: Any, most: int) -> str | None:
    return None if len(value) <= most else f"has {len(value)}, may have at most {most}"


_CHECKS: Mapping[str, Callable[[Any, Any], str | None]] = {
    "enum": _check_enum,
    "pattern": _check_pattern,
    "minimum": lambda value, least: None if value >= least else f"{value} is less than {least}",
    "maximum": lambda value, most: None if value <= most else f"{value} is more than {most}",
    "minLength": _too_few,
    "maxLength": _too_many,
    "minItems": _too_few,
    "maxItems": _too_many,
    "maxProperties": _too_many,
}
_RULES = {
    "enum": "enum",
    "pattern": "pattern",
    "minimum": "range",
    "maximum": "range",
    "minLength": "length",
    "maxLength": "length",
    "minItems": "count",
    "maxItems": "count",
    "maxProperties": "count",
}
