"""What the scheduler knows of a pod: its demands, worked out once per shape."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.api.quantity import Quantity

__all__ = ["PodDemand", "PodInfo", "SimPodShapes", "sum_requests"]

Json = dict[str, Any]
Amounts = dict[str, int]

# More than any machine has, and little enough that the pods of a node add up within 64 bits.
MOST = 1 << 53

_encode = msgspec.json.Encoder(order="deterministic").encode
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PodDemand:
    """Everything about a pod's spec that placement depends on. Pods of one shape share one."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "claims",
        "node_affinity_preferred",
        "number",
        "ports",
        "preempts",
        "preferred_affinity",
        "preferred_anti_affinity",
        "priority",
        "requests",
        "scored",
        "spec",
        "spread",
    )

    def __init__(self, number: int, spec: Json) -> None:
        affinity = spec.get("affinity") or {}
        near, far = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
        self.number = number
        self.spec = spec
        self.requests = sum_requests(spec)
        # Scoring counts a pod that asks for nothing as a small one, so that such pods spread too.
        self.scored = (self.requests.get("cpu") or 100, self.requests.get("memory") or 200 * 2**20)
        self.ports = _list_host_ports(spec)
        self.spread: list[Json] = spec.get("topologySpreadConstraints") or []
        self.affinity: list[Json] = near.get(_REQUIRED) or []
        self.anti_affinity: list[Json] = far.get(_REQUIRED) or []
        self.preferred_affinity: list[Json] = near.get(_PREFERRED) or []
        self.preferred_anti_affinity: list[Json] = far.get(_PREFERRED) or []
        self.node_affinity_preferred: list[Json] = (affinity.get("nodeAffinity") or {}).get(_PREFERRED) or []
        self.claims = [
            v for v in spec.get("volumes") or () if "persistentVolumeClaim" in v or "ephemeral" in v
        ]
        self.priority: int = spec.get("priority") or 0
        self.preempts = spec.get("preemptionPolicy", "PreemptLowerPriority") != "Never"


class PodInfo:
    """One pod as the scheduler holds it."""

    __slots__ = ("demand", "key", "labels", "namespace", "obj", "terminating")

    def __init__(self, obj: Json, demand: PodDemand) -> None:
        meta = obj["metadata"]
        self.obj = obj
        self.key = (meta["namespace"], meta["name"])
        self.namespace: str = meta["namespace"]
        self.labels: dict[str, str] = meta.get("labels") or {}
        self.terminating = bool(meta.get("deletionTimestamp"))
        self.demand = demand


class SimPodShapes:
    """Pods that demand the same share one Demand."""

    FIELDS = (
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "overhead",
        "resources",
        "priority",
        "preemptionPolicy",
        "hostNetwork",
    )

    def __init__(self) -> None:
        self._known: dict[bytes, PodDemand] = {}
        self._numbers = 0

    def read_pod(self, pod: Json) -> PodInfo:
        spec = pod["spec"]
        key = _encode(
            (
                [spec.get(field) for field in self.FIELDS],
                [_read_shape(c) for c in spec.get("containers") or ()],
                [_read_shape(c) for c in spec.get("initContainers") or ()],
                [v for v in spec.get("volumes") or () if "persistentVolumeClaim" in v or "ephemeral" in v],
            )
        )
        demand = self._known.get(key)
        if demand is None:
            if len(self._known) > 50_000:
                self._known.clear()
            self._numbers += 1
            demand = self._known[key] = PodDemand(self._numbers, spec)
        return PodInfo(pod, demand)


def _read_shape(container: Json) -> list[Any]:
    ports = [p for p in container.get("ports") or () if p.get("hostPort")]
    return [container.get("resources"), ports, container.get("restartPolicy")]


def sum_requests(spec: Json) -> Amounts:
    """What a pod takes of its node: all containers, or the hungriest moment of its start; and overhead."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add_amounts(total, _read_requests(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _read_requests(container)
        if container.get("restartPolicy") == "Always":
            _add_amounts(sidecars, own)
            moment = dict(sidecars)
        else:
            moment = dict(sidecars)
            _add_amounts(moment, own)
        _raise_amounts(peak, moment)
    _add_amounts(total, sidecars)
    _raise_amounts(total, peak)
    # Pod-level requests speak for the whole pod, for the resources they name.
    for name, amount in ((spec.get("resources") or {}).get("requests") or {}).items():
        total[name] = _parse_amount(name, amount)
    _add_amounts(total, {name: _parse_amount(name, a) for name, a in (spec.get("overhead") or {}).items()})
    return {name: min(amount, MOST) for name, amount in total.items()}


def _read_requests(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is a request of the same size.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _parse_amount(name, amount) for name, amount in asked.items()}


def _parse_amount(name: str, amount: str | int | float) -> int:
    quantity = Quantity.parse_clamped(amount)
    return min(quantity.milli if name == "cpu" else quantity.value, MOST)


def parse_amounts(listed: Json) -> Amounts:
    """A node's capacity in the same units: cpu in thousandths, the rest whole."""
    return {name: _parse_amount(name, amount) for name, amount in listed.items()}


def _add_amounts(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_amounts(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount


def _list_host_ports(spec: Json) -> tuple[tuple[str, str, int], ...]:
    """Host ports as (address, protocol, port)."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return tuple(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
