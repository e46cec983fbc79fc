"""zonalrehearsal: from time to time, what losing each zone would mean, before anyone loses it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from dovetail.api import labels
from dovetail.api.cron import Schedule
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Rounds, after
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.ports import Clock, Recorder
from dovetail.scheduling.snapshot import Snapshot
from dovetail.zonal.rehearsal import Rehearsal, rehearse

__all__ = ["Rehearsing"]

# While nothing is known yet there is nothing to rehearse.
AGAIN = 60.0
# A queue keeps no longer waits than this; the rest is waited for in turns.
LONGEST = 3600.0
DAY = 86_400.0


class Rehearsing(Rounds):
    """Rehearses at the start and whenever the schedule says so; a zone that became less ready is told of."""

    name = "zonalrehearsal"
    backoff = Backoff(first=10.0, last=600.0)

    def __init__(
        self, seeing: Seeing, pools: Cache[NodePool], schedule: Schedule, clock: Clock, recorder: Recorder
    ) -> None:
        self._seeing, self._pools, self._schedule = seeing, pools, schedule
        self._clock, self._recorder = clock, recorder
        self._due: datetime | None = None
        self._before: dict[str, float] = {}

    async def reconcile(self, key: str) -> Result:
        now = self._clock.now()
        if self._due is not None and now < self._due:
            return after(min((self._due - now).total_seconds(), LONGEST))
        world = await self._seeing.look()
        zones = _inhabited(world)
        if not zones:
            return after(AGAIN)
        for zone in zones:
            self._tell(await self._seeing.compute(rehearse, world, zone), world)
        self._due = self._schedule.next(now)
        return DONE if self._due is None else after(min((self._due - now).total_seconds(), LONGEST))

    def _tell(self, found: Rehearsal, world: Snapshot) -> None:
        zone, before = found.zone, self._before.get(found.zone, 1.0)
        self._before[zone] = found.readiness
        counts.ready(zone, found.readiness)
        if found.readiness >= before:
            return
        why = ", ".join(f"{count} by {kind}" for kind, count in Counter(found.kinds.values()).most_common())
        note = (
            f"losing {zone} would now leave {len(found.homeless)} of {found.pods} pods without a home "
            f"({why}); `dovetail zonal-shift rehearse --zone {zone}` lists them"
        )
        for name in _pools_in(world, zone):
            pool = self._pools.get(name)
            if pool is not None:
                told = (pool.uid, zone, f"{found.readiness:.3f}")
                self._recorder.event(pool, "ZonalReadinessFell", note, warning=True, dedupe=told, window=DAY)


def _inhabited(world: Snapshot) -> list[str]:
    """The zones that have a node."""
    zones = {state.node.labels.get(labels.ZONE, "") for state in world.nodes if state.node is not None}
    return sorted(zones - {""})


def _pools_in(world: Snapshot, zone: str) -> list[str]:
    known = (state.node.labels for state in world.nodes if state.node is not None)
    return sorted({each.get(labels.NODEPOOL, "") for each in known if each.get(labels.ZONE) == zone} - {""})
