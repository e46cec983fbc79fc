"""The machine's own time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from dovetail.runtime.clock import SystemClock


async def test_time_is_utc_and_moves_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.009
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.now().tzinfo is UTC


def test_seconds_count_while_the_machine_sleeps() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(SystemClock().monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1
    else:
        assert abs(SystemClock().monotonic() - time.monotonic()) < 1
