"""Examples of what admission takes and refuses: whole objects, and changes to them by path."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dovetail.api.crds import CrdDefinition, build_schema, list_definitions
from dovetail.api.schema.object_schema import Schema

FOLDER = Path(__file__).parents[1] / "conformance" / "admission"


class Example(NamedTuple):
    """One object, what it replaces if anything, and whether it is to be taken."""

    kind: str
    subject: str  # a rule's id or a field's path
    accepted: bool
    new: dict[str, Any]
    old: dict[str, Any] | None


@cache
def data(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def full_object(kind: str) -> dict[str, Any]:
    """A valid object that uses most of its kind's fields."""
    found: dict[str, Any] = copy.deepcopy(data("objects")[kind])
    return found


def changed(kind: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The full object with values put at paths; None takes a field away."""
    document = full_object(kind)
    for path, value in changes.items():
        _put(document, path, value)
    return document


def _put(document: Any, path: str, value: Any) -> None:
    *parents, last = re.findall(r"[^.\[\]]+", path)
    for step in parents:
        document = document[int(step) if isinstance(document, list) else step]
    if value is None:
        document.pop(last, None)
    elif isinstance(value, dict) and set(value) == {"fill"}:
        letter, count = value["fill"]
        document[last] = letter * count
    else:
        document[last] = copy.deepcopy(value)


def rule_examples() -> Iterator[Example]:
    for kind, rules in data("rules").items():
        for rule, verdicts in rules.items():
            for verdict in ("accepts", "rejects"):
                for change in verdicts[verdict]:
                    yield _rule_example(kind, rule, verdict == "accepts", change)


def _rule_example(kind: str, rule: str, accepted: bool, change: Mapping[str, Any]) -> Example:
    if "to" in change:
        return Example(kind, rule, accepted, changed(kind, change["to"]), changed(kind, change["from"]))
    return Example(kind, rule, accepted, changed(kind, change), None)


def field_examples() -> Iterator[Example]:
    for kind, fields in data("fields").items():
        for path, verdicts in fields.items():
            for verdict, values in verdicts.items():
                for value in values:
                    yield Example(kind, path, verdict == "accepts", changed(kind, {path: value}), None)


def flavour_of(kind: str) -> str:
    return "kwok" if kind == "KWOKNodeClass" else "aws"


def definition(kind: str, flavour: str | None = None) -> CrdDefinition:
    (found,) = (d for d in list_definitions(flavour or flavour_of(kind)) if d.record.KIND.kind == kind)
    return found


@cache
def server_schema(kind: str, flavour: str) -> Schema:
    return Schema.from_openapi(build_schema(kind, flavour))


def server_complaints(kind: str, new: dict[str, Any], old: dict[str, Any] | None, flavour: str) -> list[str]:
    """What the embedded API server says of a write, with unknown fields dropped and defaults filled in."""
    schema = server_schema(kind, flavour)
    stored = None if old is None else schema.apply_defaults(schema.prune(old)[0])
    causes = schema.validate(schema.apply_defaults(schema.prune(new)[0]), stored)
    return [f"{cause.field}: {cause.message}" for cause in causes]
