"""The kubelet block of an EC2NodeClass: twelve fields, and the rules KU-1 to KU-5."""

from __future__ import annotations

from typing import Any

from dovetail.api.crds import patterns
from dovetail.api.crds.definition import Field, Rule, constrained
from dovetail.api.crds.parts import cel_list

RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
_KEYS = {
    "systemReserved": RESERVABLE,
    "kubeReserved": RESERVABLE,
    "evictionHard": SIGNALS,
    "evictionSoft": SIGNALS,
    "evictionSoftGracePeriod": SIGNALS,
}
_RESERVED = {"pattern": patterns.QUANTITY}
_THRESHOLD = {"pattern": patterns.EVICTION_THRESHOLD}

KUBELET: dict[str, Field] = {
    "clusterDNS": constrained("Addresses of the cluster's DNS servers."),
    "maxPods": constrained("The most pods a node may run.", type="integer", format="int32", minimum=0),
    "podsPerCore": constrained("The most pods a node may run for each core.", format="int32", minimum=0),
    "systemReserved": constrained("What is kept for the operating system.", inner=_RESERVED),
    "kubeReserved": constrained("What is kept for Kubernetes itself.", inner=_RESERVED),
    "evictionHard": constrained("Thresholds at which pods are evicted at once.", inner=_THRESHOLD),
    "evictionSoft": constrained("Thresholds at which pods are evicted after a while.", inner=_THRESHOLD),
    "evictionSoftGracePeriod": constrained("How long each soft threshold may be crossed."),
    "evictionMaxPodGracePeriod": constrained(
        "The longest grace, in seconds, given to pods evicted softly.", format="int32"
    ),
    "imageGCHighThresholdPercent": constrained(
        "Disk use above which images are always collected.", format="int32", minimum=0, maximum=100
    ),
    "imageGCLowThresholdPercent": constrained(
        "Disk use below which images are never collected.", format="int32", minimum=0, maximum=100
    ),
    "cpuCFSQuota": constrained("Whether CPU limits are enforced with CFS quotas."),
}


def _thresholds_are_ordered(kubelet: Any, _: Any) -> bool:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    return high is None or low is None or high > low


def _soft_has_grace(kubelet: Any, _: Any) -> bool:
    return set(kubelet.get("evictionSoft", ())) <= set(kubelet.get("evictionSoftGracePeriod", ()))


def _grace_has_soft(kubelet: Any, _: Any) -> bool:
    return set(kubelet.get("evictionSoftGracePeriod", ())) <= set(kubelet.get("evictionSoft", ()))


def _known_keys(name: str, known: tuple[str, ...]) -> Rule:
    return Rule(
        f"KU-4:{name}",
        name,
        f"{name} knows only {', '.join(known)}",
        # Counting the known keys costs the same however many keys there are; the maps have no bound.
        f"self.size() == {cel_list(known)}.filter(k, k in self).size()",
        lambda value, _: all(key in known for key in value),
    )


def _not_negative(name: str) -> Rule:
    return Rule(
        f"KU-5:{name}",
        name,
        f"{name} holds no negative amounts",
        "self.all(k, !self[k].startsWith('-'))",
        lambda value, _: not any(amount.startswith("-") for amount in value.values()),
    )


KUBELET_RULES: tuple[Rule, ...] = (
    Rule(
        "KU-1",
        "",
        "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
        "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
        _thresholds_are_ordered,
    ),
    Rule(
        "KU-2",
        "",
        "every evictionSoft signal needs an evictionSoftGracePeriod",
        "!has(self.evictionSoft) || self.evictionSoft.all(k, "
        "has(self.evictionSoftGracePeriod) && k in self.evictionSoftGracePeriod)",
        _soft_has_grace,
    ),
    Rule(
        "KU-3",
        "",
        "every evictionSoftGracePeriod signal needs an evictionSoft threshold",
        "!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(k, "
        "has(self.evictionSoft) && k in self.evictionSoft)",
        _grace_has_soft,
    ),
    *(_known_keys(name, known) for name, known in _KEYS.items()),
    _not_negative("systemReserved"),
    _not_negative("kubeReserved"),
)
