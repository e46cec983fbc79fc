"""What a controller finds wrong with a stored pool or overlay, in Karpenter's words.

Admission lets some mistakes through, mostly in values it cannot see into. These make the object's
ValidationSucceeded condition False, and all findings are told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dovetail.api import labels
from dovetail.api.core import Taint
from dovetail.api.crds.definition import NUMERIC, OPERATORS, parse_natural
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.api.validation.complaint import Complaint
from dovetail.api.validation.names import label_value_errors, qualified_name_errors

KNOWN_VALUES = {
    labels.CAPACITY_TYPE: frozenset(labels.CAPACITY_TYPES),
    labels.INSTANCE_TENANCY: frozenset(("default", "dedicated")),
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")
_CORE_RESOURCES = (labels.CPU, labels.MEMORY, labels.EPHEMERAL_STORAGE, labels.PODS)
_AWS_RESOURCES = (labels.POD_ENI, labels.NEURON, labels.NEURON_CORE, labels.GAUDI, labels.EFA)


def runtime_complaints(pool: NodePool, flavour: labels.Flavour = labels.CORE) -> tuple[Complaint, ...]:
    """Why a pool cannot be used; the condition's message is their messages joined with `; `."""
    template = pool.spec.template
    return (
        *_label_complaints(template.metadata.labels, flavour),
        *_taint_complaints(template.spec.taints, template.spec.startup_taints),
        *_requirement_complaints(template.spec.requirements or (), flavour),
    )


def runtime_complaints_overlay(
    overlay: NodeOverlay, flavour: labels.Flavour = labels.CORE
) -> tuple[Complaint, ...]:
    """Why an overlay cannot be used."""
    return (
        *(
            _build_complaint(f"spec.requirements[{index}]", error)
            for index, requirement in enumerate(overlay.spec.requirements)
            for error in _overlay_requirement_errors(requirement, flavour)
        ),
        *(
            _build_complaint(f"spec.capacity[{name}]", f"invalid capacity: {name} in resource, restricted")
            for name in sorted(set(overlay.spec.capacity) & set(_overlaid_never(flavour)))
        ),
    )


def requirement_errors(
    requirement: Requirement | NodeSelectorRequirement, flavour: labels.Flavour = labels.CORE
) -> tuple[str, ...]:
    """Everything wrong with one requirement; also what a pod's own requirements are held to."""
    key = labels.normalize_label(requirement.key)
    values, operator = requirement.values, requirement.operator
    least = requirement.min_values if isinstance(requirement, Requirement) else None
    return (
        *_operator_errors(key, operator),
        *(error for error in (labels.describe_restriction(key, flavour),) if error is not None),
        *_known_value_errors(key, operator, values, least, flavour),
        *(f"key {key} is not a qualified name, {error}" for error in qualified_name_errors(key)),
        *(
            f"invalid value {value} for key {key}, {error}"
            for value in values
            for error in label_value_errors(value)
        ),
        *_count_errors(key, operator, values, least),
    )


def _label_complaints(chosen: Mapping[str, str], flavour: labels.Flavour) -> Iterator[Complaint]:
    for key, value in chosen.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key == labels.NODEPOOL:
            yield _build_complaint(path, f'invalid key name "{key}" in labels, restricted')
        for error in qualified_name_errors(key):
            yield _build_complaint(path, f'invalid key name "{key}" in labels, {_quote_text(error)}')
        for error in label_value_errors(value):
            yield _build_complaint(path, f"invalid value: {value} for label[{key}], {error}")
        if (why := labels.describe_restriction(key, flavour)) is not None:
            yield _build_complaint(path, f'invalid key name "{key}" in labels, {why}')


def _taint_complaints(taints: Sequence[Taint], startup: Sequence[Taint]) -> Iterator[Complaint]:
    seen: set[tuple[str, str]] = set()
    for name, given in (("taints", taints), ("startupTaints", startup)):
        told: list[str] = []
        for index, taint in enumerate(given):
            found = list(_taint_errors(taint, name, told))
            if (taint.key, taint.effect) in seen:
                found.append(f"duplicate taint Key/Effect pair {taint.key}={taint.effect}")
            seen.add((taint.key, taint.effect))
            told += found
            yield from (_build_complaint(f"spec.template.spec.{name}[{index}]", error) for error in found)


def _taint_errors(taint: Taint, name: str, told: Sequence[str]) -> Iterator[str]:
    if not taint.key:
        # Karpenter: an empty key repeats what was said so far instead of a reason, and so do we, since
        # the text is compared.
        yield f"invalid value: {'; '.join(told) or '%!w(<nil>)'} in {name}"
    for error in qualified_name_errors(taint.key):
        yield f"invalid value: {error} in {name}"
    # Karpenter: values are held to the rules of qualified names, not of label values.
    for error in qualified_name_errors(taint.value) if taint.value else ():
        yield f"invalid value: {error} in {name}"
    if taint.effect not in _EFFECTS:
        yield f"invalid value: {_quote_text(taint.effect)} in {name}"


def _requirement_complaints(
    requirements: Sequence[Requirement], flavour: labels.Flavour
) -> Iterator[Complaint]:
    for index, requirement in enumerate(requirements):
        path = f"spec.template.spec.requirements[{index}]"
        if requirement.key == labels.NODEPOOL:
            yield _build_complaint(
                path, f"invalid key: {_quote_text(requirement.key)} in requirements, restricted"
            )
        if errors := requirement_errors(requirement, flavour):
            yield _build_complaint(path, f"invalid value: {'; '.join(errors)} in requirements, restricted")


def _operator_errors(key: str, operator: str) -> Iterator[str]:
    if operator not in OPERATORS:
        yield f"key {key} has an unsupported operator {operator} not in [{' '.join(sorted(OPERATORS))}]"


def _known_value_errors(
    key: str, operator: str, values: Sequence[str], least: int | None, flavour: labels.Flavour
) -> Iterator[str]:
    known = KNOWN_VALUES.get(key)
    if known is None or operator != "In" or key not in flavour.well_known:
        return
    usable = [value for value in values if value in known]
    shown = f"[{' '.join(values)}] for {key}, expected one of: [{' '.join(sorted(known))}]"
    if values and not usable:
        yield f"no valid values found in {shown}"
    elif least is not None and len(usable) < least:
        yield f"not enough valid values found in {shown}"


def _count_errors(key: str, operator: str, values: Sequence[str], least: int | None) -> Iterator[str]:
    if operator == "In" and not values:
        yield f"key {key} with operator In must have a value defined"
    if operator == "In" and least is not None and len(values) < least:
        why = "must have at least minimum number of values defined in 'values' field"
        yield f"key {key} with operator In {why}"
    if operator in NUMERIC and not (len(values) == 1 and parse_natural(values[0]) is not None):
        yield f"key {key} with operator {operator} must have a single positive integer value"


def _overlay_requirement_errors(
    requirement: NodeSelectorRequirement, flavour: labels.Flavour
) -> Iterator[str]:
    yield from requirement_errors(requirement, flavour)
    if requirement.operator == "NotIn" and not requirement.values:
        yield f"key {requirement.key} with operator NotIn must have a value defined"


def _overlaid_never(flavour: labels.Flavour) -> tuple[str, ...]:
    aws = labels.KARPENTER_AWS in flavour.domains
    return (*_CORE_RESOURCES, *_AWS_RESOURCES) if aws else _CORE_RESOURCES


def _build_complaint(path: str, message: str) -> Complaint:
    return Complaint(path, message, "runtime")


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
