"""Everything we can say about a document before it reaches a cluster: `dovetail validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dovetail.api import labels
from dovetail.api.commitment import Commitment, find_commitment_problems
from dovetail.api.crds import (
    PROVIDER_APIS,
    AdmissionRule,
    CrdDefinition,
    apply_defaults,
    find_definition,
    find_provider_api,
    find_schema,
    list_definitions,
)
from dovetail.api.crds.manifest import OWN
from dovetail.api.manifests import Severity
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.api.schema.nodes import MISSING
from dovetail.api.schema.validation import is_same_json
from dovetail.api.spend_limit import SpendLimit, find_spend_problems
from dovetail.api.validation.advice import advice_about
from dovetail.api.validation.complaint import Complaint, field_path
from dovetail.api.validation.runtime import runtime_complaints, runtime_complaints_overlay
from dovetail.api.validation.schema import schema_complaints


def admit_object(
    kind: str, new: Mapping[str, Any], old: Mapping[str, Any] | None = None, provider: str = "aws"
) -> tuple[Complaint, ...]:
    """Why an object cannot be stored; empty when it can. `old` is the stored object of an update.

    As the API server does, unknown fields are dropped and defaults filled in first.
    """
    schema = find_schema(kind, provider)
    before = MISSING if old is None else apply_defaults(kind, schema.prune(dict(old))[0])
    found = admission_complaints(kind, apply_defaults(kind, schema.prune(dict(new))[0]), before, provider)
    # What is left to warn about is kept by the server too, and so is no reason to refuse.
    return tuple(complaint for complaint in found if complaint.severity is Severity.ERROR)


def admission_complaints(kind: str, new: Any, old: Any, provider: str) -> tuple[Complaint, ...]:
    """The same of documents whose defaults are filled in, with warnings about unknown fields."""
    schema = find_schema(kind, provider)
    shape = schema_complaints(schema, new, old)
    broken = _list_broken_paths(shape) + (
        () if old is MISSING else _list_broken_paths(schema_complaints(schema, old))
    )
    (definition,) = (d for d in (*list_definitions(provider), *OWN) if d.record.KIND.kind == kind)
    return shape + tuple(
        complaint
        for rule in definition.rules_of(provider)
        for complaint in _check_rule(rule, new, old, broken)
    )


def _list_broken_paths(shape: tuple[Complaint, ...]) -> tuple[str, ...]:
    """Where a document is not even of the right shape."""
    return tuple(complaint.path for complaint in shape if complaint.rule in ("type", "required"))


def _check_rule(rule: AdmissionRule, new: Any, old: Any, broken: tuple[str, ...]) -> Iterator[Complaint]:
    for path, value, before in _find_places(rule.at, new, old):
        if any(_is_within(bad, path) for bad in broken):
            continue  # a rule reads what the schema promises, and here it does not hold
        if rule.transition:
            verdict = before is MISSING or rule.holds(value, before)
        else:
            verdict = (before is not MISSING and is_same_json(value, before)) or rule.holds(value, None)
        if not verdict:
            yield Complaint(path, rule.says, rule.id)


def _is_within(path: str, place: str) -> bool:
    return path == place or (path.startswith(place) and path[len(place)] in ".[")


def _find_places(at: str, new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every value a rule speaks of, with its path and what stood there before."""
    places = [("", new, old)]
    for step in at.replace("[]", ".[]").split("."):
        places = [
            inner for path, value, before in places for inner in _follow_step(step, path, value, before)
        ]
    yield from places


