"""What a controller is, and what it says when it is done.

A controller is level-driven: it is handed a key, looks at the world, and would do the same if
handed the key twice. One that watches over the whole cluster has a single key, the empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

__all__ = ["DONE", "SINGLETON", "SOON", "Backoff", "Controller", "Result", "after", "run_all"]

R = TypeVar("R")

SINGLETON = ""
"""The key of a controller that has no objects of its own."""


@dataclass(frozen=True, slots=True)
class Result:
    """What should happen to the key next: nothing, another try with back-off, or a visit at a set time."""

    again: bool = False
    after: timedelta | None = None


DONE = Result()
SOON = Result(again=True)


def after(seconds: float) -> Result:
    """Come back in that many seconds, if nothing wakes the controller before."""
    return Result(after=timedelta(seconds=seconds))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How failures of one key are spaced: doubling from the first delay to the last. Seconds."""

    first: float = 0.005
    last: float = 1000.0
    per_second: float = 10.0
    burst: int = 100


class Controller(Protocol):
    """One subject, one verb."""

    @property
    def name(self) -> str:
        """The value of the `controller` label and log key."""

    @property
    def concurrency(self) -> int:
        """How many keys may be worked on at once."""

    @property
    def backoff(self) -> Backoff:
        """How failures are spaced."""

    async def reconcile(self, key: str) -> Result:
        """Look at the world and make it so."""


async def run_all(work: Iterable[Awaitable[R]]) -> list[R]:
    """Try every one, then raise the failures together."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [o for o in outcomes if isinstance(o, BaseException)]
    stopped = next((f for f in failures if not isinstance(f, Exception)), None)
    if stopped is not None:
        raise stopped
    if failures:
        raise ExceptionGroup("some of the work failed", [f for f in failures if isinstance(f, Exception)])
    return [o for o in outcomes if not isinstance(o, BaseException)]
