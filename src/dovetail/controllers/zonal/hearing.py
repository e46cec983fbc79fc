"""Messages that were kept, as the leader hears them: each makes it look once; late ones are counted."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api.zoneshift import ZoneShift
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.arc import Arc
from dovetail.controllers.zonal.signals import KIND, START
from dovetail.controllers.zonal.store import Store
from dovetail.ports import Clock

__all__ = ["Hearing"]

# Seconds for which a message is kept where it can be heard.
KEPT = 7200.0


class Hearing:
    """Hears every message once."""

    def __init__(self, store: Store, arc: Arc, clock: Clock) -> None:
        self._store, self._arc, self._clock = store, arc, clock
        self._looked: set[str] = set()

    async def heard(self, signals: Sequence[ZoneShift]) -> None:
        """Messages of any replica: each makes us look once; old ones are forgotten."""
        now = self._clock.now()
        for each in signals:
            if each.name not in self._looked:
                self._looked.add(each.name)
                self._arc.hint()
            created = each.metadata.creation_timestamp
            if created is not None and (now - created).total_seconds() > KEPT:
                self._looked.discard(each.name)
                await self._store.remove(each)

    def judge(self, signals: Sequence[ZoneShift]) -> None:
        """A start that ARC knows nothing of is stale: it came late, and is over."""
        poll = self._arc.last
        zones = {shift.zone_id for shift in poll.shifts} if poll is not None else set()
        for each in signals:
            if each.name in self._looked and each.annotations.get(START) == "true":
                fresh = f"{each.name}/judged"
                if fresh not in self._looked and each.spec.zone_id not in zones:
                    counts.SIGNALS.labels("any", each.annotations.get(KIND, ""), "stale").inc()
                self._looked.add(fresh)
