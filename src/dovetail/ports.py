"""The shapes controllers need from the outside: clock, Kubernetes, compute."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Time as the world tells it: the wall's in production, the scenario's in simulation."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""


class Compute(Protocol):
    """Where heavy pure work is done: inline in tests, in worker processes in production."""

    def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run the work somewhere and give back its result."""
