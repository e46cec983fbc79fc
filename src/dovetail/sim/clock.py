"""Virtual time: an event loop whose clock jumps to the next thing that is due.

Everything that waits through asyncio (sleeps, timeouts, timers) waits in this loop's time, so the very
same code runs against the wall's clock and here, where an hour passes as fast as its work is done.
With nothing random and no real I/O, the same start gives the same story, step by step.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

__all__ = ["Standstill", "VirtualClock", "VirtualLoop", "run_virtual"]

R = TypeVar("R")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Standstill(Exception):
    """Nothing is due and nothing is ready: in virtual time the world would wait for ever."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the loop's clock forward by as long as it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Standstill(
                "nothing is due and nothing is ready; something waits for an event that never comes"
            )
        if timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Threads and sockets do not belong in it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class VirtualClock:
    """The loop's time as a Clock. `skew` shifts the time of day alone, as a wrong clock would."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self.skew = timedelta()
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic()) + self.skew

    def monotonic(self) -> float:
        # Between two runs of its loop the world stands still, and its clock with it.
        loop = asyncio._get_running_loop()
        if loop is not None:
            self._loop = loop
        return self._loop.time() if self._loop is not None else 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, R]) -> R:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
