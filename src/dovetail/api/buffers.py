"""CapacityBuffer, as consumed: room kept free for pods to come (autoscaling.x-k8s.io/v1beta1)."""

from __future__ import annotations

from typing import ClassVar

from dovetail.api.meta import Amounts, Condition, Kind, Object, Record

__all__ = ["CapacityBuffer", "CapacityBufferSpec", "CapacityBufferStatus"]


class LocalReference(Record, frozen=True):
    """An object in the same namespace."""

    name: str = ""


class ScalableReference(Record, frozen=True):
    """A workload whose pods the buffer is like."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(Record, frozen=True):
    """How much room, and for pods of what shape."""

    provisioning_strategy: str | None = None
    pod_template_ref: LocalReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: Amounts = {}


class CapacityBufferStatus(Record, frozen=True):
    """What the buffer came to."""

    pod_template_ref: LocalReference | None = None
    pod_template_generation: int | None = None
    replicas: int | None = None
    provisioning_strategy: str | None = None
    conditions: tuple[Condition, ...] = ()


class CapacityBuffer(Object, frozen=True):
    """Room kept free for pods to come."""

    KIND: ClassVar[Kind] = Kind("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers")

    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
