"""How sure a replay is: the model's own bill for what was done, held against what was paid.

The error of a day is how far the model is off when it replays the rules that were in force. No difference
below the largest of them, with what chance adds, is claimed; and none at all where nothing was paid, or where
the rules that were in force were not replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from dovetail.api.meta import Record

__all__ = ["Calibration", "Certainty", "calibrate", "compute_certainty"]

# A day of which less was paid than this share of the mean day says nothing about days.
LEAST_OF_A_DAY = 0.1
# With this margin 99 of 100 trials against clusters that were really run the other way were as sure as was
# said. That the model agrees with one recording does not make it surer.
LEAST_ERROR = 0.015
# A model that was never held against anything may be off by all there is.
ALL_OF_IT = 1.0


class Calibration(Record, frozen=True):
    """How far the model is off, as a share of what was paid: in all, at most on a day, and day by day.

    Where there is nothing to hold it against, that is not known.
    """

    error: float = 0.0
    largest: float = 0.0
    days: Mapping[str, float] = {}
    known: bool = True


class Certainty(Record, frozen=True):
    """A replayed sum is sure to within this share: the model's error, chance, and what is not known."""

    error: float = 0.0
    spread: float = 0.0
    unknown: float = 0.0

    @property
    def within(self) -> float:
        """All of it together."""
        return self.error + self.spread + self.unknown

    def can_tell(self, difference: float) -> bool:
        """Whether a difference of this share is more than what is not certain."""
        return abs(difference) > self.within


def calibrate(paid: Mapping[str, float], modelled: Sequence[Mapping[str, float]]) -> Calibration:
    """The dollars paid on each day, against those of the model under the same rules, once per seed."""
    total = fsum(paid.values())
    if not modelled or total <= 0:
        return Calibration(known=False)
    mean = {day: fsum(each.get(day, 0.0) for each in modelled) / len(modelled) for day in paid}
    least = LEAST_OF_A_DAY * total / len(paid)
    days = {day: mean[day] / dollars - 1 for day, dollars in sorted(paid.items()) if dollars > least}
    error = fsum(mean.values()) / total - 1
    return Calibration(
        error=error, largest=max((abs(each) for each in days.values()), default=0.0), days=days
    )


def compute_certainty(calibration: Calibration, totals: Sequence[float], unknown: float = 0.0) -> Certainty:
    """How sure a variation is, by its dollars under several seeds and what reclaims nobody knows may cost.

    Its error is never taken for less than what trials of the model itself have shown.
    What chance does is the span of all seeds: a world that is really run is one more draw of the same kind.
    """
    mean = fsum(totals) / len(totals) if totals else 0.0
    spread = (max(totals) - min(totals)) / mean if mean > 0 else 0.0
    error = max(calibration.largest, LEAST_ERROR if calibration.known else ALL_OF_IT)
    return Certainty(error=error, spread=spread, unknown=unknown)
