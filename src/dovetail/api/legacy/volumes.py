"""Block devices: the same in v1, but for the sizes it takes."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from dovetail.api.legacy.notes import Scribe
from dovetail.api.quantity import BadQuantity, Quantity

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


def block_devices(scribe: Scribe, given: Any) -> list[dict[str, Any]]:
    """Every mapping, with sizes v1 admits."""
    return [_device(scribe, item, f"{_FIELD}[{i}]") for i, item in enumerate(scribe.items(given, _FIELD))]


def _device(scribe: Scribe, item: Any, path: str) -> dict[str, Any]:
    device = scribe.only(scribe.mapping(item, path), path, _MAPPING)
    if "ebs" not in device:
        return deepcopy(device)
    ebs = deepcopy(scribe.only(scribe.mapping(device["ebs"], f"{path}.ebs"), f"{path}.ebs", _EBS))
    if "volumeSize" in ebs:
        ebs["volumeSize"] = _size(scribe, ebs["volumeSize"], f"{path}.ebs.volumeSize")
    elif not ebs.get("snapshotID"):
        scribe.refuse(f"{path}.ebs", "has neither volumeSize nor snapshotID, and v1 needs one; add it")
    if ebs.get("volumeType", "gp3") not in _TYPES:
        scribe.refuse(
            f"{path}.ebs.volumeType", f"{ebs['volumeType']!r} is not a volume type v1 takes; choose another"
        )
    return device | {"ebs": ebs}


def _size(scribe: Scribe, given: Any, path: str) -> str:
    """The size as v1 takes it: as it was, or rounded up to whole Gi."""
    if isinstance(given, str) and _ADMITTED.fullmatch(given):
        return given
    try:
        size = Quantity.parse(given).value if isinstance(given, str | int | float) else 0
    except BadQuantity:
        size = 0
    gibibytes, terabytes = -(-size // _GI), -(-size // _T)
    if size <= 0 or terabytes > _MOST_T:
        scribe.refuse(path, f"{given!r} is not a size v1 takes (1Gi to 64T); correct it first")
        return ""
    fitted = f"{gibibytes}Gi" if gibibytes <= _MOST_GI else f"{terabytes}T"
    scribe.info(path, f"{given!r} is not spelled as v1 wants it; {fitted} is the nearest size above")
    return fitted
