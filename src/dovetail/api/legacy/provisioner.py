"""Provisioner to NodePool.

Alpha left a great deal to defaults that v1 does not share. Whatever a Provisioner meant by saying
nothing, the NodePool says aloud.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dovetail.api.legacy.names import V1, build_metadata, convert_template_labels, rename_annotations
from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.options import ConvertOptions
from dovetail.api.legacy.shared_parts import convert_requirements, convert_taints, list_default_requirements

_SPEC = frozenset(
    [
        "annotations",
        "labels",
        "taints",
        "startupTaints",
        "requirements",
        "kubeletConfiguration",
        "provider",
        "providerRef",
        "ttlSecondsAfterEmpty",
        "ttlSecondsUntilExpired",
        "limits",
        "weight",
        "consolidation",
    ]
)
_LEGACY_BUDGETS = [
    {"nodes": "1", "reasons": ["Drifted", "Underutilized"]},
    {"nodes": "100%", "reasons": ["Empty"]},
]


def convert_node_pool(writer: Scribe, name: str, options: ConvertOptions) -> dict[str, Any]:
    """The NodePool a Provisioner stands for, but for its nodeClassRef, which is filled in later."""
    spec = writer.keep_known(writer.read_mapping(writer.document.value.get("spec"), "spec"), "spec", _SPEC)
    made: dict[str, Any] = {
        "template": _convert_template(writer, spec, options),
        "disruption": _convert_disruption(writer, spec, options),
    }
    made |= _convert_limits(writer, spec) | _convert_weight(writer, spec)
    return {"apiVersion": V1, "kind": "NodePool", "metadata": build_metadata(writer, name), "spec": made}


def _convert_template(writer: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    labels = convert_template_labels(
        writer, writer.read_strings(spec.get("labels"), "spec.labels"), "spec.labels"
    )
    given = writer.read_strings(spec.get("annotations"), "spec.annotations")
    annotations = rename_annotations(writer, given, "spec.annotations")
    head = {k: v for k, v in (("labels", labels), ("annotations", annotations)) if v}
    body: dict[str, Any] = {
        "nodeClassRef": {},
        "requirements": _convert_requirements(writer, spec, labels, options),
    }
    for field in ("taints", "startupTaints"):
        found = convert_taints(writer, spec.get(field), f"spec.{field}")
        if found:
            body[field] = found
    body["expireAfter"] = _convert_expiry(writer, spec)
    return ({"metadata": head} if head else {}) | {"spec": body}


def _convert_requirements(
    writer: Scribe, spec: dict[str, Any], labels: dict[str, str], options: ConvertOptions
) -> list[dict[str, Any]]:
    given = convert_requirements(writer, spec.get("requirements"), "spec.requirements")
    if options.ignore_defaults:
        return given
    added = list_default_requirements(given)
    for one in added:
        fixed = labels.get(one["key"])
        if fixed is not None and one["operator"] == "In" and fixed not in one["values"]:
            message = (
                f"{one['key']} is also given as a label with another value, so that nothing fits; require it"
            )
            writer.warn("spec.requirements", message)
    if added:
        keys = ", ".join(one["key"] for one in added)
        writer.info("spec.requirements", f"the old defaults for {keys} are written out, since v1 has none")
    return given + added


def _convert_disruption(writer: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    consolidation = writer.read_mapping(spec.get("consolidation"), "spec.consolidation")
    idle = writer.read_number(spec.get("ttlSecondsAfterEmpty"), "spec.ttlSecondsAfterEmpty")
    if consolidation.get("enabled") is True:
        if idle is not None:
            message = "excludes consolidation, which is also enabled; consolidation is kept"
            writer.warn("spec.ttlSecondsAfterEmpty", message)
        made: dict[str, Any] = _build_policy("WhenEmptyOrUnderutilized", "0s")
    elif idle is not None:
        made = _build_policy("WhenEmpty", f"{idle}s")
    else:
        # The v1 default would consolidate nodes that alpha left alone.
        made = _build_policy("WhenEmpty", "Never")
    if options.legacy_budgets:
        made["budgets"] = deepcopy(_LEGACY_BUDGETS)
    return made


def _build_policy(policy: str, after: str) -> dict[str, Any]:
    return {"consolidationPolicy": policy, "consolidateAfter": after}


def _convert_expiry(writer: Scribe, spec: dict[str, Any]) -> str:
    seconds = writer.read_number(spec.get("ttlSecondsUntilExpired"), "spec.ttlSecondsUntilExpired")
    if seconds is None:
        return "Never"  # alpha nodes did not expire unless told to; v1 nodes do after 720h
    message = (
        "expiry is forceful in v1: it no longer waits for budgets or replacements; "
        "consider terminationGracePeriod, with care"
    )
    writer.warn("spec.ttlSecondsUntilExpired", message)
    return f"{seconds}s"


def _convert_limits(writer: Scribe, spec: dict[str, Any]) -> dict[str, Any]:
    limits = writer.keep_known(
        writer.read_mapping(spec.get("limits"), "spec.limits"), "spec.limits", frozenset({"resources"})
    )
    resources = writer.read_mapping(limits.get("resources"), "spec.limits.resources")
    return {"limits": deepcopy(resources)} if resources else {}


def _convert_weight(writer: Scribe, spec: dict[str, Any]) -> dict[str, Any]:
    weight = writer.read_number(spec.get("weight"), "spec.weight")
    if weight is None or weight == 0:
        return {}  # v1 has no weight of 0; none means the same
    if weight > 100:
        writer.warn("spec.weight", f"{weight} is more than v1 takes; 100 is written")
    return {"weight": min(weight, 100)}
