"""What a structural schema finds wrong with a document, in the words of `dovetail validate`.

Only the keywords of our own CRDs have words here; any other is told as the API server tells it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from dovetail.api.crds.patterns import MEANING
from dovetail.api.manifests import Severity
from dovetail.api.schema.causes import describe_cause
from dovetail.api.schema.nodes import MISSING
from dovetail.api.schema.object_schema import Schema
from dovetail.api.schema.validation import FieldPath, SchemaFailure
from dovetail.api.validation.complaint import Complaint, field_path

# What every object has, and no CRD describes.
_UNTYPED = ("apiVersion", "kind", "metadata")
# Of a value that is mistyped nothing else is told, but that it is in its list already.
_MISTYPED = ("type", "format", "range")
_ALWAYS_TOLD = (*_MISTYPED, "duplicate")


def schema_complaints(
    schema: Schema, document: Mapping[str, Any], old: Any = MISSING
) -> tuple[Complaint, ...]:
    """Everything the schema alone finds wrong with a document, unknown fields as warnings."""
    failures = schema.find_failures(document, old, unknown=True)
    described = [each for each in failures if not (each.path and each.path[0] in _UNTYPED)]
    return tuple(map(_describe_failure, _list_told(_sort_items(described))))


def _sort_items(failures: list[SchemaFailure]) -> list[SchemaFailure]:
    """The failures of a list item by item; a validation names its duplicates first."""
    found = list(failures)
    for start, first in enumerate(found):
        if first.keyword == "duplicate":
            place, depth = first.path[:-1], len(first.path) - 1
            end = start
            while end < len(found) and len(found[end].path) > depth and found[end].path[:depth] == place:
                end += 1
            found[start:end] = sorted(found[start:end], key=lambda each: each.path[depth])
    return found


def _list_told(failures: Iterable[SchemaFailure]) -> Iterator[SchemaFailure]:
    """The failures that are told, those of one value in the order of `_WORDS`."""
    for _, group in groupby(failures, key=lambda each: each.path):
        found = sorted(group, key=lambda each: _ORDER.get(each.keyword, len(_ORDER)))
        mistyped = any(each.keyword in _MISTYPED for each in found)
        yield from (each for each in found if not mistyped or each.keyword in _ALWAYS_TOLD)


def _describe_failure(failure: SchemaFailure) -> Complaint:
    rule, describe = _WORDS.get(failure.keyword, (failure.keyword, _describe_as_server))
    severity = Severity.WARNING if failure.keyword == "unknown" else Severity.ERROR
    return Complaint(_format_path(failure.path), describe(failure), rule, severity)


def _format_path(path: FieldPath) -> str:
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else field_path(text, step)
    return text


def _show_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _choose_article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _describe_as_server(failure: SchemaFailure) -> str:
    return describe_cause(failure).message


def _describe_type(failure: SchemaFailure) -> str:
    wanted = failure.wanted.replace(",", " or ")
    quotes = ": put it in quotes" if wanted == "string" and isinstance(failure.value, int | float) else ""
    return f"must be {_choose_article(wanted)} {wanted}, not {_show_value(failure.value)}{quotes}"


def _describe_format(failure: SchemaFailure) -> str:
    if failure.wanted != "date-time":
        return _describe_as_server(failure)
    return f"must be a time such as 2026-06-01T12:00:00Z, not {_show_value(failure.value)}"


def _describe_unknown(failure: SchemaFailure) -> str:
    near = difflib.get_close_matches(str(failure.path[-1]), failure.node.properties, n=1, cutoff=0.6)
    fate = "is kept but has no effect" if failure.node.preserve else "would be dropped"
    hint = f": did you mean {near[0]}?" if near else ""
    return f"is not a field of this kind and {fate}{hint}"


def _describe_enum(failure: SchemaFailure) -> str:
    return f"{_show_value(failure.value)} is not one of {', '.join(map(str, failure.wanted))}"


def _describe_pattern(failure: SchemaFailure) -> str:
    meaning = MEANING.get(failure.wanted, f"of the form {failure.wanted}")
    return f"{_show_value(failure.value)} is not {meaning}"


def _describe_too_few(failure: SchemaFailure) -> str:
    return f"has {len(failure.value)}, needs at least {failure.wanted}"


def _describe_too_many(failure: SchemaFailure) -> str:
    return f"has {len(failure.value)}, may have at most {failure.wanted}"


# By keyword: the rule that a complaint names, and its words.
_WORDS: Mapping[str, tuple[str, Callable[[SchemaFailure], str]]] = {
    "duplicate": ("duplicate", lambda failure: "is in the list already"),
    "type": ("type", _describe_type),
    "format": ("type", _describe_format),
    "range": ("type", lambda failure: f"{failure.value} does not fit in {failure.wanted}"),
    "required": ("required", lambda failure: "is required"),
    "unknown": ("unknown", _describe_unknown),
    "enum": ("enum", _describe_enum),
    "pattern": ("pattern", _describe_pattern),
    "minimum": ("range", lambda failure: f"{failure.value} is less than {failure.wanted}"),
    "maximum": ("range", lambda failure: f"{failure.value} is more than {failure.wanted}"),
    "minLength": ("length", _describe_too_few),
    "maxLength": ("length", _describe_too_many),
    "minItems": ("count", _describe_too_few),
    "maxItems": ("count", _describe_too_many),
    "maxProperties": ("count", _describe_too_many),
}
_ORDER = {keyword: place for place, keyword in enumerate(_WORDS)}
