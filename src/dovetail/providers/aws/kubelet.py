"""What is wrong with a class's kubelet settings, before any node starts with them.

Settings are looked at as they are written, not as records: a field we do not know must be seen to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.providers.aws.kubeletfields import mistakes
from dovetail.settings import durations

__all__ = ["complaints", "is_quantity", "unsupported"]

SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
RESERVED: Final = ("kubeReserved", "systemReserved")
MANAGED: Final = frozenset(
    (
        *RESERVED,
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    )
)
# Their start scripts pass on only what they know; AL2023 takes any field, and Custom is the user's own.
LIMITED_FAMILIES: Final = ("AL2", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")


def complaints(kubelet: Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that is wrong with the settings, whatever the family; nothing when they are fine."""
    # An expression for maxPods is a text, and judged elsewhere.
    typed = {**kubelet, "maxPods": 0} if isinstance(kubelet.get("maxPods"), str) else kubelet
    found = list(mistakes(typed))
    if kubelet.get("registerWithTaints"):
        found.append("registerWithTaints belongs to the provider; use the taints of the NodePool")
    found += _thresholds(kubelet)
    found += _soft_and_grace(kubelet)
    found += _reserved(kubelet)
    found += _percentages(kubelet)
    found += [
        f"{name} must not be negative"
        for name in ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods")
        if _is_number(number := kubelet.get(name)) and number < 0
    ]
    return tuple(found)


def unsupported(kubelet: Mapping[str, Any], family: str) -> str:
    """Why nodes of a family cannot be started with these settings; empty when they can."""
    if family not in LIMITED_FAMILIES:
        return ""
    found = []
    others = sorted(set(kubelet) - MANAGED)
    if others:
        found.append(f"{family} does not pass on {', '.join(others)}; AL2023 does")
    if family == "Bottlerocket" and kubelet.get("podsPerCore") is not None:
        found.append("Bottlerocket does not know podsPerCore; use maxPods")
    if len(_list(kubelet.get("clusterDNS"))) > 1:
        found.append(f"{family} takes one clusterDNS address only")
    return "; ".join(found)


def _thresholds(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, amount in _texts(kubelet.get(name)).items():
            yield from _signal(name, signal)
            if not _is_threshold(amount):
                yield f"{name}[{signal}] must be 0% to 100% or an amount, not {amount!r}"
    for signal, grace in _texts(kubelet.get("evictionSoftGracePeriod")).items():
        yield from _signal("evictionSoftGracePeriod", signal)
        if not _is_grace(grace):
            yield f"evictionSoftGracePeriod[{signal}] must be a duration such as 1m30s, not {grace!r}"


def _signal(name: str, signal: str) -> Iterator[str]:
    if signal not in SIGNALS:
        yield f"{name} does not know {signal}; it knows {', '.join(SIGNALS)}"


def _soft_and_grace(kubelet: Mapping[str, Any]) -> Iterator[str]:
    soft = set(_texts(kubelet.get("evictionSoft")))
    grace = set(_texts(kubelet.get("evictionSoftGracePeriod")))
    for signal in sorted(soft - grace):
        yield f"evictionSoft[{signal}] has no evictionSoftGracePeriod"
    for signal in sorted(grace - soft):
        yield f"evictionSoftGracePeriod[{signal}] has no evictionSoft threshold"


def _reserved(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for name in RESERVED:
        for resource, amount in _texts(kubelet.get(name)).items():
            if resource not in RESERVABLE:
                yield f"{name} does not know {resource}; it knows {', '.join(RESERVABLE)}"
            if amount.startswith("-"):
                yield f"{name}[{resource}] must not be negative"


def _percentages(kubelet: Mapping[str, Any]) -> Iterator[str]:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    for name, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
        if _is_number(value) and not 0 <= value <= 100:
            yield f"{name} must be 0 to 100, not {value}"
    if _is_number(high) and _is_number(low) and high <= low:
        yield "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent"


def is_quantity(text: str) -> bool:
    """Whether a text is an amount; what is not is taken for an expression."""
    try:
        Quantity.parse(text)
    except BadQuantity:
        return False
    return True


def _is_threshold(text: str) -> bool:
    if text.endswith("%"):
        try:
            return 0 <= float(text.removesuffix("%")) <= 100
        except ValueError:
            return False
    return is_quantity(text) and Quantity.parse(text).nano >= 0


def _is_grace(text: str) -> bool:
    try:
        return durations.nanoseconds(text) >= 0
    except ValueError:
        return False


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> Mapping[str, str]:
    """The texts of a map; what is not one is complained of as a wrong type."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): item for name, item in value.items() if isinstance(item, str)}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
