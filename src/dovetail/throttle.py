"""A token bucket: so many calls a second, with a burst in hand."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Throttle", "ThrottleClock"]


class ThrottleClock(Protocol):
    """The part of `ports.Clock` that is used here; that module would bring the whole API along."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Throttle:
    """Grants calls in order of asking; a caller waits until its token is there.

    Tokens may go negative: each waiter takes its token at once and sleeps until it would have
    arrived, which keeps first come, first served without a queue.
    """

    def __init__(self, clock: ThrottleClock, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = float(per_second)
        self._burst = self._tokens = float(burst)
        self._filled = clock.monotonic()

    @property
    def per_second(self) -> float:
        return self._per_second

    @property
    def tokens(self) -> float:
        """Calls that could be made at once."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        return self._tokens

    def change_rate(self, per_second: float, *, most_tokens: float | None = None) -> None:
        """Fill at another rate from now on, with no more than so many tokens in hand."""
        self._per_second = per_second
        if most_tokens is not None:
            self._tokens = min(self.tokens, most_tokens)

    def take_token(self) -> float:
        """Take a token; return how long to wait before using it."""
        self._tokens = self.tokens - 1.0
        return 0.0 if self._tokens >= 0 else -self._tokens / self._per_second

    def try_take(self) -> bool:
        """Take a token if one is there now."""
        if self.tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    async def wait(self) -> None:
        """Return once the token that is taken has arrived."""
        seconds = self.take_token()
        if seconds > 0:
            await self._clock.sleep(seconds)

    async def wait_for_free(self) -> None:
        """Return with a token once one is free, at the rate of that moment and in no order."""
        while not self.try_take():
            await self._clock.sleep((1.0 - self._tokens) / self._per_second + 0.001)
