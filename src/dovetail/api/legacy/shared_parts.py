"""The parts of a NodePool's template that alpha, beta and v1 share: requirements, taints, kubelet."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.names import is_admitted
from dovetail.api.legacy.notes import Scribe
from dovetail.api.quantity import BadQuantity, Quantity

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


def convert_requirements(
    writer: Scribe, given: Any, path: str, also: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """The requirements v1 admits, under their v1 keys. `also` are keys allowed beyond a NodePool's."""
    kept = []
    for i, item in enumerate(writer.read_items(given, path)):
        requirement = _convert_requirement(
            writer, writer.read_mapping(item, f"{path}[{i}]"), f"{path}[{i}]", also
        )
        if requirement:
            kept.append(requirement)
    return kept


def _convert_requirement(
    writer: Scribe, item: dict[str, Any], path: str, also: frozenset[str]
) -> dict[str, Any] | None:
    written = writer.read_text(item.get("key"), f"{path}.key")
    key = written.strip()
    if key != written:
        writer.warn(f"{path}.key", f'"{written}" has blanks around it; they are taken off')
    if not key:
        writer.refuse(f"{path}.key", "is missing, so the object cannot be converted; correct it first")
        return None
    if not is_admitted(key) and key not in also:
        writer.warn(f"{path}.key", f"{key} is no label v1 selects by; the requirement is left out")
        return None
    operator = writer.read_text(item.get("operator"), f"{path}.operator")
    values = [
        writer.read_text(v, f"{path}.values") for v in writer.read_items(item.get("values"), f"{path}.values")
    ]
    _check_operator(writer, operator, values, path)
    made: dict[str, Any] = {"key": key, "operator": operator}
    if values:
        made["values"] = values
    if item.get("minValues") is not None:
        made["minValues"] = item["minValues"]
    return made


def _check_operator(writer: Scribe, operator: str, values: list[str], path: str) -> None:
    if operator not in OPERATORS:
        writer.refuse(
            f"{path}.operator", f'"{operator}" is no operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt'
        )
    elif operator == "In" and not values:
        writer.refuse(f"{path}.values", "In needs at least one value; add one")
    elif operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isdecimal()):
        writer.refuse(f"{path}.values", f"{operator} needs exactly one whole number; correct it first")


def list_default_requirements(requirements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the alpha webhook added, so that the pool still means the same without it."""
    keys = {labels.normalize_label(one["key"]) for one in requirements}
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


def convert_taints(writer: Scribe, given: Any, path: str) -> list[dict[str, Any]]:
    """Taints as they were; v1 takes none without an effect."""
    kept = []
    for i, item in enumerate(writer.read_items(given, path)):
        taint = deepcopy(writer.read_mapping(item, f"{path}[{i}]"))
        if taint.get("key") == "karpenter.sh/legacy":
            # Migration guides put it on the old Provisioner to stop it from making nodes.
            writer.warn(f"{path}[{i}]", "only kept pods off the old Provisioner's nodes; it is left out")
            continue
        if taint.get("effect") not in _EFFECTS:
            message = "has no effect v1 takes; add NoSchedule, PreferNoSchedule or NoExecute"
            writer.refuse(f"{path}[{i}].effect", message)
        if "value" in taint:
            taint["value"] = writer.read_text(taint["value"], f"{path}[{i}].value")
            if not taint["value"]:
                del taint["value"]  # v1 takes an absent value, not an empty one
        kept.append(taint)
    return kept


def convert_kubelet(writer: Scribe, given: Any, path: str) -> dict[str, Any]:
    """The kubelet block as a node class takes it."""
    block = dict(writer.read_mapping(given, path))
    runtime = block.pop("containerRuntime", None)
    if runtime not in (None, "containerd"):
        writer.warn(f"{path}.containerRuntime", f"{runtime} is gone; only containerd exists")
    kept = deepcopy(writer.keep_known(block, path, _KUBELET))
    for name in _KUBELET_MAPS:
        if name in kept:
            kept[name] = writer.read_strings(kept[name], f"{path}.{name}")
    return kept


_FIELD = "blockDeviceMappings"
_MAPPING = frozenset({"deviceName", "rootVolume", "ebs"})
_EBS = frozenset(
    [
        "deleteOnTermination",
        "encrypted",
        "iops",
        "kmsKeyID",
        "snapshotID",
        "throughput",
        "volumeInitializationRate",
        "volumeSize",
        "volumeType",
    ]
)
_TYPES = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
# What v1 admits, with its gap: 18Ti, 19Ti, 28Ti and so on are turned away.
_ADMITTED = re.compile(
    r"([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-5][0-7]|58)Ti|([1-9]|[1-5][0-9]|6[0-3]|64)T"
)
_GI, _MOST_GI = 2**30, 59_000
_T, _MOST_T = 10**12, 64

UBUNTU_ROOT = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": True},
}


def convert_block_devices(writer: Scribe, given: Any) -> list[dict[str, Any]]:
    """Every mapping, with sizes v1 admits."""
    return [
        _convert_device(writer, item, f"{_FIELD}[{i}]")
        for i, item in enumerate(writer.read_items(given, _FIELD))
    ]


def _convert_device(writer: Scribe, item: Any, path: str) -> dict[str, Any]:
    device = writer.keep_known(writer.read_mapping(item, path), path, _MAPPING)
    if "ebs" not in device:
        return deepcopy(device)
    ebs = deepcopy(writer.keep_known(writer.read_mapping(device["ebs"], f"{path}.ebs"), f"{path}.ebs", _EBS))
    if "volumeSize" in ebs:
        ebs["volumeSize"] = _convert_size(writer, ebs["volumeSize"], f"{path}.ebs.volumeSize")
    elif not ebs.get("snapshotID"):
        writer.refuse(f"{path}.ebs", "has neither volumeSize nor snapshotID, and v1 needs one; add it")
    if ebs.get("volumeType", "gp3") not in _TYPES:
        writer.refuse(
            f"{path}.ebs.volumeType", f"{ebs['volumeType']!r} is not a volume type v1 takes; choose another"
        )
    return device | {"ebs": ebs}


def _convert_size(writer: Scribe, given: Any, path: str) -> str:
    """The size as v1 takes it: as it was, or rounded up to whole Gi."""
    if isinstance(given, str) and _ADMITTED.fullmatch(given):
        return given
    try:
        size = Quantity.parse(given).value if isinstance(given, str | int | float) else 0
    except BadQuantity:
        size = 0
    gibibytes, terabytes = -(-size // _GI), -(-size // _T)
    if size <= 0 or terabytes > _MOST_T:
        writer.refuse(path, f"{given!r} is not a size v1 takes (1Gi to 64T); correct it first")
        return ""
    fitted = f"{gibibytes}Gi" if gibibytes <= _MOST_GI else f"{terabytes}T"
    writer.info(path, f"{given!r} is not spelled as v1 wants it; {fitted} is the nearest size above")
    return fitted
