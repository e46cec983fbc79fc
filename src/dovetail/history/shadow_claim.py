"""What may be said of a shadow's twin: nothing without a calibration, and nothing below its certainty.

A second twin does what the other autoscaler does. How far its bill is from what was paid, day by day, is how
sure the bill of the first can be; `history/calibration` has the rule, as for a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import fsum

from msgspec.structs import replace

from dovetail.api.meta import Record
from dovetail.history.boot_days import BootDay, add_boots
from dovetail.history.calibration import Calibration, Certainty, calibrate, compute_certainty
from dovetail.history.paid import PaidBill

__all__ = [
    "LEAST_HOURS",
    "PromiseCounts",
    "ShadowClaim",
    "TwinBill",
    "TwinHour",
    "build_claim",
    "find_wrong_assumptions",
]

LEAST_HOURS = 6.0
"""Hours watched below which nothing is said about money."""
WORST, WORST_DAYS, OF_DAYS = 0.05, 3, 7
"""The model does not describe a cluster whose calibration is worse than this on so many of the last days."""


class PromiseCounts(Record, frozen=True):
    """What pods noticed: those that waited over a minute for a place, those that were evicted, and how often
    more of them were than a PodDisruptionBudget allowed."""

    waited: int = 0
    evictions: int = 0
    budgets_broken: int = 0

    def add(self, other: PromiseCounts) -> PromiseCounts:
        """Both together."""
        return PromiseCounts(
            waited=self.waited + other.waited,
            evictions=self.evictions + other.evictions,
            budgets_broken=self.budgets_broken + other.budgets_broken,
        )


class TwinHour(Record, frozen=True):
    """One hour of a twin, beside what was really paid in it."""

    began: datetime
    dollars: float = 0.0
    paid: float = 0.0


class TwinBill(Record, frozen=True):
    """What a twin of the cluster came to, beside what was really paid in the same time.

    `unknown` is the share of it that hangs on reclaims of spot capacity that nobody has used before;
    `estimated` of the dollars are at estimated prices.
    """

    until: datetime
    dollars: float
    paid: float
    estimated: float = 0.0
    node_hours: float = 0.0
    promises: PromiseCounts = PromiseCounts()
    hours: tuple[TwinHour, ...] = ()
    unplaced: int = 0
    unknown: float = 0.0
    pools: Mapping[str, float] = {}
    paid_pools: Mapping[str, float] = {}
    boots: tuple[BootDay, ...] = ()

    def sum_days(self) -> dict[str, tuple[float, float]]:
        """The dollars of each day, UTC, by its date: the twin's, and what was paid."""
        days: dict[str, tuple[float, float]] = {}
        for hour in self.hours:
            day = f"{hour.began:%Y-%m-%d}"
            twin, paid = days.get(day, (0.0, 0.0))
            days[day] = twin + hour.dollars, paid + hour.paid
        return days

    @property
    def share(self) -> float:
        """How much more than reality it is, as a share of reality."""
        return (self.dollars - self.paid) / self.paid if self.paid else 0.0

    def add(self, after: TwinBill) -> TwinBill:
        """This time and another one together."""
        hours = {hour.began: hour for hour in self.hours}
        for hour in after.hours:
            old = hours.get(hour.began, TwinHour(began=hour.began))
            hours[hour.began] = TwinHour(
                began=hour.began, dollars=old.dollars + hour.dollars, paid=old.paid + hour.paid
            )
        return TwinBill(
            until=max(self.until, after.until),
            dollars=fsum((self.dollars, after.dollars)),
            paid=fsum((self.paid, after.paid)),
            estimated=self.estimated + after.estimated,
            node_hours=fsum((self.node_hours, after.node_hours)),
            promises=self.promises.add(after.promises),
            hours=tuple(hours[began] for began in sorted(hours)),
            unplaced=self.unplaced + after.unplaced,
            unknown=max(self.unknown, after.unknown),
            pools=_add_up(self.pools, after.pools),
            paid_pools=_add_up(self.paid_pools, after.paid_pools),
            boots=add_boots(self.boots, after.boots),
        )


