"""Capacity buffers: room kept free for pods to come, as pods that are nobody's.

A buffer is asked how many pods it stands for; each becomes a virtual pod that is placed like any other
but never bound, told of, or waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from msgspec.structs import replace

from dovetail.api import reasons
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.labels import BUFFER_FAKE_POD, BUFFER_NAME, BUFFER_NAMESPACE, TRUE
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.pod import Pod, PodStatus, PodTemplate
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.resources import compute_requests, convert_to_nano

__all__ = [
    "build_virtual_pods",
    "count_buffer_replicas",
    "count_virtual_pods_by_node",
    "find_provisioning_condition",
]

LOWEST_PRIORITY = -(1 << 31)


def count_buffer_replicas(
    buffer: CapacityBuffer, template: PodTemplate, workload_replicas: int | None = None
) -> int:
    """How many pods the buffer stands for.

    The larger of a fixed number and a share of the workload, capped by limits; limits alone decide
    where neither is given. A workload that does not say how many pods it wants, wants one.
    """
    spec = buffer.spec
    given: list[int] = [] if spec.replicas is None else [spec.replicas]
    if spec.percentage is not None:
        given.append(
            _count_percentage(spec.percentage, 1 if workload_replicas is None else workload_replicas)
        )
    cap = _count_within_limits(buffer, template)
    if not given:
        return cap or 0
    return max(0, max(given) if cap is None else min(max(given), cap))


def _count_percentage(percentage: int, of: int) -> int:
    return max(1, ceil(of * percentage / 100)) if percentage > 0 and of > 0 else 0


def _count_within_limits(buffer: CapacityBuffer, template: PodTemplate) -> int | None:
    """How many pods the limits allow; None when they speak of nothing the pods ask for."""
    wanted = convert_to_nano(compute_requests(Pod(spec=template.spec)))
    limits = convert_to_nano(buffer.spec.limits)
    counts = [limits[name] // amount for name, amount in wanted.items() if amount > 0 and name in limits]
    return min(counts, default=None)


def build_virtual_pods(buffer: CapacityBuffer, template: PodTemplate, count: int) -> tuple[Pod, ...]:
    """The pods a buffer stands for: its template's, without volumes, waiting and of the least priority."""
    spec = replace(template.spec, volumes=(), priority=LOWEST_PRIORITY)
    annotations = {
        **template.metadata.annotations,
        BUFFER_FAKE_POD: TRUE,
        BUFFER_NAME: buffer.name,
        BUFFER_NAMESPACE: buffer.namespace,
    }
    waiting = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    status = PodStatus(phase="Pending", conditions=(waiting,))
    return tuple(
        Pod(
            metadata=ObjectMeta(
                name=f"capacity-buffer-{buffer.name}-{i}",
                namespace=buffer.namespace,
                uid=f"{buffer.uid}-{i}",
                labels=template.metadata.labels,
                annotations=annotations,
            ),
            spec=spec,
            status=status,
        )
        for i in range(1, count + 1)
    )


def find_provisioning_condition(ready: bool, pods: Iterable[Pod], plan: Plan) -> tuple[str, str] | None:
    """The buffer's Provisioning condition after a pass, status and reason; None to leave it as it is."""
    if not ready:
        return "False", reasons.NOT_READY_FOR_PROVISIONING
    names = {pod.full_name for pod in pods}
    if not names:
        return "False", reasons.BUFFER_EMPTY
    on_nodes = {name for listed in plan.existing.values() for name in listed}
    new = {name for node in plan.new_nodes for name in node.pods}
    if names & (new | set(plan.unschedulable) | set(plan.deferred)):
        return "False", reasons.REQUIRES_NEW_CAPACITY
    return ("True", reasons.FITS_EXISTING_CAPACITY) if names <= on_nodes else None


def count_virtual_pods_by_node(plan: Plan, virtual: Iterable[Pod]) -> Mapping[str, int]:
    """How many virtual pods each running node would host."""
    names = {pod.full_name for pod in virtual}
    counts = {node: sum(1 for pod in pods if pod in names) for node, pods in plan.existing.items()}
    return {node: count for node, count in counts.items() if count}
