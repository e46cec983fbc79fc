"""What a controller is, what wakes it, and what it says when it is done.

A controller is level-driven: it is handed a key, looks at the world, and would do the same if
handed the key twice. One that watches over the whole cluster has a single key, the empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from dovetail.api.meta import Object
from dovetail.errors import Refused, Retry, describe_error, flatten_errors

__all__ = [
    "DONE",
    "SINGLETON",
    "SOON",
    "Backoff",
    "Cache",
    "Controller",
    "PeriodicController",
    "Result",
    "Trigger",
    "choose_soonest",
    "is_idle",
    "mark_idle",
    "requeue_after",
    "retry_refusals",
    "run_all",
    "wake_on",
]

R = TypeVar("R")
T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Object, covariant=True)

SINGLETON = ""
"""The key of a controller that has no objects of its own."""


class Cache(Protocol[S]):
    """The objects of one kind as last heard of; an informer is one."""

    def get(self, name: str, namespace: str = "") -> S | None:
        """One object, or nothing."""

    def __iter__(self) -> Iterator[S]:
        """All of them."""

    def by(self, index: str, value: str) -> tuple[S, ...]:
        """Those an index files under a value."""


@dataclass(frozen=True, slots=True)
class Result:
    """What should happen to the key next: nothing, another try with back-off, or a visit at a set time."""

    again: bool = False
    after: timedelta | None = None


DONE = Result()
SOON = Result(again=True)


def requeue_after(delay: float | timedelta) -> Result:
    """Come back then (seconds, or a duration), if nothing wakes the controller before."""
    return Result(after=delay if isinstance(delay, timedelta) else timedelta(seconds=delay))


def choose_soonest(results: Iterable[Result]) -> Result:
    """The most pressing of several results."""
    again, first = False, None
    for result in results:
        again = again or result.again
        if result.after is not None and (first is None or result.after < first):
            first = result.after
    return SOON if again else Result(after=first)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How failures of one key are spaced: doubling from the first delay to the last. Seconds."""

    first: float = 0.005
    last: float = 1000.0
    per_second: float = 10.0
    burst: int = 100


@dataclass(frozen=True, slots=True)
class Trigger:
    """A kind whose changes wake a controller, and the keys they wake it for."""

    kind: type[Object]
    keys: Callable[[Any, Any], Iterable[str]]


def wake_on(kind: type[T], keys: Callable[[T], Iterable[str]] | None = None) -> Trigger:
    """Woken by every change of a kind: for the object itself, or for the keys it leads to."""

    def found(before: T | None, after: T | None) -> Iterable[str]:
        obj = after if after is not None else before
        if obj is None:
            return ()
        return keys(obj) if keys is not None else (obj.full_name,)

    return Trigger(kind, found)


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

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """What wakes it; a singleton is also woken once at the start."""

    @property
    def singleton(self) -> bool:
        """Whether it has one key only, which it is woken for at the start."""

    async def reconcile(self, key: str) -> Result:
        """Look at the world and make it so."""


class PeriodicController:
    """One that goes its rounds through the whole cluster: the clock alone wakes it, for its one key."""

    concurrency = 1
    singleton = True
    triggers: tuple[Trigger, ...] = ()


@dataclass(frozen=True, slots=True)
class ConcurrencyRange:
    """A controller's concurrency, scaled by the processor it was given."""

    least: int
    most: int

    def scale_to(self, millicores: int) -> int:
        cores = -(-max(millicores, 1) // 1000)
        scaled = self.least + int((self.most - self.least) / 59 * (cores - 1))
        return max(self.least, min(scaled, self.most))


async def run_all(work: Iterable[Awaitable[R]], at_once: int = 0) -> list[R]:
    """Try every one, then raise the failures together; never more than so many at once, if limited."""
    gate = asyncio.Semaphore(at_once) if at_once else None

    async def guarded(one: Awaitable[R]) -> R:
        if gate is None:
            return await one
        async with gate:
            return await one

    outcomes = await asyncio.gather(*map(guarded, work), return_exceptions=True)
    stopped = next(
        (o for o in outcomes if isinstance(o, BaseException) and not isinstance(o, Exception)), None
    )
    if stopped is not None:
        raise stopped
    failures = [o for o in outcomes if isinstance(o, Exception)]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("some of the work failed", failures)
    return [o for o in outcomes if not isinstance(o, BaseException)]


_IDLE: WeakSet[asyncio.Task[Any]] = WeakSet()


@contextmanager
def mark_idle() -> Iterator[None]:
    """A visit that only waits here for something to happen: at the end of a process nobody waits for it."""
    task = asyncio.current_task()
    if task is not None:
        _IDLE.add(task)
    try:
        yield
    finally:
        if task is not None:
            _IDLE.discard(task)


def is_idle(task: asyncio.Task[Any]) -> bool:
    return task in _IDLE


@contextmanager
def retry_refusals() -> Iterator[None]:
    """A refusal ends an attempt. Where nothing else would wake us, the attempt must be made again."""
    try:
        yield
    except Exception as error:
        causes = tuple(flatten_errors(error))
        if not any(isinstance(cause, Refused) for cause in causes):
            raise
        raise Retry(describe_error(error)) from error


@dataclass
class RecentKeys:
    """Keys seen lately, each until its time is over: for what must not happen twice within a while."""

    lasts: float
    _until: dict[str, float] = field(default_factory=dict)

    def seconds_left(self, key: str, now: float) -> float:
        """Seconds until the key is forgotten; 0 when it is not remembered."""
        until = self._until.get(key, 0.0)
        if until <= now:
            self._until.pop(key, None)
            return 0.0
        return until - now

    def add(self, key: str, now: float) -> None:
        if len(self._until) > 10_000:
            self._until = {k: until for k, until in self._until.items() if until > now}
        self._until[key] = now + self.lasts
