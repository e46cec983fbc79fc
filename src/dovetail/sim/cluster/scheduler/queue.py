"""Who is next: the most important pod, then the oldest; and when those who fitted nowhere try again.

pending ──► active ──► bound
              │ ▲
              ▼ │ something changed that may help, and its back-off is over
           waiting
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

__all__ = ["SchedulingQueue"]

Json = dict[str, Any]
Key = tuple[str, str]
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 10.0


class _PendingPod:
    """A pod that fitted nowhere: how often, when it may be tried again, and whether others may help it."""

    __slots__ = ("attempts", "choosy", "eligible")

    def __init__(self) -> None:
        self.attempts = 0
        self.eligible = 0.0
        self.choosy = False


class SchedulingQueue:
    """The pods that want a node."""

    def __init__(self) -> None:
        self._active: list[tuple[int, str, int, Key]] = []
        self._queued: set[Key] = set()
        self._pending: dict[Key, _PendingPod] = {}
        self._choosy = 0
        self._order = count()

    def __bool__(self) -> bool:
        return bool(self._active)

    @property
    def has_pending(self) -> bool:
        """Someone waits for the world to change."""
        return bool(self._pending)

    @property
    def choosy(self) -> bool:
        """Someone waits whom the arrival of another pod may help: company, or a more even spread."""
        return self._choosy > 0

    def push(self, key: Key, pod: Json) -> None:
        """A pod wants a node now."""
        if key not in self._queued:
            self._queued.add(key)
            created, priority = pod["metadata"]["creationTimestamp"], pod["spec"].get("priority") or 0
            heapq.heappush(self._active, (-priority, created, next(self._order), key))

    def pop(self) -> Key:
        """The next pod."""
        key = heapq.heappop(self._active)[3]
        self._queued.discard(key)
        return key

    def park(self, key: Key, now: float, *, choosy: bool = False, at_once: bool = False) -> None:
        """A pod fitted nowhere; `at_once` when it only waits for something already under way."""
        waiting = self._pending.setdefault(key, _PendingPod())
        self._choosy += choosy - waiting.choosy
        waiting.choosy = choosy
        if at_once:
            waiting.eligible = now
            return
        waiting.attempts += 1
        waiting.eligible = now + min(FIRST_BACKOFF * 2 ** (waiting.attempts - 1), LAST_BACKOFF)

    def forget(self, key: Key) -> None:
        """A pod waits no more: it is bound, or gone."""
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self._choosy -= waiting.choosy

    def list_ripe(self, now: float, *, everyone: bool) -> tuple[list[Key], float | None]:
        """Who may try again, and in how long the next one may."""
        ripe, soonest = [], None
        for key, waiting in self._pending.items():
            left = waiting.eligible - now
            if everyone or left <= 1e-9:
                ripe.append(key)
            elif soonest is None or left < soonest:
                soonest = left
        return ripe, soonest
