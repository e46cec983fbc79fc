"""Stand-ins for the pools of EKS Auto Mode, where there is no pool that could be edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.api import codec, labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.errors import AlreadyExists, Conflict, Gone
from dovetail.ports import Clock
from dovetail.zonal.controller.pool_edits import DesiredPoolEdits
from dovetail.zonal.controller.writes import Audit, AuditedWriter, JsonPatchKube, PoolDocument
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model import clone
from dovetail.zonal.options import ZonalOptions

__all__ = ["StandInPools"]

# The one of the two that serves workloads; the other is for EKS's own.
SOURCES = ("general-purpose",)


@dataclass
class StandInPools:
    """Makes stand-ins, retires them, and takes them away once they own nothing."""

    kube: JsonPatchKube
    claims: Cache[NodeClaim]
    options: ZonalOptions
    writer: AuditedWriter
    clock: Clock

    def are_needed(self, pools: Sequence[PoolDocument], zone_map: ZoneMap) -> bool:
        match self.options.auto_mode:
            case "Off" | "Native":
                return False
            case "auto" if zone_map.native:
                return False  # EKS does it by itself
            case _:
                return clone.has_only_managed_pools([pool.name for pool in pools], zone_map.built_in)

    def describe_plan(
        self, pools: Sequence[PoolDocument], zone_map: ZoneMap, desired: DesiredPoolEdits
    ) -> list[str]:
        """What would be written, in words."""
        if not desired.zones or not self.are_needed(pools, zone_map):
            return []
        known = {pool.name for pool in pools}
        return [
            f"NodePool/{clone.build_clone_name(each)}: created from {each}"
            for each in SOURCES
            if each in known and clone.build_clone_name(each) not in known
        ]

    async def settle_pools(
        self, pools: Sequence[PoolDocument], zone_map: ZoneMap, desired: DesiredPoolEdits
    ) -> int:
        """Bring stand-ins to where they should be; how many are not there yet."""
        known, left = {pool.name: pool for pool in pools}, 0
        if desired.zones and self.are_needed(pools, zone_map):
            for each in SOURCES:
                if each in known:
                    left += await self._write_stand_in(
                        known[each], known.get(clone.build_clone_name(each)), zone_map, desired
                    )
            return left
        for pool in pools:
            if clone.CLONE_OF in pool.labels and not pool.deleting:
                await self._retire_pool(pool)
        return 0

    async def _write_stand_in(
        self, source: PoolDocument, there: PoolDocument | None, zone_map: ZoneMap, desired: DesiredPoolEdits
    ) -> int:
        healthy = [zone_map.names[each] for each in zone_map.cluster if each not in desired.zones]
        if not healthy:
            return 0
        document = {"metadata": {"name": source.name}, "spec": source.spec}
        made = clone.build_clone(document, healthy, desired.shifts, self.options.owner)
        shifts = ",".join(desired.shifts)
        if there is None:
            fresh = codec.convert(PoolDocument, made)
            try:
                await self.kube.create(fresh)
            except AlreadyExists:
                return 1
            self._record_audit(fresh, None, made["spec"], shifts, "stands in")
            return 0
        if dict(there.spec) != made["spec"] or clone.RETIRED in there.annotations:
            # One that was about to go is needed again.
            await self._write_pool(
                there, made["spec"], {clone.SHIFTS: shifts, clone.RETIRED: ""}, "stands in"
            )
        return 0

    async def _retire_pool(self, pool: PoolDocument) -> None:
        spec, since = clone.retire_spec(pool.spec), pool.annotations.get(clone.RETIRED, "")
        now = self.clock.now()
        if dict(pool.spec) != spec or not since:
            await self._write_pool(pool, spec, {clone.RETIRED: now.isoformat(timespec="seconds")}, "retired")
        elif not any(claim.labels.get(labels.NODEPOOL) == pool.name for claim in self.claims):
            gone = NodePool(metadata=ObjectMeta(name=pool.name, uid=pool.uid))
            await self.kube.delete(gone, guarded=True)
            self._record_audit(pool, pool.spec, None, self._read_shifts(pool), "removed")
        elif clone.is_overdue(since, now, self.options.clone_retention):
            # Deleting it would take its nodes along at once; drift takes them within the pool's budgets.
            await self._write_pool(pool, clone.mark_outlived(pool.spec, since), {}, "outlived")

    async def _write_pool(
        self, pool: PoolDocument, spec: Mapping[str, Any], notes: Mapping[str, str], reason: str
    ) -> None:
        changes: list[dict[str, Any]] = []
        if dict(pool.spec) != dict(spec):
            changes.append({"op": "add", "path": "/spec", "value": dict(spec)})
        after = {key: text for key, text in {**pool.annotations, **notes}.items() if text}
        if after != dict(pool.annotations):
            changes.append({"op": "add", "path": "/metadata/annotations", "value": after})
        if not changes:
            return
        version = {"op": "add", "path": "/metadata/resourceVersion", "value": pool.metadata.resource_version}
        try:
            await self.kube.json_patch(pool, [version, *changes])
        except (Conflict, Gone):
            return  # looked at again in a moment
        shifts = notes.get(clone.SHIFTS, "") or self._read_shifts(pool)
        self._record_audit(pool, pool.spec, spec, shifts, reason)

    def _record_audit(
        self, pool: PoolDocument, before: object, after: object, shifts: str, reason: str
    ) -> None:
        self.writer.record_audits([Audit(f"NodePool/{pool.name}", "spec", before, after, shifts, reason)])

    @staticmethod
    def _read_shifts(pool: PoolDocument) -> str:
        return pool.annotations.get(clone.SHIFTS, "")
