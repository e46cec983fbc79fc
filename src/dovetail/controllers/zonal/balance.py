"""When a zone is back: how unevenly the cluster lies over its zones, told once for each shift."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.keeping import Kept
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.errors import DovetailError
from dovetail.ports import Clock, Recorder
from dovetail.zonal.balance import Balance, balance

__all__ = ["Report"]

# Later than this nobody wants to hear of it; a process that starts then says nothing.
FRESH = timedelta(minutes=10)


class Report:
    """Says it when a shift is over."""

    def __init__(self, seeing: Seeing | None, clock: Clock, recorder: Recorder, *, wanted: bool) -> None:
        self._seeing, self._clock, self._recorder, self._wanted = seeing, clock, recorder, wanted
        self._told: set[str] = set()

    async def settle(self, acting: Sequence[Kept]) -> None:
        if not self._wanted or self._seeing is None:
            return
        for each in acting:
            ended, now = each.record.ended, self._clock.now()
            fresh = each.record.phase == "Restored" and ended is not None and now - ended < FRESH
            if not fresh or each.name in self._told:
                continue
            try:
                found = balance(await self._seeing.look())
            except DovetailError:
                continue  # told in the next pass
            self._told.add(each.name)
            _counted(found)
            note = f"zones differ by {found.skew} nodes: {found}"
            self._recorder.event(each.obj, "ZonalShiftSkew", note, dedupe=(each.name,))


def _counted(found: Balance) -> None:
    for of, shares in (("nodes", found.nodes), ("pods", found.pods), ("dollars", found.dollars)):
        for zone, value in shares.items():
            counts.SKEW.labels(zone, of).set(value)
