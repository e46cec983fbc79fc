"""What people are told about zones that are stepped out of, on the pools that could use them."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api import labels
from dovetail.controllers.zonal.documents import PoolDocument
from dovetail.controllers.zonal.zones import Ground
from dovetail.ports import Recorder
from dovetail.zonal.ledgers import pool_ledger_from
from dovetail.zonal.pools import KEYS, admits

__all__ = ["Notices"]

HOUR = 3600.0


class Notices:
    """Tells a pool once when a zone of its own goes, and once when it comes back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._before: frozenset[str] = frozenset()

    def changed(self, away: frozenset[str]) -> bool:
        return away != self._before

    def tell(self, pools: Sequence[PoolDocument], ground: Ground, away: frozenset[str]) -> None:
        if not all(ground.reached(*pool.class_name) for pool in pools):
            return  # a class that has not found its subnets yet may have one there: told when it has
        for zone in sorted(away ^ self._before):
            for pool in pools:
                if zone in ground.names and _affected(pool, ground, zone):
                    self._say(pool, ground.names[zone], zone, shifted=zone in away)
        self._before = away

    def _say(self, pool: PoolDocument, name: str, zone: str, *, shifted: bool) -> None:
        reason = "ZonalShiftActive" if shifted else "ZonalShiftCleared"
        note = f"zone {name} ({zone}) is shifted away" if shifted else f"zone {name} ({zone}) is back"
        self._recorder.event(pool, reason, note, warning=shifted, dedupe=(pool.uid, zone))

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
    about = [each for each in pool.requirements if each["key"] in KEYS and not _ours(pool, each)]
    return zone in ground.reached(*pool.class_name) and admits(about, ground.names[zone], zone)


def _ours(pool: PoolDocument, entry: object) -> bool:
    """An entry of our own does not count: the pool could use the zone but for us."""
    ledger = pool_ledger_from(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
    return ledger is not None and entry not in ledger.base
