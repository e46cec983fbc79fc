"""What people are told about zones that are stepped out of, on the pools that could use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.api import labels
from dovetail.controllers.zonal.documents import PoolDocument
from dovetail.controllers.zonal.zones import Ground
from dovetail.errors import BadInput
from dovetail.ports import Recorder
from dovetail.zonal.ledgers import pool_ledger_from
from dovetail.zonal.pools import FROZEN, KEYS, Zones, admits, confined

__all__ = ["Notices"]

HOUR = 3600.0


class Notices:
    """Tells a pool once when a zone of its own goes, and once when it comes back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._before: frozenset[str] = frozenset()

    def changed(self, away: frozenset[str]) -> bool:
        return away != self._before

    def tell(
        self, pools: Sequence[PoolDocument], ground: Ground, away: frozenset[str], *, gated: bool = True
    ) -> None:
        """`gated` where pools are not edited: those that are hear of their only zone when that is done."""
        if not all(ground.reached(*pool.class_name) for pool in pools):
            return  # a class that has not found its subnets yet may have one there: told when it has
        for zone in sorted(away ^ self._before):
            for pool in pools:
                if zone in ground.names and _affected(pool, ground, zone):
                    self._say(pool, ground.names[zone], zone, shifted=zone in away)
                    if gated:
                        self._say_confined(pool, ground, away)
        self._before = away

    def _say_confined(self, pool: PoolDocument, ground: Ground, away: frozenset[str]) -> None:
        """A pool to which no other zone is left launches nothing, however that is brought about."""
        reached = [each for each in ground.reached(*pool.class_name) if each in ground.names]
        ids = [each for each in reached if each in away]
        names = ground.names
        zones = Zones(
            tuple(names[each] for each in ids),
            tuple(ids),
            tuple(names[each] for each in reached),
            tuple(reached),
        )
        if ids and confined(_own(pool), zones):
            self._recorder.event(pool, "OnlyZoneImpaired", FROZEN, warning=True, dedupe=(pool.uid, FROZEN))

    def _say(self, pool: PoolDocument, name: str, zone: str, *, shifted: bool) -> None:
        about, dedupe = f"zone {name} ({zone})", (pool.uid, zone)
        if shifted:
            note = f"{about} is shifted away"
            self._recorder.event(pool, "ZonalShiftActive", note, warning=True, dedupe=dedupe)
        else:
            self._recorder.event(pool, "ZonalShiftCleared", f"{about} is back", dedupe=dedupe)

    def unregistered(self, pools: Sequence[PoolDocument], cluster: str) -> None:
        note = (
            f"ARC does not know the cluster {cluster}, so its shifts are not followed; enable zonal shift on "
            "the cluster (zonalShiftConfig.enabled=true), or use `dovetail zonal-shift start --local`"
        )
        for pool in pools:
            self._recorder.event(
                pool, "ZonalShiftUnregistered", note, warning=True, dedupe=(pool.uid,), window=HOUR
            )


def _affected(pool: PoolDocument, ground: Ground, zone: str) -> bool:
    """Whether the pool's class has a subnet there, and the pool lets its nodes be there."""
    return zone in ground.reached(*pool.class_name) and admits(_own(pool), ground.names[zone], zone)


def _own(pool: PoolDocument) -> list[Mapping[str, Any]]:
    """What the pool itself says of zones; entries of ours do not count. Of a note nobody can read, all do."""
    try:
        ledger = pool_ledger_from(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
    except BadInput:
        ledger = None
    entries = pool.requirements if ledger is None else ledger.base
    return [each for each in entries if each["key"] in KEYS]
