"""Failures of a schema in the words of kube-apiserver: the causes of a Status that refuses an object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dovetail.api.schema.validation import FieldPath, SchemaFailure, describe_json_type

# Of a string only the first of these is told, as on a real server.
_OF_TEXT = ("maxLength", "minLength", "pattern")


class Cause(NamedTuple):
    """One complaint: where, of which kind (`FieldValueInvalid`, …), and in words."""

    field: str
    type: str
    message: str


def join_path(path: str, key: str) -> str:
    """The path of a property."""
    return f"{path}.{key}" if path else key


def format_path(path: FieldPath) -> str:
    """A path as a Status spells it."""
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else join_path(text, step)
    return text


def format_value(value: Any) -> str:
    """A value as messages quote it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def list_causes(failures: Iterable[SchemaFailure]) -> Iterator[Cause]:
    """What kube-apiserver tells of these failures: of an item in a list twice, only the second time."""
    before: SchemaFailure | None = None
    for failure in failures:
        repeated = failure.keyword == "duplicate" and failure.wanted > 2
        if not repeated and not _is_second_of_text(before, failure):
            yield describe_cause(failure)
        before = failure


def _is_second_of_text(before: SchemaFailure | None, failure: SchemaFailure) -> bool:
    return (
        before is not None
        and before.keyword in _OF_TEXT
        and failure.keyword in _OF_TEXT
        and before.node is failure.node
        and before.path == failure.path
    )


def describe_cause(failure: SchemaFailure) -> Cause:
    """One failure as the API server tells it."""
    path, keyword, value, _, wanted = failure
    place = format_path(path)
    field = place or "<nil>"
    match keyword:
        case "type":
            return _describe_type(field, place, wanted, describe_json_type(value))
        case "format":
            return _describe_type(field, place, wanted, value)
        case "required":
            return Cause(field, "FieldValueRequired", "Required value")
        case "duplicate":
            return Cause(field, "FieldValueDuplicate", f"Duplicate value: {format_value(value)}")
        case "enum":
            options = ", ".join(map(format_value, wanted))
            message = f"Unsupported value: {format_value(value)}: supported values: {options}"
            return Cause(field, "FieldValueNotSupported", message)
        case "maxLength":
            return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {wanted} bytes")
        case "maxItems" | "maxProperties":
            message = f"Too many: {len(value)}: must have at most {wanted} items"
            return Cause(field, "FieldValueTooMany", message)
        case "anyOf" | "oneOf" | "not":
            # kube-apiserver: the place is told in words only.
            message = f'Invalid value: "": "{place}" {_JUNCTORS[keyword]}'
            return Cause("<nil>", "FieldValueInvalid", message)
    detail = f"{place} in body {_LIMITS[keyword](failure)}"
    return Cause(field, "FieldValueInvalid", f"Invalid value: {format_value(value)}: {detail}")


def _describe_type(field: str, place: str, expected: str, actual: str) -> Cause:
    detail = f"{place} in body must be of type {expected}: {format_value(actual)}"
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {format_value(actual)}: {detail}")


def _describe_minimum(failure: SchemaFailure) -> str:
    exclusive = failure.node.limits.get("exclusiveMinimum") is True
    return f"should be greater than {'' if exclusive else 'or equal to '}{format_value(failure.wanted)}"


def _describe_maximum(failure: SchemaFailure) -> str:
    exclusive = failure.node.limits.get("exclusiveMaximum") is True
    return f"should be less than {'' if exclusive else 'or equal to '}{format_value(failure.wanted)}"


_JUNCTORS = {
    "anyOf": "must validate at least one schema (anyOf)",
    "oneOf": "must validate one and only one schema (oneOf)",
    "not": "must not validate the schema (not)",
}
_LIMITS: Mapping[str, Callable[[SchemaFailure], str]] = {
    "minimum": _describe_minimum,
    "maximum": _describe_maximum,
    "range": lambda failure: f"must be of type {failure.wanted}",
    "multipleOf": lambda failure: f"should be a multiple of {format_value(failure.wanted)}",
    "pattern": lambda failure: f"should match '{failure.wanted}'",
    "minLength": lambda failure: f"should be at least {failure.wanted} chars long",
    "minItems": lambda failure: f"should have at least {failure.wanted} items",
    "minProperties": lambda failure: f"should have at least {failure.wanted} properties",
    "uniqueItems": lambda failure: "shouldn't contain duplicates",
    "unknown": lambda failure: "is not a field of the schema",
}
