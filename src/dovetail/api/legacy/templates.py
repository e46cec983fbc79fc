"""The parts of a NodePool's template that alpha, beta and v1 share: requirements, taints, kubelet."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.names import admitted
from dovetail.api.legacy.notes import Scribe

OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"})
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_KUBELET = frozenset(
    [
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    ]
)
_KUBELET_MAPS = (
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
)
_NARROWING = (
    labels.INSTANCE_TYPE,
    labels.INSTANCE_FAMILY,
    labels.INSTANCE_CATEGORY,
    labels.INSTANCE_GENERATION,
)


def requirements(
    scribe: Scribe, given: Any, path: str, also: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """The requirements v1 admits, under their v1 keys. `also` are keys allowed beyond a NodePool's."""
    kept = []
    for i, item in enumerate(scribe.items(given, path)):
        requirement = _requirement(scribe, scribe.mapping(item, f"{path}[{i}]"), f"{path}[{i}]", also)
        if requirement:
            kept.append(requirement)
    return kept


def _requirement(
    scribe: Scribe, item: dict[str, Any], path: str, also: frozenset[str]
) -> dict[str, Any] | None:
    written = scribe.text(item.get("key"), f"{path}.key")
    key = written.strip()
    if key != written:
        scribe.warn(f"{path}.key", f'"{written}" has blanks around it; they are taken off')
    if not key:
        scribe.refuse(f"{path}.key", "is missing, so the object cannot be converted; correct it first")
        return None
    if not admitted(key) and key not in also:
        scribe.warn(f"{path}.key", f"{key} is no label v1 selects by; the requirement is left out")
        return None
    operator = scribe.text(item.get("operator"), f"{path}.operator")
    values = [scribe.text(v, f"{path}.values") for v in scribe.items(item.get("values"), f"{path}.values")]
    _check_operator(scribe, operator, values, path)
    made: dict[str, Any] = {"key": key, "operator": operator}
    if values:
        made["values"] = values
    if item.get("minValues") is not None:
        made["minValues"] = item["minValues"]
    return made


def _check_operator(scribe: Scribe, operator: str, values: list[str], path: str) -> None:
    if operator not in OPERATORS:
        scribe.refuse(
            f"{path}.operator", f'"{operator}" is no operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt'
        )
    elif operator == "In" and not values:
        scribe.refuse(f"{path}.values", "In needs at least one value; add one")
    elif operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isdecimal()):
        scribe.refuse(f"{path}.values", f"{operator} needs exactly one whole number; correct it first")


def defaulted(requirements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the alpha webhook added, so that the pool still means the same without it."""
    keys = {labels.normalized(one["key"]) for one in requirements}
    added = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (
            (labels.OS, "linux"),
            (labels.ARCH, "amd64"),
            (labels.CAPACITY_TYPE, labels.ON_DEMAND),
        )
        if key not in keys
    ]
    if keys.isdisjoint(_NARROWING):
        added.append({"key": labels.INSTANCE_CATEGORY, "operator": "In", "values": ["c", "m", "r"]})
        # Karpenter's migration page shows `In 2`; the webhook wrote `Gt 2`.
        added.append({"key": labels.INSTANCE_GENERATION, "operator": "Gt", "values": ["2"]})
    return added


def taints(scribe: Scribe, given: Any, path: str) -> list[dict[str, Any]]:
    """Taints as they were; v1 takes none without an effect."""
    kept = []
    for i, item in enumerate(scribe.items(given, path)):
        taint = deepcopy(scribe.mapping(item, f"{path}[{i}]"))
        if taint.get("key") == "karpenter.sh/legacy":
            # Migration guides put it on the old Provisioner to stop it from making nodes.
            scribe.warn(f"{path}[{i}]", "only kept pods off the old Provisioner's nodes; it is left out")
            continue
        if taint.get("effect") not in _EFFECTS:
            message = "has no effect v1 takes; add NoSchedule, PreferNoSchedule or NoExecute"
            scribe.refuse(f"{path}[{i}].effect", message)
        if "value" in taint:
            taint["value"] = scribe.text(taint["value"], f"{path}[{i}].value")
            if not taint["value"]:
                del taint["value"]  # v1 takes an absent value, not an empty one
        kept.append(taint)
    return kept


def kubelet(scribe: Scribe, given: Any, path: str) -> dict[str, Any]:
    """The kubelet block as a node class takes it."""
    block = dict(scribe.mapping(given, path))
    runtime = block.pop("containerRuntime", None)
    if runtime not in (None, "containerd"):
        scribe.warn(f"{path}.containerRuntime", f"{runtime} is gone; only containerd exists")
    kept = deepcopy(scribe.only(block, path, _KUBELET))
    for name in _KUBELET_MAPS:
        if name in kept:
            kept[name] = scribe.strings(kept[name], f"{path}.{name}")
    return kept
