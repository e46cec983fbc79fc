"""Everything we can say about a document before it reaches a cluster: `dovetail validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dovetail.api import labels
from dovetail.api.crds import DEFINITIONS, Definition, Flavour, defaulted, definition_of
from dovetail.api.manifests import Severity
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.api.validation.admission import admission_complaints
from dovetail.api.validation.advice import advice_about
from dovetail.api.validation.complaint import Complaint
from dovetail.api.validation.runtime import runtime_complaints, runtime_complaints_overlay
from dovetail.api.validation.schema import ABSENT

_LABEL_RULES = {"aws": labels.AWS, "kwok": labels.KWOK}
_LEGACY = ("Provisioner", "Machine", "AWSNodeTemplate")
_GONE = {
    f"{labels.KARPENTER_AWS}/instance-pods": "set kubelet.maxPods on the node class instead",
    f"{labels.KARPENTER_AWS}/instance-ami-id": "select images on the node class instead",
}
_LONGEST_NAME = 253


def check(document: Mapping[str, Any], flavour: Flavour = "aws") -> tuple[Complaint, ...]:
    """What admission, the controllers and experience say of a document; errors before warnings.

    Each stage trusts the one before it, so runtime findings and advice wait until admission is content.
    """
    api_version, kind = document.get("apiVersion"), document.get("kind")
    definition = definition_of(str(api_version), str(kind), flavour)
    if definition is None:
        return (_unknown_kind(api_version, kind, flavour),)
    stored = defaulted(definition.record.KIND.kind, document)
    found = (*_metadata_complaints(stored, definition), *_admission(definition, stored, flavour))
    if not any(complaint.severity is Severity.ERROR for complaint in found):
        found += _runtime(stored, definition, flavour)
        found += advice_about(definition.record.KIND.kind, stored, flavour)
    return tuple(sorted(found, key=lambda complaint: complaint.severity is Severity.WARNING))


def _admission(definition: Definition, stored: Any, flavour: Flavour) -> Iterator[Complaint]:
    for complaint in admission_complaints(definition.record.KIND.kind, stored, ABSENT, flavour):
        yield complaint
        if complaint.rule in ("NP-11:aws", "NC-4") and (gone := _GONE.get(_at(stored, complaint.path))):
            yield Complaint(complaint.path, f"this label is gone: {gone}", "gone-label", Severity.WARNING)
        if complaint.rule == "NP-7" and labels.DO_NOT_DISRUPT in _at(stored, complaint.path):
            message = f"{labels.DO_NOT_DISRUPT} has no effect as a label: make it an annotation"
            yield Complaint(complaint.path, message, "do-not-disrupt-label", Severity.WARNING)


def _at(document: Any, path: str) -> Any:
    """What stands at the path of a complaint about plainly named fields."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _metadata_complaints(document: Mapping[str, Any], definition: Definition) -> Iterator[Complaint]:
    metadata = document.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Complaint("metadata", "must be an object", "type")
        return
    name = metadata.get("name")
    if name is None and not metadata.get("generateName"):
        yield Complaint("metadata.name", "is required", "required")
    elif name is not None and not _object_name(name):
        yield Complaint(
            "metadata.name", f"{name!r} must be lower case letters, digits, '-' and '.' only", "pattern"
        )
    if metadata.get("namespace") and not definition.record.KIND.namespaced:
        kind = definition.record.KIND.kind
        message = f"is ignored: a {kind} belongs to the whole cluster"
        yield Complaint("metadata.namespace", message, "namespace", Severity.WARNING)


def _object_name(name: Any) -> bool:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        return False
    parts = name.split(".")
    plain = all(part.replace("-", "").isalnum() and part.isascii() for part in parts)
    return plain and name == name.lower() and not any(p[0] == "-" or p[-1] == "-" for p in parts)


def _runtime(document: Mapping[str, Any], definition: Definition, flavour: Flavour) -> tuple[Complaint, ...]:
    if definition.record not in (NodePool, NodeOverlay):
        return ()
    try:
        record = msgspec.convert(
            {"spec": document["spec"]}, definition.record, dec_hook=_quantity, strict=False
        )
    except msgspec.ValidationError as error:
        return (Complaint("spec", f"cannot be read: {error}", "runtime"),)
    if isinstance(record, NodePool):
        return runtime_complaints(record, _LABEL_RULES[flavour])
    assert isinstance(record, NodeOverlay)  # the only other record let through above
    return runtime_complaints_overlay(record, _LABEL_RULES[flavour])


def _quantity(kind: type, value: Any) -> Any:
    if kind is not Quantity:
        raise TypeError(f"{kind.__name__} cannot be read here")
    try:
        return Quantity.parse(str(value))
    except BadQuantity as error:
        raise ValueError(str(error)) from error


def _unknown_kind(api_version: Any, kind: Any, flavour: Flavour) -> Complaint:
    name = f"{api_version} {kind}"
    for other, definitions in DEFINITIONS.items():
        for definition in definitions:
            known = definition.record.KIND
            if known.kind != kind:
                continue
            if known.api_version == api_version and other != flavour:
                return _kind_complaint(f"{name} belongs to the {other} provider, and this is {flavour}")
            if str(api_version).partition("/")[0] == known.group:
                return _kind_complaint(f"{name} is not served: write it as {known.api_version}")
    if kind in _LEGACY:
        return _kind_complaint(f"{name} is from before v1: convert it first")
    kinds = ", ".join(definition.record.KIND.kind for definition in DEFINITIONS[flavour])
    return _kind_complaint(f"{name} is not a kind we know: those are {kinds}")


def _kind_complaint(message: str) -> Complaint:
    return Complaint("kind", message, "kind")
