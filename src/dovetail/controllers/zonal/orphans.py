"""Pools we edited whose ledger somebody removed: told, or mended where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.controllers.zonal.documents import PoolDocument
from dovetail.controllers.zonal.keeping import Kept
from dovetail.controllers.zonal.writing import Audit, Writer
from dovetail.controllers.zonal.zones import Ground
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Recorder
from dovetail.zonal.orphans import mended
from dovetail.zonal.pools import Zones

__all__ = ["Orphans"]

DAY = 86_400.0
PATH = "/spec/template/spec/requirements"


@dataclass
class Orphans:
    """Looks for them when a shift ends; the shift's own summary says which pools there should be."""

    writer: Writer
    recorder: Recorder
    adopt: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    async def settle(self, acting: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]) -> None:
        away = {each.record.shift.zone_id for each in acting if each.record.edits}
        for each in acting:
            zone = each.record.shift.zone_id
            if each.record.phase != "Restoring" or zone in away or zone not in ground.names:
                continue
            for pool in pools:
                if pool.name in each.obj.status.ledger.node_pools and _orphaned(pool):
                    await self._one(pool, _zones(pool, zone, ground), each)

    async def _one(self, pool: PoolDocument, zones: Zones, each: Kept) -> None:
        kept = {text.strip() for text in pool.annotations.get(labels.ZONE_KEEP_REMOVED, "").split(",")}
        entries = mended(pool.requirements, zones, kept)
        if entries is None:
            return
        if not self.adopt:
            note = (
                f"{zones.names[0]} was taken out of this pool for a shift that is over, and the note of it "
                "is gone, so it is left as it is: put the zone back, or set ZONAL_SHIFT_ADOPT_ORPHANS=true"
            )
            told = (pool.uid, each.name)
            self.recorder.event(pool, "ZonalShiftOrphaned", note, warning=True, dedupe=told, window=DAY)
            return
        await self._mend(pool, entries, each)

    async def _mend(self, pool: PoolDocument, entries: Sequence[object], each: Kept) -> None:
        name = f"NodePool/{pool.name}"
        audit = Audit(name, "requirements", list(pool.requirements), list(entries), each.key, "adopted")
        # Setting the version makes the server answer Conflict if anyone wrote meanwhile.
        version = {"op": "add", "path": "/metadata/resourceVersion", "value": pool.metadata.resource_version}
        try:
            await self.writer.pool(
                pool, [version, {"op": "add", "path": PATH, "value": list(entries)}], [audit]
            )
        except (Conflict, Gone):
            return  # looked at again in the next pass
        except DovetailError as error:
            self.failures[name] = str(error)
            return
        self.failures.pop(name, None)


def _orphaned(pool: PoolDocument) -> bool:
    return labels.ZONE_LEDGER not in pool.annotations and not pool.deleting


def _zones(pool: PoolDocument, zone: str, ground: Ground) -> Zones:
    reached = ground.reached(*pool.class_name)
    names = tuple(ground.names[each] for each in reached if each in ground.names)
    return Zones((ground.names[zone],), (zone,), names, reached)
