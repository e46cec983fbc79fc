"""How long nodes really took to boot, day by day, beside what a model that learns as it goes assumed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from statistics import median

from msgspec.structs import replace

from dovetail.api.meta import Record
from dovetail.disruption.situation import Situation
from dovetail.history.supply import UNKNOWN_BOOT, BootTimes

__all__ = ["BootDay", "BootDays", "add_boots"]

SLOWER, LEAST_SLOWER = 2.0, 60.0
"""Boot times are assumed wrongly that differ by this factor, and by so many seconds at least."""


class BootDay(Record, frozen=True):
    """The nodes that became ready on a day: how many, their median from launch to ready, and what the model
    took for it before the first of them. Seconds."""

    day: str
    nodes: int
    real: float
    assumed: float

    @property
    def sentence(self) -> str:
        """What the model assumed wrongly; empty where it was right."""
        least, most = sorted((self.real, self.assumed))
        if most - least < LEAST_SLOWER or most < SLOWER * least:
            return ""
        return (
            f"boot time: nodes took {_tell(self.real)} from launch to ready on {self.day}, and the model "
            f"assumed {_tell(self.assumed)}"
        )


def add_boots(some: Iterable[BootDay], others: Iterable[BootDay]) -> tuple[BootDay, ...]:
    """Days in their order; of one that was read in two parts the part with more nodes speaks for both."""
    days = {each.day: each for each in some}
    for each in others:
        old = days.get(each.day)
        if old is not None:
            larger = each if each.nodes > old.nodes else old
            each = replace(larger, nodes=old.nodes + each.nodes)
        days[each.day] = each
    return tuple(days[day] for day in sorted(days))


class BootDays:
    """Reads looks in their order, as a twin does; `begin` wherever a twin begins, and knows nothing."""

    def __init__(self) -> None:
        self._times = BootTimes()
        self._days: dict[str, list[float]] = {}
        self._assumed: dict[str, float] = {}

    def begin(self, situation: Situation) -> None:
        """A model begins: all it knows is how long the nodes took that are there."""
        self._times = BootTimes()
        self._times.read_look(situation)

    def read_look(self, at: datetime, situation: Situation) -> None:
        """Take in the nodes that have become ready."""
        before = {where: len(found) for where, found in self._times.known.items()}
        assumed = self._find_assumed()
        self._times.read_look(situation)
        new = [
            each.registers + each.ready
            for where, found in self._times.known.items()
            for each in found[before.get(where, 0) :]
        ]
        if new:
            day = f"{at:%Y-%m-%d}"
            self._assumed.setdefault(day, assumed)
            self._days.setdefault(day, []).extend(new)

    def list_days(self) -> tuple[BootDay, ...]:
        """Every day on which nodes became ready."""
        return tuple(
            BootDay(day=day, nodes=len(found), real=median(found), assumed=self._assumed[day])
            for day, found in sorted(self._days.items())
        )

    def _find_assumed(self) -> float:
        known = [each.registers + each.ready for found in self._times.known.values() for each in found]
        return median(known) if known else sum(UNKNOWN_BOOT)


def _tell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
