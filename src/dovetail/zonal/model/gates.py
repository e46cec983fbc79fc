"""What the engine asks before it buys or takes away: is this zone shifted away?

Nothing is written anywhere for it. By default no gate is closed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.api.zoneshift import ZoneShift
from dovetail.ports import Clock

__all__ = ["GatedZones", "ZoneGates", "read_zone_gates"]

RESTORED = "Restored"

# What waited for the end of a shift does not all happen at once then.
SPREAD = timedelta(minutes=30)
LOOK_AGAIN = 30.0


class GatedZones(NamedTuple):
    """Zones that ZoneShifts close for disruption, by name, and for launches, names by id; and those back."""

    excluded: frozenset[str]
    closed: Mapping[str, str]
    returned: frozenset[str]


def read_zone_gates(shifts: Iterable[ZoneShift]) -> GatedZones:
    """The zones that the controller has closed and opened again, as it says in the status of each shift."""
    listed = sorted(shifts, key=lambda each: each.spec.zone_id)
    names = {each.spec.zone_id: each.status.zone_name or each.spec.zone_id for each in listed}
    excluded = frozenset(names[each.spec.zone_id] for each in listed if each.status.steps.disruption)
    closed = {each.spec.zone_id: names[each.spec.zone_id] for each in listed if each.status.steps.gate}
    ended = (each for each in listed if each.status.phase == RESTORED and each.status.ended_at is not None)
    returned = frozenset(each.status.zone_name for each in ended) - excluded - {""}
    return GatedZones(excluded, closed, returned)


class ZoneGates:
    """Closed for launches by zone id, for disruption by zone name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._launch_zones: frozenset[str] = frozenset()
        self._disruption_zones: frozenset[str] = frozenset()
        self._opened: Mapping[str, datetime] = {}
        # Zones closed for launches, names by id.
        self.excluded_zones: Mapping[str, str] = {}

    def set_closed(
        self,
        launches: frozenset[str],
        disruption: frozenset[str],
        opened: Mapping[str, datetime],
        names: Mapping[str, str] | None = None,
    ) -> bool:
        """Close these and open all others; whether anything changed. `opened` are ends of past shifts."""
        self.excluded_zones = {zone: (names or {}).get(zone, zone) for zone in sorted(launches)}
        changed = (launches, disruption) != (self._launch_zones, self._disruption_zones)
        self._launch_zones, self._disruption_zones, self._opened = launches, disruption, opened
        return changed

    @property
    def closed(self) -> frozenset[str]:
        """The ids of all zones in which nothing may be bought."""
        return self._launch_zones

    @property
    def returned(self) -> frozenset[str]:
        """The names of zones that are back, and not away again."""
        return frozenset(self._opened) - self._disruption_zones - {""}

    def is_launch_closed(self, zone_id: str) -> bool:
        """Whether nothing may be bought in the zone."""
        return zone_id in self._launch_zones

    def is_disruption_closed(self, zone: str) -> bool:
        """Whether nothing may be taken away by choice in the zone."""
        return zone in self._disruption_zones

    @property
    def disrupted(self) -> frozenset[str]:
        """The names of all zones in which nothing may be taken away by choice."""
        return self._disruption_zones

    def delay_for_shift(self, zone: str, uid: str, due: datetime) -> float:
        """How many seconds something that was due then must still wait, because of a shift; 0 to go ahead."""
        if zone in self._disruption_zones:
            return LOOK_AGAIN
        opened = self._opened.get(zone)
        if opened is None or due >= opened:
            return 0.0
        share = zlib.crc32(uid.encode()) / 2**32
        left = opened + share * SPREAD - self._clock.now()
        return max(left.total_seconds(), 0.0)
