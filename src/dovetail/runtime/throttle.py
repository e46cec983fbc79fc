"""A token bucket: so many calls a second, with a burst in hand."""

from __future__ import annotations

from dovetail.ports import Clock

__all__ = ["Throttle"]


class Throttle:
    """Grants calls in order of asking; a caller waits until its token is there.

    Tokens may go negative: each waiter takes its token at once and sleeps until it would have
    arrived, which keeps first come, first served without a queue.
    """

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled = clock.monotonic()

    def take_token(self) -> float:
        """Take a token; return how long to wait before using it."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0 else -self._tokens / self._per_second

    def try_take(self) -> bool:
        """Take a token if one is there now."""
        taken = self.take_token() == 0.0
        if not taken:
            self._tokens += 1.0
        return taken

    async def wait(self) -> None:
        seconds = self.take_token()
        if seconds > 0:
            await self._clock.sleep(seconds)
