"""The wall's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

__all__ = ["SystemClock"]


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """Time as the machine tells it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # Seconds that count while the machine sleeps too, where it can tell: a lease runs out meanwhile.
        return time.clock_gettime(_BOOT) if _BOOT is not None else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
