"""One request to the simulated AWS, and the table in which every service registers its operations.

A service is a module: it keeps its state in a class that is made once for an account and a region, and
registers a handler for each operation. Handlers answer in boto3's shape and refuse by `ask.refuse`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from dovetail.aws import AwsError, aws_error
from dovetail.ports import Clock

__all__ = ["OPERATIONS", "AwsRequest", "AwsWorld", "Handler", "Json", "ServiceState", "operation"]

Json = dict[str, Any]


class ServiceState:
    """What one service remembers, for one account in one region (`""` where a service is global)."""

    def __init__(self, world: AwsWorld, account: str, region: str) -> None:
        self.world, self.account, self.region = world, account, region
        self.clock, self.rng = world.clock, world.rng
        self.init_state()

    def init_state(self) -> None:
        """Set up what it remembers."""


S = TypeVar("S", bound=ServiceState)


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """A request: who asks where for what."""

    world: AwsWorld
    account: str
    region: str
    service: str
    operation: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter; nothing that was given counts as not given."""
        value = self.given.get(name)
        return default if value is None else value

    def get_required(self, name: str) -> Any:
        value = self.given.get(name)
        if value is None:
            raise self.refuse("MissingParameter", f"The request must contain the parameter {name}")
        return value

    def regional_state(self, subject: type[S]) -> S:
        """A regional service's memory."""
        return self.world.get_state(subject, self.account, self.region)

    def global_state(self, subject: type[S]) -> S:
        """A global service's memory, of the account."""
        return self.world.get_state(subject, self.account, "")

    def refuse(self, code: str, message: str, status: int = 400) -> AwsError:
        return aws_error(f"{self.service}:{self.operation}", code, message, status)


Handler = Callable[[AwsRequest], Json | Awaitable[Json]]
OPERATIONS: dict[tuple[str, str], Handler] = {}


def operation(service: str, *names: str) -> Callable[[Handler], Handler]:
    """Register the function as the answer to these operations."""

    def register(handler: Handler) -> Handler:
        for name in names:
            OPERATIONS[service, name] = handler
        return handler

    return register


class AwsWorld:
    """One world of accounts and regions."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock, self.rng = clock, Random(seed)
        # What the services of this world tell one another and whoever watches: see `tell`.
        self._listeners: dict[str, list[Callable[[Any], None]]] = {}
        self._subjects: dict[tuple[type[Any], str, str], Any] = {}
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._moment: datetime | None = None
        self._alarm: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def get_state(self, kind: type[S], account: str, region: str) -> S:
        """A service's memory; made when it is first asked for."""
        found = self._subjects.get((kind, account, region))
        if found is None:
            found = self._subjects[kind, account, region] = kind(self, account, region)
        return found

    def listen(self, about: str, listener: Callable[[Any], None]) -> None:
        self._listeners.setdefault(about, []).append(listener)

    def notify_listeners(self, about: str, what: Any) -> None:
        for listener in self._listeners.get(about, ()):
            listener(what)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Act when that much time has passed on the clock, even if nobody asks anything meanwhile."""
        start = self._moment or self.clock.now()
        heapq.heappush(self._due, (start + timedelta(seconds=seconds), next(self._order), act))
        self._set_alarm()

    def catch_up(self) -> None:
        """Do what is due, and what follows from it, each at its time: a clock may have jumped far."""
        while self._due and self._due[0][0] <= self.clock.now():
            self._moment, _, act = heapq.heappop(self._due)
            try:
                act()
            finally:
                self._moment = None

    def random_hex(self, count: int) -> str:
        """That many random hexadecimal digits."""
        return f"{self.rng.getrandbits(count * 4):0{count}x}"

    def random_uuid(self) -> str:
        digits = self.random_hex(32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _set_alarm(self) -> None:
        """A timer of the loop, where there is one: a clock moved by hand is looked at with every request."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        wait = max(0.0, (self._due[0][0] - self.clock.now()).total_seconds())
        # A world may outlive a loop; an alarm of the one before never rings.
        if self._alarm is not None and self._alarm[0] is loop:
            if self._alarm[1].when() <= loop.time() + wait:
                return
            self._alarm[1].cancel()
        self._alarm = (loop, loop.call_later(wait, self._on_alarm))

    def _on_alarm(self) -> None:
        self._alarm = None
        self.catch_up()
        if self._due:
            self._set_alarm()
