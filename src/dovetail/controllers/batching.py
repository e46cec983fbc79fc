"""A burst of triggers becomes one pass: wait until it settles, but not for ever."""

from __future__ import annotations

import asyncio

from dovetail.ports import Clock

__all__ = ["TriggerBatcher"]


class TriggerBatcher:
    """Opens a window at the first trigger; closes it when no new one came for `idle`, or after `longest`.

    The same trigger again does not keep the window open: a pod that stays pending is not a burst.
    """

    def __init__(self, clock: Clock, idle: float, longest: float) -> None:
        self._clock = clock
        self._idle = idle
        self._longest = longest
        self._seen: set[str] = set()
        self._opened = float("-inf")
        self._latest = float("-inf")
        self._stirred = asyncio.Event()

    def trigger(self, uid: str) -> None:
        """Something wants a pass."""
        now = self._clock.monotonic()
        if not self._seen:
            self._opened = self._latest = now
        if uid not in self._seen:
            self._seen.add(uid)
            self._latest = now
            self._stirred.set()

    async def wait(self) -> bool:
        """Until the window closes; false at once when nothing was triggered."""
        if not self._seen:
            return False
        while (left := self._closes_at() - self._clock.monotonic()) > 1e-9:
            self._stirred.clear()
            try:
                async with asyncio.timeout(left):
                    await self._stirred.wait()
            except TimeoutError:
                break
        self._seen.clear()
        return True

    def _closes_at(self) -> float:
        return min(self._latest + self._idle, self._opened + self._longest)