def _follow_step(step: str, path: str, value: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    if step == "[]":
        if isinstance(value, list):
            # Items of our lists have no identity over time, unless the whole list stayed as it was.
            kept = isinstance(old, list) and is_same_json(value, old)
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item, item if kept else MISSING
    elif isinstance(value, dict) and step in value:
        yield (
            field_path(path, step),
            value[step],
            old.get(step, MISSING) if isinstance(old, dict) else MISSING,
        )


_LEGACY = ("Provisioner", "Machine", "AWSNodeTemplate")
_GONE = {
    f"{labels.KARPENTER_AWS}/instance-pods": "set kubelet.maxPods on the node class instead",
    f"{labels.KARPENTER_AWS}/instance-ami-id": "select images on the node class instead",
}
_LONGEST_NAME = 253


def check_document(document: Mapping[str, Any], provider: str = "aws") -> tuple[Complaint, ...]:
    """What admission, the controllers and experience say of a document; errors before warnings.

    Each stage trusts the one before it, so runtime findings and advice wait until admission is content.
    """
    api_version, kind = document.get("apiVersion"), document.get("kind")
    definition = find_definition(str(api_version), str(kind), provider)
    if definition is None:
        return (_unknown_kind(api_version, kind, provider),)
    stored = apply_defaults(definition.record.KIND.kind, document)
    found = (*_metadata_complaints(stored, definition), *_check_admission(definition, stored, provider))
    if not any(complaint.severity is Severity.ERROR for complaint in found):
        found += _check_runtime(stored, definition, provider)
        found += advice_about(definition.record.KIND.kind, stored, provider)
    return tuple(sorted(found, key=lambda complaint: complaint.severity is Severity.WARNING))


def _check_admission(definition: CrdDefinition, stored: Any, provider: str) -> Iterator[Complaint]:
    for complaint in admission_complaints(definition.record.KIND.kind, stored, MISSING, provider):
        yield complaint
        if complaint.rule in ("NP-11:aws", "NC-4") and (
            gone := _GONE.get(_find_value(stored, complaint.path))
        ):
            yield Complaint(complaint.path, f"this label is gone: {gone}", "gone-label", Severity.WARNING)
        if complaint.rule == "NP-7" and labels.DO_NOT_DISRUPT in _find_value(stored, complaint.path):
            message = f"{labels.DO_NOT_DISRUPT} has no effect as a label: make it an annotation"
            yield Complaint(complaint.path, message, "do-not-disrupt-label", Severity.WARNING)


def _find_value(document: Any, path: str) -> Any:
    """What stands at the path of a complaint about plainly named fields."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _metadata_complaints(document: Mapping[str, Any], definition: CrdDefinition) -> Iterator[Complaint]:
    metadata = document.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Complaint("metadata", "must be an object", "type")
        return
    name = metadata.get("name")
    if name is None and not metadata.get("generateName"):
        yield Complaint("metadata.name", "is required", "required")
    elif name is not None and not _is_object_name(name):
        yield Complaint(
            "metadata.name", f"{name!r} must be lower case letters, digits, '-' and '.' only", "pattern"
        )
    if metadata.get("namespace") and not definition.record.KIND.namespaced:
        kind = definition.record.KIND.kind
        message = f"is ignored: a {kind} belongs to the whole cluster"
        yield Complaint("metadata.namespace", message, "namespace", Severity.WARNING)


def _is_object_name(name: Any) -> bool:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        return False
    parts = name.split(".")
    plain = all(part.replace("-", "").isalnum() and part.isascii() for part in parts)
    return plain and name == name.lower() and not any(p[0] == "-" or p[-1] == "-" for p in parts)


def _check_runtime(
    document: Mapping[str, Any], definition: CrdDefinition, provider: str
) -> tuple[Complaint, ...]:
    if definition.record not in (NodePool, NodeOverlay, SpendLimit, Commitment):
        return ()
    try:
        record = msgspec.convert(
            {"spec": document["spec"]}, definition.record, dec_hook=_decode_quantity, strict=False
        )
    except msgspec.ValidationError as error:
        return (Complaint("spec", f"cannot be read: {error}", "runtime"),)
    if isinstance(record, NodePool):
        return runtime_complaints(record, find_provider_api(provider).labels)
    if isinstance(record, SpendLimit):
        return tuple(Complaint(path, why, "spend-limit") for path, why in find_spend_problems(record.spec))
    if isinstance(record, Commitment):
        return tuple(
            Complaint(path, why, "commitment") for path, why in find_commitment_problems(record.spec)
        )
    assert isinstance(record, NodeOverlay)  # the only other record let through above
    return runtime_complaints_overlay(record, find_provider_api(provider).labels)


def _decode_quantity(kind: type, value: Any) -> Any:
    if kind is not Quantity:
        raise TypeError(f"{kind.__name__} cannot be read here")
    try:
        return Quantity.parse(str(value))
    except BadQuantity as error:
        raise ValueError(str(error)) from error


def _unknown_kind(api_version: Any, kind: Any, provider: str) -> Complaint:
    name = f"{api_version} {kind}"
    for other in PROVIDER_APIS:
        for definition in list_definitions(other):
            known = definition.record.KIND
            if known.kind != kind:
                continue
            if known.api_version == api_version and other != provider:
                return _kind_complaint(f"{name} belongs to the {other} provider, and this is {provider}")
            if str(api_version).partition("/")[0] == known.group:
                return _kind_complaint(f"{name} is not served: write it as {known.api_version}")
    if kind in _LEGACY:
        return _kind_complaint(f"{name} is from before v1: convert it first")
    kinds = ", ".join(definition.record.KIND.kind for definition in list_definitions(provider))
    return _kind_complaint(f"{name} is not a kind we know: those are {kinds}")


def _kind_complaint(message: str) -> Complaint:
    return Complaint("kind", message, "kind")
