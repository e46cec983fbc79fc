"""What a pod asks for, all told: containers, sidecars, init containers, pod level and overhead.

Amounts leave here as plain integers of billionths (`nano`), which is what the placer counts in.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api import quantity
from dovetail.api.labels import PODS
from dovetail.api.meta import Amounts
from dovetail.api.pod import ONE_POD, Container, ContainerStatus, Pod
from dovetail.api.quantity import Quantity

__all__ = [
    "Nano",
    "compute_limits",
    "compute_nano_requests",
    "compute_requests",
    "compute_requests_with_pod",
    "convert_to_nano",
    "convert_to_quantities",
    "fits_within",
]

Nano = dict[str, int]
"""Resource name to billionths."""


def compute_requests(pod: Pod, status: bool = True) -> dict[str, Quantity]:
    """The effective requests. While a container is resized, the larger of asked and given counts."""
    return _compute_effective(pod, "requests", status)


def compute_limits(pod: Pod) -> dict[str, Quantity]:
    """The effective limits, by the spec alone; overhead counts only where there is a limit."""
    return _compute_effective(pod, "limits", False)


def compute_requests_with_pod(pod: Pod) -> dict[str, Quantity]:
    """The requests, and the pod slot every pod takes."""
    return compute_requests(pod) | {PODS: ONE_POD}


def compute_nano_requests(pod: Pod) -> Nano:
    """The same in billionths, worked out once for all pods that share a spec. Not to be written to."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    if any(each.resources is not None for each in statuses):
        return convert_to_nano(compute_requests_with_pod(pod))
    return pod.spec.nano_requests


def _compute_effective(pod: Pod, field: str, status: bool) -> dict[str, Quantity]:
    return pod.spec.sum_amounts(field, _ContainerAmounts(pod, field, status).read_amounts)


class _ContainerAmounts:
    """The amounts of each container, in-place resizes taken into account."""

    def __init__(self, pod: Pod, field: str, status: bool) -> None:
        self.field = field
        self.infeasible = _is_resize_infeasible(pod)
        both = (*pod.status.container_statuses, *pod.status.init_container_statuses) if status else ()
        self.statuses: Mapping[str, ContainerStatus] = {each.name: each for each in both}

    def read_amounts(self, container: Container) -> Amounts:
        asked: Amounts = getattr(container.resources, self.field)
        known = self.statuses.get(container.name)
        if known is None or known.resources is None:
            return asked
        given = quantity.max_amounts(known.resources.requests, known.allocated_resources)
        return given if self.infeasible else quantity.max_amounts(asked, given)


def _is_resize_infeasible(pod: Pod) -> bool:
    pending = pod.status.find_condition("PodResizePending")
    return pending is not None and pending.reason == "Infeasible"


def convert_to_nano(listed: Amounts) -> Nano:
    return {name: amount.nano for name, amount in listed.items()}


def convert_to_quantities(counted: Mapping[str, int]) -> dict[str, Quantity]:
    """Quantities again, each in the suffix family people write it in."""
    return {
        name: Quantity(amount, quantity.BINARY if _is_in_bytes(name) else quantity.DECIMAL)
        for name, amount in counted.items()
    }


def _is_in_bytes(name: str) -> bool:
    return name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")


def add_resources(one: Mapping[str, int], other: Mapping[str, int]) -> Nano:
    total = dict(one)
    for name, amount in other.items():
        total[name] = total.get(name, 0) + amount
    return total


def subtract_resources(one: Mapping[str, int], other: Mapping[str, int]) -> Nano:
    """What is left of each; resources only the second has do not matter."""
    return {name: amount - other.get(name, 0) for name, amount in one.items()}


def fits_within(wanted: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Whether there is enough of everything. Where anything is overdrawn, nothing fits."""
    for amount in available.values():
        if amount < 0:
            return False
    return all(amount <= available.get(name, 0) for name, amount in wanted.items())
