"""A queue of keys: each at most once, with back-off for those that fail.

    add ──► waiting ──► being worked on ──► done
              ▲              │ added meanwhile: waits again as soon as it is done
              └── later ◄────┘ failed: after its back-off

The same key is never worked on twice at once, and a key added while it is being worked on is
worked on once more.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from itertools import count

from dovetail.controllers.base import Backoff
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.throttle import Throttle

__all__ = ["Closed", "WorkQueue"]


class Closed(Exception):
    """The queue was closed; there is no more work."""


class WorkQueue:
    """Keys waiting for one controller."""

    def __init__(self, name: str, clock: Clock, backoff: Backoff = Backoff()) -> None:  # noqa: B008 (frozen)
        self._name = name
        self._clock = clock
        self._backoff = backoff
        self._adds = metrics.QUEUE_ADDS.labels(name, name)
        self._retries = metrics.QUEUE_RETRIES.labels(name, name)
        self._waited = metrics.QUEUE_WAIT.labels(name, name)
        self._worked = metrics.QUEUE_WORK.labels(name, name)
        self._depth = metrics.QUEUE_DEPTH.labels(name, name, "")
        self._unfinished = metrics.QUEUE_UNFINISHED.labels(name, name)
        self._longest = metrics.QUEUE_LONGEST.labels(name, name)
        self._bucket = Throttle(clock, backoff.per_second, backoff.burst)
        self._waiting: OrderedDict[str, float] = OrderedDict()
        self._working: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._failures: dict[str, int] = {}
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._order = count()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, key: str) -> None:
        """Have the key worked on soon."""
        if self._closed or key in self._waiting:
            return
        self._adds.inc()
        if key in self._working:
            self._dirty.add(key)
            return
        self._waiting[key] = self._clock.monotonic()
        self._wake.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Have the key worked on then, or earlier if it is added before."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        self._set_timer()

    def retry(self, key: str, at_least: float = 0.0, at_most: float | None = None) -> None:
        """The key failed: try it again after its own back-off, or the bucket's, whichever is longer.

        `at_least` is what the other side asked for, in seconds; `at_most` bounds the key's own back-off.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries.inc()
        last = self._backoff.last if at_most is None else min(self._backoff.last, at_most)
        own = min(self._backoff.first * 2 ** min(failures, 60), last)
        self.add_after(key, max(own, self._bucket.take_token(), at_least))

    def forget(self, key: str) -> None:
        """The key did well: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """The next key; the caller owes `done`. Closed once the queue is closed and empty."""
        while True:
            if self._waiting:
                key, since = self._waiting.popitem(last=False)
                now = self._clock.monotonic()
                self._waited.observe(now - since)
                self._working[key] = now
                return key
            if self._closed:
                raise Closed(self._name)
            self._wake.clear()
            await self._wake.wait()

    def mark_done(self, key: str) -> None:
        """Work on the key is over."""
        started = self._working.pop(key)
        self._worked.observe(self._clock.monotonic() - started)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def close(self) -> None:
        """Take no more keys; those that wait are dropped, those under way finish."""
        self._closed = True
        self._waiting.clear()
        self._later.clear()
        self._due.clear()
        self._dirty.clear()
        if self._timer:
            self._timer.cancel()
        self._wake.set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way (what is due later does not count)."""
        return not self._waiting and not self._working

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._later:
            delay = max(self._later[0][0] - self._clock.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._add_due_keys)

    def _add_due_keys(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            # An earlier date for the same key has already had its turn.
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._set_timer()

    def report(self) -> None:
        """Set the gauges, for someone who looks now: work that never ends is seen to grow old."""
        now = self._clock.monotonic()
        ages = [now - started for started in self._working.values()]
        self._depth.set(len(self._waiting))
        self._unfinished.set(sum(ages))
        self._longest.set(max(ages, default=0.0))
