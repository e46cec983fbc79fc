"""Things that are allowed and probably not meant: what we would tell a person before they find out.

A piece of advice is a small function from a document (defaults filled in) to warnings. It runs only over
documents that would be stored, so shapes can be trusted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dovetail.api import labels
from dovetail.api.crds import find_provider_api
from dovetail.api.crds.ec2 import alias_family
from dovetail.api.manifests import Severity
from dovetail.api.validation.complaint import Complaint, field_path
from dovetail.api.validation.cron import find_cron_problem, never_fires
from dovetail.api.validation.runtime import KNOWN_VALUES
from dovetail.settings.node_extra import parse_node_extra

_EXCLUSIVE = {"subnetSelectorTerms": ("id",), "securityGroupSelectorTerms": ("id", "name")}


def _ending_family(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for index, term in enumerate(_read_spec(document).get("amiSelectorTerms", ())):
        if alias_family(term.get("alias", "")) == "al2":
            yield (
                f"spec.amiSelectorTerms[{index}].alias",
                "has no images for Kubernetes 1.33 and later: use al2023@latest there",
            )


def _bare_unit(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for index, device in enumerate(_read_spec(document).get("blockDeviceMappings", ())):
        size = device.get("ebs", {}).get("volumeSize", "")
        if size in ("T", "Ti"):
            path = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            yield path, f"{size} is a unit without a number; admission lets it through and EC2 will not"


def _self_registering(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    if _read_spec(document).get("amiFamily") == "Custom":
        yield (
            "spec.amiFamily",
            "user data of Custom nodes must register the taint karpenter.sh/unregistered:NoExecute",
        )


def _mixed_terms(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for name, alone in _EXCLUSIVE.items():
        for index, term in enumerate(_read_spec(document).get(name, ())):
            if len(term) > 1 and any(field in term for field in alone):
                yield (
                    f"spec.{name}[{index}]",
                    f"selects only what matches {' and '.join(sorted(term))} together: use a term for each",
                )


def _nothing_selected(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    if "spec" not in document:
        yield "spec", "is missing: the class can be stored but never becomes ready"


def _read_spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = document.get("spec", {})
    return spec


EC2_ADVICE: Mapping[str, Callable[[Mapping[str, Any], str], Iterator[tuple[str, str]]]] = {
    "ending-family": _ending_family,
    "bare-unit": _bare_unit,
    "custom-family": _self_registering,
    "mixed-term": _mixed_terms,
    "no-spec": _nothing_selected,
}


Advice = Callable[[Mapping[str, Any], str], Iterator[tuple[str, str]]]

_RESOURCES = (
    labels.CPU,
    labels.MEMORY,
    labels.EPHEMERAL_STORAGE,
    labels.PODS,
    labels.NODES,
    labels.NVIDIA_GPU,
)
_ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"


def advice_about(kind: str, document: Mapping[str, Any], provider: str) -> tuple[Complaint, ...]:
    """Everything worth a warning about a document that would be stored."""
    return tuple(
        Complaint(path, message, name, Severity.WARNING)
        for name, advise in (*_ADVICE["*"].items(), *_ADVICE.get(kind, {}).items())
        for path, message in advise(document, provider)
    )


def _protected_by_label(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    metadata = document.get("metadata")
    chosen = metadata.get("labels") if isinstance(metadata, dict) else None
    if isinstance(chosen, dict) and labels.DO_NOT_DISRUPT in chosen:
        yield f"metadata.labels[{labels.DO_NOT_DISRUPT}]", "has no effect as a label: make it an annotation"


def _unreadable_extra(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    metadata = document.get("metadata")
    written = metadata.get("annotations") if isinstance(metadata, dict) else None
    for name, value in written.items() if isinstance(written, dict) else ():
        path = f"metadata.annotations[{name}]"
        if name == labels.NODE_EXTRA:
            try:
                parse_node_extra(str(value))
            except ValueError as error:
                yield path, f"cannot be read, so prices lack it and nodes are not consolidated: {error}"
        elif difflib.get_close_matches(name, (labels.NODE_EXTRA,), n=1, cutoff=0.8):
            yield path, f"has no effect: did you mean {labels.NODE_EXTRA}?"


def _unreadable_schedule(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for index, budget in enumerate(document["spec"]["disruption"]["budgets"]):
        schedule, path = budget.get("schedule", ""), f"spec.disruption.budgets[{index}].schedule"
        if not schedule:
            continue
        if problem := find_cron_problem(schedule):
            yield path, f"cannot be read, so the budget always allows 0 nodes: {problem}"
        elif never_fires(schedule):
            yield path, "names no day that exists, and such a budget counts as always active"


def _odd_budgets(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for index, budget in enumerate(document["spec"]["disruption"]["budgets"]):
        path = f"spec.disruption.budgets[{index}]"
        if budget.get("reasons") == []:
            yield (
                f"{path}.reasons",
                "matches no reason, so the budget has no effect: leave it out to mean all",
            )
        elif budget["nodes"].rstrip("%").strip("0") == "" and "schedule" not in budget:
            yield f"{path}.nodes", "is zero at all times: no node will be drifted or consolidated"


def _misspelt_limits(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for name in document["spec"].get("limits", {}):
        near = difflib.get_close_matches(name.lower(), _RESOURCES, n=1, cutoff=0.7)
        if near and name not in _RESOURCES and "/" not in name:
            yield field_path("spec.limits", name), f"limits no resource there is: did you mean {near[0]}?"


def _ignored_by_static_pools(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    spec = document["spec"]
    if "replicas" in spec and spec["disruption"]["consolidateAfter"] not in ("0s", "Never"):
        yield (
            "spec.disruption.consolidateAfter",
            "is ignored, because a pool with replicas is never consolidated",
        )


def _foreign_class(document: Mapping[str, Any], provider: str) -> Iterator[tuple[str, str]]:
    reference = document["spec"]["template"]["spec"]["nodeClassRef"]
    known = find_provider_api(provider).kind
    if (reference["group"], reference["kind"]) != (known.group, known.kind):
        yield (
            "spec.template.spec.nodeClassRef",
            f"is not the {known.kind} of {known.group} that this provider knows, "
            "so the pool would be ignored",
        )


def _half_known_values(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for index, requirement in enumerate(document["spec"]["template"]["spec"]["requirements"]):
        known = KNOWN_VALUES.get(labels.normalize_label(requirement["key"]))
        if known is None or requirement["operator"] != "In":
            continue
        if odd := [value for value in requirement.get("values", ()) if value not in known]:
            yield (
                f"spec.template.spec.requirements[{index}].values",
                f"{', '.join(odd)} will never match: the values are {', '.join(sorted(known))}",
            )


def _inert_buffer(document: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    spec = document["spec"]
    scalable = spec.get("scalableRef")
    if "podTemplateRef" not in spec and scalable is None:
        yield "spec", "needs podTemplateRef or scalableRef, or the buffer cannot be resolved"
    if spec["provisioningStrategy"] != _ACTIVE_CAPACITY:
        yield "spec.provisioningStrategy", f"is left to others: only {_ACTIVE_CAPACITY} is acted on"
    if scalable is None and "percentage" in spec:
        yield "spec.percentage", "has no effect without scalableRef"
    if scalable and scalable.get("apiGroup", "") not in ("", "apps"):
        yield "spec.scalableRef.apiGroup", "must be apps, or the buffer cannot be resolved"
    if scalable and scalable["kind"] not in ("Deployment", "StatefulSet", "ReplicaSet"):
        yield (
            "spec.scalableRef.kind",
            "must be Deployment, StatefulSet or ReplicaSet, or it cannot be resolved",
        )


_ADVICE: Mapping[str, Mapping[str, Advice]] = {
    "*": {"do-not-disrupt-label": _protected_by_label},
    "NodePool": {
        "unreadable-extra": _unreadable_extra,
        "unreadable-schedule": _unreadable_schedule,
        "odd-budget": _odd_budgets,
        "misspelt-limit": _misspelt_limits,
        "static-pool": _ignored_by_static_pools,
        "foreign-node-class": _foreign_class,
        "unknown-value": _half_known_values,
    },
    "CapacityBuffer": {"inert-buffer": _inert_buffer},
    "EC2NodeClass": EC2_ADVICE,
}
