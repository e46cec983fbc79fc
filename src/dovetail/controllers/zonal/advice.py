"""What losing a zone would mean, worked out once for each shift: for people to know, and to buy room by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from dovetail.api.zoneshift import ZoneShift
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.errors import DovetailError
from dovetail.ports import Recorder
from dovetail.zonal.rehearsal import Rehearsal

__all__ = ["Addresses", "Advice"]

# Free addresses by the name of the zone; empty where nobody can say.
Addresses = Callable[[], Awaitable[Mapping[str, int]]]


class Advice:
    """The capacity pre-flight. It advises, and nothing waits for it."""

    def __init__(self, seeing: Seeing | None, recorder: Recorder) -> None:
        self._seeing, self._recorder = seeing, recorder
        self.found: dict[str, Rehearsal] = {}

    async def about(self, shift: ZoneShift, zone: str, addresses: Addresses) -> Mapping[str, str] | None:
        """What to note on the shift; None when it is noted already, or cannot be said."""
        if self._seeing is None or not zone or shift.name in self.found:
            return None
        free = await addresses()
        try:
            found = await self._seeing.rehearsal(zone, free)
        except DovetailError:
            return None  # advice, and no more: what must be done is done without it
        self.found[shift.name] = found
        counts.ready(zone, found.readiness)
        note = (
            f"if {zone} is lost, {found.pods} pods need {found.new_nodes} nodes elsewhere at "
            f"${found.price:.2f} an hour, and {len(found.homeless)} have no home"
        )
        self._recorder.event(shift, "ZonalShiftImpact", note, dedupe=(shift.name,))
        return _noted(found, {name: count for name, count in free.items() if name != zone})


def _noted(found: Rehearsal, free: Mapping[str, int]) -> dict[str, str]:
    told = {
        "pods": str(found.pods),
        "podsWithoutHome": str(len(found.homeless)),
        "podsOnZonalVolumes": str(found.because("volume")),
        "nodesNeeded": str(found.new_nodes),
        "pricePerHour": f"{found.price:.2f}",
        "readiness": f"{found.readiness:.2f}",
        "poolsAtLimit": ",".join(found.limited),
        "freeAddresses": ",".join(f"{zone}={count}" for zone, count in sorted(free.items())),
    }
    return {name: text for name, text in told.items() if text}
