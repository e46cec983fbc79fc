"""The node classes of one conversion, and the copies that kubelet settings force.

Until v1 the kubelet block belonged to the Provisioner or NodePool; now it belongs to the node class.
Users of one class with different blocks therefore need one class each:

    template t <- provisioner a {maxPods: 20}     class t    {maxPods: 20} <- pool a
               <- provisioner b {maxPods: 20}  =>                          <- pool b
               <- provisioner c {}                class t-c  {}            <- pool c
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from dovetail.api.legacy.notes import Scribe

_UNLIMITED_PODS = 110  # what the kubelet itself defaults to, and alpha used without the ENI limit


@dataclass(slots=True)
class LegacyNodeClass:
    """One class of the input, and the v1 objects it became."""

    value: dict[str, Any] | None  # None: it has no counterpart
    scribe: Scribe
    fixed: bool = False  # already v1, or used by something that is: the name and content stay
    unlimited_pods: bool = False
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # by kubelet block

    def __post_init__(self) -> None:
        if self.fixed and self.value is not None:
            own = self.value.get("spec")
            block = own.get("kubelet") if isinstance(own, dict) else None
            self.variants[_kubelet_key(block or {})] = self.value


@dataclass(slots=True)
class LegacyNodeClasses:
    """Hands out class names, so that no two classes share one."""

    taken: set[str] = field(default_factory=set)

    def reserve_name(self, wanted: str) -> str:
        """The name wanted, or the next one that nobody has."""
        name, count = wanted, 2
        while name in self.taken:
            name, count = f"{wanted}-{count}", count + 1
        self.taken.add(name)
        return name

    def name_variant(self, found: LegacyNodeClass, block: Mapping[str, Any], user: str) -> str:
        """The name of the class that gives its nodes this kubelet block, made if need be."""
        if found.value is None:
            return ""
        own = found.value["metadata"]["name"]
        if found.fixed and not block:
            return str(own)  # a v1 class keeps its own kubelet settings unless told otherwise
        wanted = _merge_kubelet(found, block)
        if _kubelet_key(wanted) not in found.variants:
            name = self.reserve_name(f"{own}-{user}") if found.variants else own
            found.variants[_kubelet_key(wanted)] = _with_kubelet(found.value, name, wanted)
        return str(found.variants[_kubelet_key(wanted)]["metadata"]["name"])

    def list_objects(self, found: LegacyNodeClass) -> list[dict[str, Any]]:
        """Every v1 object the class became; one that nobody uses is still wanted."""
        if found.value is not None and not found.variants:
            self.name_variant(found, {}, "")
        made = list(found.variants.values())
        if len(made) > 1:
            names = ", ".join(one["metadata"]["name"] for one in made)
            message = (
                f"kubelet settings belong to the class in v1 and its users differ in them; it became {names}"
            )
            found.scribe.info("", message)
        if found.unlimited_pods and not found.fixed and made:
            message = (
                f"maxPods {_UNLIMITED_PODS} stands for the setting aws.enableENILimitedPodDensity: false"
            )
            found.scribe.info("", message)
        return made


def _merge_kubelet(found: LegacyNodeClass, block: Mapping[str, Any]) -> dict[str, Any]:
    if found.unlimited_pods and not found.fixed:
        return {"maxPods": _UNLIMITED_PODS} | dict(block)
    return dict(block)


def _with_kubelet(value: dict[str, Any], name: str, block: dict[str, Any]) -> dict[str, Any]:
    made = deepcopy(value)
    made["metadata"]["name"] = name
    if block:
        made["spec"]["kubelet"] = deepcopy(block)
    return made


def _kubelet_key(block: Mapping[str, Any]) -> str:
    return json.dumps(block, sort_keys=True)
