"""How a scenario is written, and where it is found.

A scenario is a function in a file `bench_<room>.py` of this folder, marked with `@scenario("name")`, that
yields figures. Files are found by their names; nothing else needs to be told of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. A budget is the most it may be, or the least when `more_is_better`."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    more_is_better: bool = False

    @property
    def within(self) -> bool | None:
        if self.budget is None:
            return None
        return self.value >= self.budget if self.more_is_better else self.value <= self.budget


Scenario = Callable[[], Iterable[Figure]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    """Add a function to the scenarios under this name."""

    def add(function: Scenario) -> Scenario:
        SCENARIOS[name] = function
        return function

    return add


def best_of(times: int, work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The least time of several runs, in seconds: what the work takes when nothing disturbs it.

    Processor time unless another clock is given, since machines that measure often do other things too.
    """
    best = float("inf")
    for _ in range(times):
        gc.collect()
        begun = clock()
        work()
        best = min(best, clock() - begun)
    return best


def calibration() -> float:
    """Seconds that a fixed piece of plain Python takes here, to compare machines by."""
    return best_of(5, _calibrate)


def _calibrate() -> int:
    table: dict[str, int] = {}
    for number in range(100_000):
        key = f"key-{number % 1000}"
        table[key] = table.get(key, 0) + number
    return sum(table.values())