class ShadowClaim(Record, frozen=True):
    """What may be said of the twin: a share, how sure it is, or a sentence for why nothing is.

    `assumptions` are those of the model that the cluster proves wrong, whatever the bill.
    """

    share: float | None = None
    certainty: float | None = None
    calibration: float | None = None
    sentence: str = ""
    assumptions: tuple[str, ...] = ()


def build_claim(paid: PaidBill, twin: TwinBill | None, calibration: TwinBill | None) -> ShadowClaim:
    """What may be said: nothing without a calibration, and no difference that is smaller than its error."""
    hours = paid.watched_seconds / 3600
    if hours < LEAST_HOURS:
        return ShadowClaim(
            sentence=f"{_tell_hours(hours)} are too short to say anything about money; at least 6 hours"
        )
    if twin is None or calibration is None:
        return ShadowClaim(sentence="the twins have not caught up yet")
    days = calibration.sum_days()
    found = calibrate(
        {day: really for day, (_, really) in days.items()}, [{day: said for day, (said, _) in days.items()}]
    )
    certainty = compute_certainty(found, (twin.dollars,), twin.unknown)
    claim = ShadowClaim(
        certainty=certainty.within,
        calibration=found.largest,
        assumptions=tuple(find_wrong_assumptions(calibration)),
    )
    bad = _list_bad_days(found)
    if bad:
        return replace(claim, sentence=_describe_misfit(found, bad, calibration))
    return _claim_difference(claim, twin, certainty)


def _claim_difference(claim: ShadowClaim, twin: TwinBill, certainty: Certainty) -> ShadowClaim:
    if not certainty.can_tell(twin.share):
        return replace(claim, sentence="no difference that can be told")
    return replace(claim, share=twin.share)


def _list_bad_days(found: Calibration) -> list[str]:
    """The days of the last seven on which the model fails, where those are too many to claim anything."""
    last = sorted(found.days)[-OF_DAYS:]
    bad = [day for day in last if abs(found.days[day]) > WORST]
    return bad if len(bad) >= min(WORST_DAYS, len(last)) else []


def _describe_misfit(found: Calibration, bad: Iterable[str], calibration: TwinBill) -> str:
    days = ", ".join(f"{day} ({abs(found.days[day]):.1%})" for day in bad)
    return (
        "the model does not describe this cluster well enough yet: its own bill for what was done is wrong "
        f"by more than 5 % on {days}{_find_worst_hours(calibration)}{_find_worst_pools(calibration)}"
    )


def _find_worst_hours(calibration: TwinBill) -> str:
    """The hours in which the calibration fails most, as words."""
    worst = sorted(calibration.hours, key=lambda each: -abs(each.dollars - each.paid))[:3]
    told = ", ".join(f"{each.began:%Y-%m-%d %H}:00" for each in worst if each.dollars != each.paid)
    return f", most of all at {told}" if told else ""


def _find_worst_pools(calibration: TwinBill) -> str:
    """The NodePools in which it fails most, as words."""
    real, model = calibration.paid_pools, calibration.pools
    errors = {name: model.get(name, 0.0) - real.get(name, 0.0) for name in real.keys() | model.keys()}
    worst = sorted(errors, key=lambda name: (-abs(errors[name]), name))[:3]
    told = ", ".join(f"{name} ({errors[name]:+,.2f} $)" for name in worst if abs(errors[name]) >= 0.005)
    return f", in {told}" if told else ""


def find_wrong_assumptions(calibration: TwinBill) -> list[str]:
    """What the model takes for granted and the cluster does otherwise, each as a sentence."""
    return [said for each in calibration.boots if (said := each.sentence)]


def _add_up(some: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {name: some.get(name, 0.0) + others.get(name, 0.0) for name in sorted(some.keys() | others.keys())}


def _tell_hours(hours: float) -> str:
    return f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:.1f} hours"
