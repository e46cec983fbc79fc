"""What is known of instances: whose they are, or that they are no one's. No I/O; time is handed in.

Ids are never used again and cluster tags do not change, so what is known stays known. Entries learnt in the
same minute about the same owners share one object, which keeps an entry near the size of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from dovetail.bus.destinations import Cluster
from dovetail.bus.events import Place

__all__ = ["FOREIGN", "OWNED", "UNKNOWN", "Known", "Owners"]

OWNED, FOREIGN, UNKNOWN = "owned", "foreign", "unknown"
MINUTE, HOUR = 60.0, 3600.0
IDLE = 24 * HOUR  # an owned entry that no one asked for
ENDED = 2 * HOUR  # after the instance is gone
STALE = 6 * HOUR  # after which an owned entry is looked up again in the background
NO_TAG, YOUNG_NO_TAG, ABSENT = 600.0, 30.0, 30.0
YOUNG = 120.0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an instance, until when, and since when."""

    state: str
    owners: tuple[Cluster, ...]
    until: float
    since: float
    ended: bool = False


class Owners:
    """A bounded memory of instances; the one unused for longest goes first."""

    def __init__(self, size: int = 500_000) -> None:
        self._size = size
        self._known: dict[str, Known] = {}
        self._shared: dict[tuple[object, ...], Known] = {}
        self._minute = -1.0
        self.asked = 0
        self.answered = 0

    def get(self, instance: str, now: float) -> Known | None:
        """What is known now."""
        self.asked += 1
        known = self._known.get(instance)
        if known is None:
            return None
        if known.until <= now:
            del self._known[instance]
            return None
        self.answered += 1
        if known.state is OWNED and not known.ended and known.until - now < IDLE - MINUTE:
            self._put(instance, self._share(OWNED, known.owners, now + IDLE, now, since=known.since))
        return known

    def owned(self, instance: str, owners: tuple[Cluster, ...], now: float) -> None:
        self._put(instance, self._share(OWNED, owners, now + IDLE, now, since=now))

    def foreign(self, instance: str, now: float, age: float | None = None) -> None:
        """It exists and bears no cluster's tag; a young one may still get it."""
        lasts = YOUNG_NO_TAG if age is not None and age < YOUNG else NO_TAG
        self._put(instance, Known(FOREIGN, (), now + lasts, now))

    def unknown(self, instance: str, now: float) -> None:
        self._put(instance, Known(UNKNOWN, (), now + ABSENT, now))

    def ended(self, instance: str, now: float) -> None:
        """The instance is gone: latecomers still find their way for a while."""
        known = self._known.get(instance)
        if known is not None and known.state is OWNED and not known.ended:
            until = min(known.until, now + ENDED)
            self._put(instance, self._share(OWNED, known.owners, until, now, since=known.since, ended=True))

    def stale(self, now: float, most: int) -> list[tuple[str, Place]]:
        """Instances that run on and were looked up long ago, with their places."""
        found = (
            (instance, known.owners[0].place)
            for instance, known in self._known.items()
            if known.state is OWNED and not known.ended and now - known.since > STALE
        )
        return list(islice(found, most))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def hit_ratio(self) -> float:
        return self.answered / self.asked if self.asked else 1.0

    def _put(self, instance: str, known: Known) -> None:
        entries = self._known
        entries.pop(instance, None)
        entries[instance] = known
        if len(entries) > self._size:
            del entries[next(iter(entries))]

    def _share(
        self,
        state: str,
        owners: tuple[Cluster, ...],
        until: float,
        now: float,
        *,
        since: float,
        ended: bool = False,
    ) -> Known:
        minute = now // MINUTE
        if minute != self._minute:
            self._minute = minute
            self._shared.clear()
        key = (owners, until // MINUTE, since // MINUTE, ended)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = Known(state, owners, until, since, ended)
        return found
