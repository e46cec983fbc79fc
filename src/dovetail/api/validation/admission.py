"""What the API server would say of an object: its schema, then every rule where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api.crds import Flavour, Rule, defaulted, schema_of
from dovetail.api.crds.manifest import DEFINITIONS
from dovetail.api.manifests import Severity
from dovetail.api.validation.complaint import Complaint, field_path
from dovetail.api.validation.schema import ABSENT, pruned, same, schema_complaints


def admit(
    kind: str, new: Mapping[str, Any], old: Mapping[str, Any] | None = None, flavour: Flavour = "aws"
) -> tuple[Complaint, ...]:
    """Why an object cannot be stored; empty when it can. `old` is the stored object of an update.

    As the API server does, unknown fields are dropped and defaults filled in first.
    """
    schema = schema_of(kind, flavour)
    before = ABSENT if old is None else defaulted(kind, pruned(schema, old))
    found = admission_complaints(kind, defaulted(kind, pruned(schema, new)), before, flavour)
    # What is left to warn about is kept by the server too, and so is no reason to refuse.
    return tuple(complaint for complaint in found if complaint.severity is Severity.ERROR)


def admission_complaints(kind: str, new: Any, old: Any, flavour: Flavour) -> tuple[Complaint, ...]:
    """The same of documents whose defaults are filled in, with warnings about unknown fields."""
    schema = schema_of(kind, flavour)
    shape = schema_complaints(schema, new, old)
    broken = _broken(shape) + (() if old is ABSENT else _broken(schema_complaints(schema, old)))
    (definition,) = (d for d in DEFINITIONS[flavour] if d.record.KIND.kind == kind)
    return shape + tuple(
        complaint
        for rule in definition.rules_of(flavour)
        for complaint in _complaints_of(rule, new, old, broken)
    )


def _broken(shape: tuple[Complaint, ...]) -> tuple[str, ...]:
    """Where a document is not even of the right shape."""
    return tuple(complaint.path for complaint in shape if complaint.rule in ("type", "required"))


def _complaints_of(rule: Rule, new: Any, old: Any, broken: tuple[str, ...]) -> Iterator[Complaint]:
    for path, value, before in _places(rule.at, new, old):
        if any(_within(bad, path) for bad in broken):
            continue  # a rule reads what the schema promises, and here it does not hold
        if rule.transition:
            verdict = before is ABSENT or rule.holds(value, before)
        else:
            verdict = (before is not ABSENT and same(value, before)) or rule.holds(value, None)
        if not verdict:
            yield Complaint(path, rule.says, rule.id)


def _within(path: str, place: str) -> bool:
    return path == place or (path.startswith(place) and path[len(place)] in ".[")


def _places(at: str, new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every value a rule speaks of, with its path and what stood there before."""
    places = [("", new, old)]
    for step in at.replace("[]", ".[]").split("."):
        places = [inner for path, value, before in places for inner in _step(step, path, value, before)]
    yield from places


def _step(step: str, path: str, value: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    if step == "[]":
        if isinstance(value, list):
            # Items of our lists have no identity over time, unless the whole list stayed as it was.
            kept = isinstance(old, list) and same(value, old)
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item, item if kept else ABSENT
    elif isinstance(value, dict) and step in value:
        yield field_path(path, step), value[step], old.get(step, ABSENT) if isinstance(old, dict) else ABSENT
