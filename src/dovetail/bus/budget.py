"""How often EC2 may be asked: a bucket of tokens that shrinks when EC2 complains and recovers slowly."""

from __future__ import annotations

from dovetail.bus.clocks import Clock

__all__ = ["Budget"]

LEAST = 0.2


class Budget:
    """Calls a second, with a burst; modest, since every Karpenter of an account shares EC2's own bucket."""

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self._most = self.rate = float(rate)
        self._burst = self._tokens = float(burst)
        self._clock = clock
        self._at = clock.monotonic()

    @property
    def tokens(self) -> float:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        return self._tokens

    async def take(self) -> None:
        """Return once a call may be made."""
        while self.tokens < 1:
            await self._clock.sleep((1 - self._tokens) / self.rate + 0.001)
        self._tokens -= 1

    def complained(self) -> None:
        """EC2 throttled a call: half as many from now on, and none at once."""
        self.rate = max(self.rate / 2, LEAST)
        self._tokens = min(self.tokens, 0.0)

    def pleased(self) -> None:
        self.rate = min(self._most, self.rate + self._most / 20)
