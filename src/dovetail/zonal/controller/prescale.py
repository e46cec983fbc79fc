"""Room bought in healthy zones for the pods of one that is shifted away, as capacity buffers.

A buffer stands for pods of one workload that would need a new node if the zone went. As they leave the zone
it shrinks, so that what moved into the room is not bought twice; when the shift is over it goes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.buffers import CapacityBuffer, CapacityBufferSpec, ScalableReference
from dovetail.api.meta import Object, ObjectMeta
from dovetail.errors import AlreadyExists, Conflict, DovetailError, Gone
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.zonal.controller.rehearsal import ClusterView
from dovetail.zonal.controller.shift_status import ShiftState
from dovetail.zonal.controller.writes import Audit, AuditedWriter
from dovetail.zonal.model.rehearsal import Rehearsal, limit_room

__all__ = ["SHIFT", "PrescaleBuffers"]

SHIFT = "zonalshift.dovetail.sh/shift"
# What a buffer can be like.
SCALABLE = frozenset(("Deployment", "ReplicaSet", "StatefulSet"))
WorkloadKey = tuple[str, str, str]


class PrescaleBuffers:
    """Keeps the buffers of shifts in force, and takes away those of shifts that are over."""

    def __init__(self, writer: AuditedWriter, seeing: ClusterView | None, *, wanted: bool) -> None:
        self._kube, self._writer, self._view, self._wanted = writer.kube, writer, seeing, wanted
        # Buffers of a process before this one are looked for once, also where none are wanted any more.
        self._unsure = True
        self.failures: dict[str, str] = {}

    async def settle_buffers(
        self, acting: Sequence[ShiftState], zones: Mapping[str, str], found: Mapping[str, Rehearsal]
    ) -> None:
        """Buffers as shifts in force want them; `zones` are names by id, `found` rehearsals by shift."""
        if self._view is None or not (self._wanted or self._unsure):
            return
        try:
            there = await self._kube.list(CapacityBuffer, labels=SHIFT)
            await self._settle_all(there, acting, zones, found)
        except DovetailError as error:
            if self._wanted:
                self.failures["CapacityBuffers"] = str(error)
            return
        self._unsure = False
        self.failures.pop("CapacityBuffers", None)

    async def _settle_all(
        self,
        there: Sequence[CapacityBuffer],
        acting: Sequence[ShiftState],
        zones: Mapping[str, str],
        found: Mapping[str, Rehearsal],
    ) -> None:
        in_force = [each for each in acting if self._wanted and each.record.edits]
        names = {each.name for each in in_force}
        for buffer in there:
            if buffer.labels.get(SHIFT) not in names:
                await self._delete_buffer(buffer)
        if not in_force:
            return
        assert self._view is not None
        world = await self._view.take_snapshot()
        for each in in_force:
            mine = {
                _workload_of_buffer(buffer): buffer for buffer in there if buffer.labels[SHIFT] == each.name
            }
            left = self._count_remaining_pods(world, zones.get(each.record.shift.zone_id, ""))
            needed = self.count_sizes(found[each.name]) if each.name in found else None
            have = {workload: buffer.spec.replicas or 0 for workload, buffer in mine.items()}
            for workload, count in sorted(limit_room(needed, have, left).items()):
                await self._write_buffer(workload, count, mine.get(workload), each)

    def count_sizes(self, found: Rehearsal) -> dict[WorkloadKey, int]:
        """How many pods of each workload need room that is not there."""
        assert self._view is not None
        sizes: Counter[WorkloadKey] = Counter()
        for told, count in found.needing.items():
            kind, namespace, name = told.split("/")
            maker = self._view.find_workload(kind, namespace, name)
            if maker is not None and maker.KIND.kind in SCALABLE:
                sizes[_workload_of_object(maker)] += count
        return dict(sizes)

    def describe_plan(self, each: ShiftState, found: Mapping[str, Rehearsal]) -> list[str]:
        """What would be written for a shift, in words."""
        if not self._wanted or self._view is None or each.name not in found or not each.record.edits:
            return []
        return [
            str(_build_audit(_build_buffer(workload, count, each), None, count, each.name))
            for workload, count in sorted(self.count_sizes(found[each.name]).items())
        ]

    def _count_remaining_pods(self, world: Snapshot, zone: str) -> Counter[WorkloadKey]:
        """Pods of each workload that are in the zone still."""
        assert self._view is not None
        return Counter(
            _workload_of_object(self._view.find_owner(pod))
            for state in world.nodes
            if state.node is not None and state.node.labels.get(labels.ZONE) == zone
            for pod in state.pods
            if predicates.is_reschedulable(pod) and not pod.deleting
        )

    async def _write_buffer(
        self, workload: WorkloadKey, count: int, there: CapacityBuffer | None, each: ShiftState
    ) -> None:
        """One buffer of this size."""
        before = None if there is None else there.spec.replicas
        if before == count:
            return
        buffer = there or _build_buffer(workload, count, each)
        try:
            if there is None:
                await self._kube.create(buffer)
            else:
                smaller = replace(there, spec=replace(there.spec, replicas=count))
                await self._kube.patch(there, smaller, guarded=True)
        except (AlreadyExists, Conflict, Gone):
            return  # looked at again in the next pass
        self._writer.record_audits([_build_audit(buffer, before, count, each.name)])

    async def _delete_buffer(self, buffer: CapacityBuffer) -> None:
        try:
            await self._kube.delete(buffer, guarded=True)
        except Gone:
            return
        self._writer.record_audits(
            [_build_audit(buffer, buffer.spec.replicas, None, buffer.labels.get(SHIFT, ""))]
        )


def _workload_of_object(maker: Object) -> WorkloadKey:
    return maker.KIND.kind, maker.namespace, maker.name


def _workload_of_buffer(buffer: CapacityBuffer) -> WorkloadKey:
    reference = buffer.spec.scalable_ref
    return (reference.kind, buffer.namespace, reference.name) if reference is not None else ("", "", "")


def _build_buffer(workload: WorkloadKey, count: int, each: ShiftState) -> CapacityBuffer:
    kind, namespace, name = workload
    mark = hashlib.sha256("/".join(workload).encode()).hexdigest()[:6]
    return CapacityBuffer(
        metadata=ObjectMeta(
            name=f"dovetail-zs-{each.record.shift.zone_id}-{mark}",
            namespace=namespace,
            labels={SHIFT: each.name},
        ),
        spec=CapacityBufferSpec(
            scalable_ref=ScalableReference(api_group="apps", kind=kind, name=name), replicas=count
        ),
    )


def _build_audit(buffer: CapacityBuffer, before: int | None, after: int | None, shift: str) -> Audit:
    reason = "prescaled" if before is None else "shrunk" if after is not None else "removed"
    return Audit(f"CapacityBuffer/{buffer.full_name}", "replicas", before, after, shift, reason)
