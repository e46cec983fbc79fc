"""Messages that any replica received, kept for whoever leads.

Each is a ZoneShift of its own kind, named for what it says: the same message told twice is one object.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.records import SIGNAL
from dovetail.controllers.zonal.store import Store
from dovetail.errors import AlreadyExists
from dovetail.zonal.events import Signal

__all__ = ["KIND", "START", "SignalStore"]

START, KIND = "zonalshift.dovetail.sh/starts", "zonalshift.dovetail.sh/kind"


class SignalStore:
    """Puts signals where the leader hears of them. `ours` tells whose cluster an ARN is."""

    def __init__(
        self,
        store: Store | None,
        *,
        arn: Callable[[], str],
        observer: bool = False,
        woken: Callable[[], None],
    ) -> None:
        self.store, self._arn, self._observer, self._woken = store, arn, observer, woken
        self._seen: set[str] = set()

    def foreign(self, signal: Signal) -> bool:
        """About another cluster, or about the region while nobody observes it."""
        if signal.cluster is None:
            return not self._observer
        ours = self._arn()
        return bool(ours) and signal.cluster != ours and not self._observer

    async def put(self, signal: Signal) -> str:
        """Keep a signal; what became of it: stored, duplicate, foreign or unknown."""
        result = await self._put(signal)
        counts.SIGNALS.labels(signal.source, signal.kind or "unknown", result).inc()
        return result

    async def _put(self, signal: Signal) -> str:
        if signal.kind is None:
            return "unknown"
        if self.foreign(signal):
            return "foreign"
        if signal.key in self._seen:
            return "duplicate"
        result = "stored"
        if self.store is not None:
            try:
                await self.store.create(signal_object(signal))
            except AlreadyExists:
                result = "duplicate"
        self._seen.add(signal.key)
        if result == "stored":
            self._woken()
        return result


def signal_object(signal: Signal) -> ZoneShift:
    return ZoneShift(
        metadata=ObjectMeta(
            name=f"signal-{signal.key[:16]}",
            annotations={
                START: "true" if signal.starts else "false",
                KIND: signal.kind or "",
            },
        ),
        spec=ZoneShiftSpec(
            zone_id=signal.zone_id,
            kind=SIGNAL,
            shift_id=signal.key,
            cluster_arn=signal.cluster or "",
            comment=signal.detail_type[:128],
        ),
    )
