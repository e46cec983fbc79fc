"""Pods that wait for a zone that is stepped out of: counted, and told to whoever owns them, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.errors import DovetailError
from dovetail.ports import Clock, Recorder
from dovetail.zonal.confined import Confined

__all__ = ["Waiting"]

EVERY = 30.0
DAY = 86_400.0


class Waiting:
    """Says WaitingForZone on a workload when its first pod waits, and no more until the shift is over."""

    def __init__(self, seeing: Seeing | None, clock: Clock, recorder: Recorder) -> None:
        self._seeing, self._clock, self._recorder = seeing, clock, recorder
        self._due = float("-inf")
        self._zones: Mapping[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    async def settle(self, zones: Mapping[str, str]) -> None:
        """Look who waits for these zones, names by id; from time to time, and at once when they change."""
        if self._seeing is None or (not zones and not self._zones):
            return
        now = self._clock.monotonic()
        if zones == self._zones and now < self._due:
            return
        try:
            found = await self._seeing.waiting(zones)
        except DovetailError:
            return  # looked at again in the next pass
        self._due = now + EVERY
        self._count(found, zones)
        for each in found:
            self._tell(each)

    def _count(self, found: tuple[Confined, ...], zones: Mapping[str, str]) -> None:
        waiting = Counter(each.zone for each in found)
        for name in {*zones.values(), *self._zones.values()}:
            counts.WAITING.labels(name).set(waiting[name])
        self._told = {(uid, zone) for uid, zone in self._told if zone in zones.values()}
        self._zones = dict(zones)

    def _tell(self, each: Confined) -> None:
        assert self._seeing is not None
        workload = self._seeing.maker(each.pod)
        key = (workload.uid or workload.full_name, each.zone)
        if key in self._told:
            return
        self._told.add(key)
        note = f"pod {each.pod.name}: {each}"
        self._recorder.event(workload, "WaitingForZone", note, warning=True, dedupe=key, window=DAY)
