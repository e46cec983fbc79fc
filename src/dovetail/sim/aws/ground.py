"""What all accounts and regions of the simulated AWS stand on: one clock, one chance, things that are due."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.ports import Clock

if TYPE_CHECKING:
    from dovetail.sim.aws.asking import Subject

__all__ = ["Ground"]

S = TypeVar("S", bound="Subject")


class Ground:
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

    def subject(self, kind: type[S], account: str, region: str) -> S:
        """A service's memory; made when it is first asked for."""
        found = self._subjects.get((kind, account, region))
        if found is None:
            found = self._subjects[kind, account, region] = kind(self, account, region)
        return found

    def existing(self, kind: type[S]) -> list[S]:
        """A service's memories in every account and region that was used."""
        return [found for (made, _, _), found in self._subjects.items() if made is kind]

    def listen(self, about: str, listener: Callable[[Any], None]) -> None:
        self._listeners.setdefault(about, []).append(listener)

    def tell(self, about: str, what: Any) -> None:
        for listener in self._listeners.get(about, ()):
            listener(what)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
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

    def hexes(self, count: int) -> str:
        """That many random hexadecimal digits."""
        return f"{self.rng.getrandbits(count * 4):0{count}x}"

    def uuid(self) -> str:
        digits = self.hexes(32)
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
        self._alarm = (loop, loop.call_later(wait, self._ring))

    def _ring(self) -> None:
        self._alarm = None
        self.catch_up()
        if self._due:
            self._set_alarm()
