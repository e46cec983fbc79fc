"""Provisioner to NodePool.

Alpha left a great deal to defaults that v1 does not share. Whatever a Provisioner meant by saying
nothing, the NodePool says aloud.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dovetail.api.legacy.names import V1, metadata, renamed_annotations, template_labels
from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.settings import ConvertOptions
from dovetail.api.legacy.templates import defaulted, requirements, taints

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


def node_pool(scribe: Scribe, name: str, options: ConvertOptions) -> dict[str, Any]:
    """The NodePool a Provisioner stands for, but for its nodeClassRef, which is filled in later."""
    spec = scribe.only(scribe.mapping(scribe.document.value.get("spec"), "spec"), "spec", _SPEC)
    made: dict[str, Any] = {
        "template": _template(scribe, spec, options),
        "disruption": _disruption(scribe, spec, options),
    }
    made |= _limits(scribe, spec) | _weight(scribe, spec)
    return {"apiVersion": V1, "kind": "NodePool", "metadata": metadata(scribe, name), "spec": made}


def _template(scribe: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    labels = template_labels(scribe, scribe.strings(spec.get("labels"), "spec.labels"), "spec.labels")
    given = scribe.strings(spec.get("annotations"), "spec.annotations")
    annotations = renamed_annotations(scribe, given, "spec.annotations")
    head = {k: v for k, v in (("labels", labels), ("annotations", annotations)) if v}
    body: dict[str, Any] = {"nodeClassRef": {}, "requirements": _requirements(scribe, spec, labels, options)}
    for field in ("taints", "startupTaints"):
        found = taints(scribe, spec.get(field), f"spec.{field}")
        if found:
            body[field] = found
    body["expireAfter"] = _expiry(scribe, spec)
    return ({"metadata": head} if head else {}) | {"spec": body}


def _requirements(
    scribe: Scribe, spec: dict[str, Any], labels: dict[str, str], options: ConvertOptions
) -> list[dict[str, Any]]:
    given = requirements(scribe, spec.get("requirements"), "spec.requirements")
    if options.ignore_defaults:
        return given
    added = defaulted(given)
    for one in added:
        fixed = labels.get(one["key"])
        if fixed is not None and one["operator"] == "In" and fixed not in one["values"]:
            message = (
                f"{one['key']} is also given as a label with another value, so that nothing fits; require it"
            )
            scribe.warn("spec.requirements", message)
    if added:
        keys = ", ".join(one["key"] for one in added)
        scribe.info("spec.requirements", f"the old defaults for {keys} are written out, since v1 has none")
    return given + added


def _disruption(scribe: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    consolidation = scribe.mapping(spec.get("consolidation"), "spec.consolidation")
    idle = scribe.whole(spec.get("ttlSecondsAfterEmpty"), "spec.ttlSecondsAfterEmpty")
    if consolidation.get("enabled") is True:
        if idle is not None:
            message = "excludes consolidation, which is also enabled; consolidation is kept"
            scribe.warn("spec.ttlSecondsAfterEmpty", message)
        made: dict[str, Any] = _policy("WhenEmptyOrUnderutilized", "0s")
    elif idle is not None:
        made = _policy("WhenEmpty", f"{idle}s")
    else:
        # The v1 default would consolidate nodes that alpha left alone.
        made = _policy("WhenEmpty", "Never")
    if options.legacy_budgets:
        made["budgets"] = deepcopy(_LEGACY_BUDGETS)
    return made


def _policy(policy: str, after: str) -> dict[str, Any]:
    return {"consolidationPolicy": policy, "consolidateAfter": after}


def _expiry(scribe: Scribe, spec: dict[str, Any]) -> str:
    seconds = scribe.whole(spec.get("ttlSecondsUntilExpired"), "spec.ttlSecondsUntilExpired")
    if seconds is None:
        return "Never"  # alpha nodes did not expire unless told to; v1 nodes do after 720h
    message = (
        "expiry is forceful in v1: it no longer waits for budgets or replacements; "
        "consider terminationGracePeriod, with care"
    )
    scribe.warn("spec.ttlSecondsUntilExpired", message)
    return f"{seconds}s"


def _limits(scribe: Scribe, spec: dict[str, Any]) -> dict[str, Any]:
    limits = scribe.only(
        scribe.mapping(spec.get("limits"), "spec.limits"), "spec.limits", frozenset({"resources"})
    )
    resources = scribe.mapping(limits.get("resources"), "spec.limits.resources")
    return {"limits": deepcopy(resources)} if resources else {}


def _weight(scribe: Scribe, spec: dict[str, Any]) -> dict[str, Any]:
    weight = scribe.whole(spec.get("weight"), "spec.weight")
    if weight is None or weight == 0:
        return {}  # v1 has no weight of 0; none means the same
    if weight > 100:
        scribe.warn("spec.weight", f"{weight} is more than v1 takes; 100 is written")
    return {"weight": min(weight, 100)}
