"""Time and words as the bus needs them: shapes small enough for a function of 256 MB."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["BusClock", "BusLog", "JsonLog", "SilentLog", "WallClock"]


class BusClock(Protocol):
    """The part of `ports.Clock` that is used here; that module would bring the whole API along."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """Time as the machine tells it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BusLog(Protocol):
    """A constant message and named fields."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class SilentLog:
    """A log that nobody reads."""

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class JsonLog:
    """Lines of JSON for CloudWatch."""

    def __init__(self, write: Callable[[str], object], level: str = "info") -> None:
        self._write = write
        self._debug = level == "debug"

    def debug(self, event: str, **fields: object) -> None:
        if self._debug:
            self._write_line("DEBUG", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write_line("INFO", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write_line("WARN", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write_line("ERROR", event, fields)

    def _write_line(self, level: str, event: str, fields: dict[str, object]) -> None:
        line = {"level": level, "logger": "bus", "message": event, **fields}
        self._write(json.dumps(line, default=str, separators=(",", ":")))
