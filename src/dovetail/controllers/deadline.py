"""How long a search may take. It stands alone: workers load this page, and nothing else of controllers."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.ports import Clock

__all__ = ["Deadline"]


@dataclass(frozen=True)
class Deadline:
    """A time limit another process can keep too."""

    clock: Clock
    end: float

    def __call__(self) -> bool:
        return self.clock.monotonic() >= self.end
