"""capacitybuffer: resolves buffers into pods that are nobody's, and says whether there is room for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.api import conditions, reasons
from dovetail.api.bad_items import describe_failure, reason_of
from dovetail.api.buffers import CapacityBuffer, LocalReference
from dovetail.api.conditions import PROVISIONING, READY_FOR_PROVISIONING
from dovetail.api.core import Deployment, PodTemplateObject, ReplicaSet, StatefulSet
from dovetail.api.meta import Object
from dovetail.api.pod import Pod, PodTemplate
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    Cache,
    Result,
    Trigger,
    requeue_after,
    run_all,
    wake_on,
)
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube
from dovetail.scheduling.model.capacity_buffers import (
    build_virtual_pods,
    count_buffer_replicas,
    count_virtual_pods_by_node,
    find_provisioning_condition,
)
from dovetail.scheduling.model.plan import Plan

__all__ = ["BufferWorkloads", "CapacityBuffers", "Workload"]

EVERY = 30.0
# Pods that one buffer may keep free: a number of nine digits would take all memory before any limit counts.
MOST_PODS = 10_000
STRATEGY = "buffer.x-k8s.io/active-capacity"
Workload = Deployment | StatefulSet | ReplicaSet


class BufferUnresolved(Exception):
    """What a buffer refers to cannot be used; `reason` is a word for its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BufferWorkloads:
    """Where a buffer's references lead."""

    templates: Cache[PodTemplateObject]
    scalable: Mapping[str, Cache[Workload]]


@dataclass(frozen=True, slots=True)
class _BufferShape:
    """The pods a buffer stands for."""

    template: PodTemplate
    workload_replicas: int | None = None
    source: PodTemplateObject | None = None


