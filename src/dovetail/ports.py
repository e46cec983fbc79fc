"""The shapes controllers need from the outside: clock, Kubernetes, compute, recorder.

Ports point inward: this file says what is needed, and the runtime, the providers and the simulator
fit themselves to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import ParamSpec, Protocol, TypeVar

from dovetail.api.meta import Object

__all__ = ["Clock", "Compute", "Kube", "Recorder"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Object)


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

    def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Run the work somewhere and give back its result."""


class Kube(Protocol):
    """What controllers ask of a Kubernetes. Failures come as errors.py names them, never as HTTP codes."""

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """Read one object; Gone when there is none."""

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Read all objects of a kind, page by page."""

    async def create(self, obj: T) -> T:
        """Store a new object; AlreadyExists when the name is taken."""

    async def patch(self, before: T, after: T, *, status: bool = False, guarded: bool = False) -> T:
        """Write what differs between the two and nothing else.

        `status` writes the status part. `guarded` fails with Conflict if anyone wrote meanwhile.
        """

    async def delete(self, obj: Object, *, grace: int | None = None, guarded: bool = False) -> None:
        """Ask for an object's deletion; `guarded` spares a namesake that took its place."""

    async def evict(self, obj: Object, *, grace: int | None = None) -> None:
        """Ask for a pod's eviction; Throttled when a disruption budget says not now."""


class Recorder(Protocol):
    """Tells people what happened to an object, once."""

    def event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        """Publish an event unless the same one went out within the window, in seconds."""