class CapacityBuffers:
    """Keeps the virtual pods of every buffer; `wake` asks for a pass of provisioning."""

    name = "capacitybuffer"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, buffers: Cache[CapacityBuffer], workloads: BufferWorkloads, clock: Clock
    ) -> None:
        self._kube = kube
        self._buffers = buffers
        self._workloads = workloads
        self._clock = clock
        self._pods: dict[str, tuple[Pod, ...]] = {}
        self._on_nodes: frozenset[str] = frozenset()
        self._wake: Callable[[str], None] = lambda uid: None

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(CapacityBuffer), wake_on(PodTemplateObject, self._find_buffers_of_template))

    def _find_buffers_of_template(self, template: PodTemplateObject) -> list[str]:
        return [
            buffer.full_name
            for buffer in self._buffers
            if buffer.spec.pod_template_ref is not None
            and (buffer.namespace, buffer.spec.pod_template_ref.name) == (template.namespace, template.name)
        ]

    def on_resolved(self, wake: Callable[[str], None]) -> None:
        self._wake = wake

    @property
    def objects(self) -> Cache[CapacityBuffer]:
        return self._buffers

    def resolve_all(self) -> tuple[Pod, ...]:
        """All pods that room is wanted for, by what is known now; nothing is written and nobody woken."""
        for buffer in self._buffers:
            if self._is_wanted(buffer):
                self._resolve_buffer(buffer)
        return self.list_virtual_pods()

    def list_virtual_pods(self) -> tuple[Pod, ...]:
        """All pods that room is kept for."""
        return tuple(pod for key in sorted(self._pods) for pod in self._pods[key])

    def list_nodes(self) -> frozenset[str]:
        """Nodes that hold such room, by the last plan."""
        return self._on_nodes

    async def reconcile(self, key: str) -> Result:
        namespace, _, name = key.rpartition("/")
        buffer = self._buffers.get(name, namespace)
        if buffer is None or not self._is_wanted(buffer):
            if self._pods.pop(key, None):
                # Room that nobody wants any more may be taken for empty: a pass finds that out.
                self._wake(key)
            return DONE
        resolved = self._resolve_buffer(buffer)
        try:
            if resolved != buffer:
                await self._kube.patch(buffer, resolved, status=True, guarded=True)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        if key in self._pods:
            self._wake(buffer.uid)
        return requeue_after(EVERY)

    @staticmethod
    def _is_wanted(buffer: CapacityBuffer) -> bool:
        return not buffer.deleting and buffer.spec.provisioning_strategy in (None, "", STRATEGY)

    def _resolve_buffer(self, buffer: CapacityBuffer) -> CapacityBuffer:
        now = self._clock.now()
        try:
            _expect_readable(buffer)
            shape = self._resolve_shape(buffer)
            count = _count_pods(buffer, shape)
            self._pods[buffer.full_name] = build_virtual_pods(buffer, shape.template, count)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is this buffer's affair
            self._pods.pop(buffer.full_name, None)
            failed = BufferUnresolved(reasons.RESOLUTION_FAILED, describe_failure(error))
            told = error if isinstance(error, BufferUnresolved) else failed
            return conditions.set_false(buffer, READY_FOR_PROVISIONING, now, told.reason, str(told))
        source = shape.source
        status = replace(
            buffer.status,
            replicas=count,
            provisioning_strategy=buffer.spec.provisioning_strategy or STRATEGY,
            pod_template_ref=LocalReference(name=source.name) if source is not None else None,
            pod_template_generation=source.metadata.generation if source is not None else None,
        )
        return conditions.set_true(
            replace(buffer, status=status), READY_FOR_PROVISIONING, now, reasons.RESOLVED, "resolved"
        )

    def _resolve_shape(self, buffer: CapacityBuffer) -> _BufferShape:
        spec = buffer.spec
        if spec.pod_template_ref is not None:
            template = self._workloads.templates.get(spec.pod_template_ref.name, buffer.namespace)
            if template is None:
                missing = f"PodTemplate {spec.pod_template_ref.name} not found"
                raise BufferUnresolved(reasons.POD_TEMPLATE_NOT_FOUND, missing)
            _expect_readable(template)
            return _BufferShape(template.template, source=template)
        reference = spec.scalable_ref
        if reference is None:
            raise BufferUnresolved(
                reasons.RESOLUTION_FAILED, "the buffer refers to no pod template and no workload"
            )
        if reference.api_group not in ("", "apps") or reference.kind not in self._workloads.scalable:
            what = f"{reference.kind} of group {reference.api_group or 'apps'}"
            raise BufferUnresolved(
                reasons.RESOLUTION_FAILED, f"a {what} is not a workload a buffer can follow"
            )
        workload = self._workloads.scalable[reference.kind].get(reference.name, buffer.namespace)
        if workload is None:
            raise BufferUnresolved(
                reasons.SCALABLE_REF_NOT_FOUND, f"{reference.kind} {reference.name} not found"
            )
        _expect_readable(workload)
        return _BufferShape(workload.spec.template, workload.spec.replicas)

    async def record_plan(self, plan: Plan) -> None:
        """After a pass: say on each buffer whether there is room, and remember where it is."""
        nodes = count_virtual_pods_by_node(plan, self.list_virtual_pods())
        self._on_nodes = frozenset(nodes)
        await run_all(self._write_provisioning_condition(buffer, plan) for buffer in tuple(self._buffers))

    async def _write_provisioning_condition(self, buffer: CapacityBuffer, plan: Plan) -> None:
        pods = self._pods.get(buffer.full_name)
        outcome = find_provisioning_condition(pods is not None, pods or (), plan)
        if outcome is None:
            return
        status, reason = outcome
        now = self._clock.now()
        said = (
            conditions.set_true(buffer, PROVISIONING, now, reason, reason)
            if status == conditions.TRUE
            else conditions.set_false(buffer, PROVISIONING, now, reason, reason)
        )
        if said == buffer:
            return
        try:
            await self._kube.patch(buffer, said, status=True, guarded=True)
        except (Conflict, Gone):
            # The next pass says it again.
            return


def _expect_readable(obj: Object) -> None:
    """Of an object that is set aside a limit or a selector may be missing: no room is kept by it."""
    if why := reason_of(obj):
        raise BufferUnresolved(reasons.RESOLUTION_FAILED, f"{obj.KIND.kind} {obj.name} is set aside: {why}")


def _count_pods(buffer: CapacityBuffer, shape: _BufferShape) -> int:
    """How many pods the buffer stands for; Unresolved says when they are more than one buffer may have."""
    count = count_buffer_replicas(buffer, shape.template, shape.workload_replicas)
    if count > MOST_PODS:
        advice = "lower spec.replicas, spec.percentage or spec.limits, or write several buffers"
        raise BufferUnresolved(
            reasons.RESOLUTION_FAILED, f"{count:,} pods are more than {MOST_PODS:,}; {advice}"
        )
    return count
