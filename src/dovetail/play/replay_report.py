"""ReplayReport: what a recording cost, what it would have cost under other rules, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any

from dovetail.history.calibration import Calibration, Certainty, calibrate, compute_certainty
from dovetail.play.replay_meter import ReplayBill, UnplacedPods
from dovetail.play.replay_sections import RecordingSurvey
from dovetail.play.replaying import Variation

__all__ = ["ReplayReport", "ReplayedVariation", "build_report", "build_report_document", "render_report"]

Json = dict[str, Any]
AS_IT_WAS = "as it was"
NOT_TOLD = "none that can be told"
# Differences are against this one where it was played.
KARPENTER = "as karpenter"


@dataclass(frozen=True, slots=True)
class ReplayedVariation:
    """One variation: its bill for the first seed, what it cost under others, and within which bounds."""

    name: str
    variation: Variation
    bill: ReplayBill
    totals: tuple[float, ...]
    days: tuple[dict[str, float], ...] = ()
    bounds: tuple[float, float] | None = None
    certainty: Certainty = field(default_factory=Certainty)
    unplaced: tuple[UnplacedPods, ...] = ()

    @property
    def unknown_share(self) -> float:
        """The part of its node hours in spot places that the recording never used."""
        return self.bill.unknown_spot_hours / self.bill.node_hours if self.bill.node_hours else 0.0

    @property
    def dollars(self) -> float:
        """What it costs: the mean over all seeds."""
        return fmean(self.totals) if self.totals else self.bill.dollars


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """All variations beside what was."""

    was: ReplayBill
    variations: tuple[ReplayedVariation, ...]
    calibration: Calibration
    baseline: str
    seed: int
    assume: str
    unknown: tuple[str, ...] = ()

    @property
    def unplaced(self) -> bool:
        """Whether a variation leaves pods without a place."""
        return any(each.unplaced for each in self.variations)

    def find_difference(self, each: ReplayedVariation) -> float | None:
        """The share by which a variation is dearer than what it is held against; None for that itself."""
        base = next((other for other in self.variations if other.name == KARPENTER), None)
        if each is base:
            return None
        against = base.dollars if base is not None else self.was.dollars
        return each.dollars / against - 1 if against else None


def build_report(
    survey: RecordingSurvey,
    variations: Sequence[ReplayedVariation],
    baseline: str,
    seed: int,
    assume: str,
) -> ReplayReport:
    """Calibrate by the variation that has the rules that were in force, and say how sure the others are."""
    was = survey.bill
    model = next((each for each in variations if each.name == baseline), None)
    calibration = calibrate(was.sum_days(), model.days) if model is not None else Calibration(known=False)
    told = tuple(
        ReplayedVariation(
            each.name,
            each.variation,
            each.bill,
            each.totals,
            each.days,
            each.bounds,
            compute_certainty(calibration, each.totals, each.unknown_share * (survey.facts.hazard or 0.0)),
            _subtract_waiting(each.bill.unplaced, survey.in_vain),
        )
        for each in variations
    )
    return ReplayReport(
        was, told, calibration, baseline, seed, assume, tuple(_list_unknown(survey, told, assume))
    )


def _subtract_waiting(unplaced: tuple[UnplacedPods, ...], waited: Counter[str]) -> tuple[UnplacedPods, ...]:
    """Those of workloads whose pods had places in the recording."""
    return tuple(each for each in unplaced if each.pods > waited.get(each.workload, 0))


def _list_unknown(survey: RecordingSurvey, variations: Sequence[ReplayedVariation], assume: str) -> list[str]:
    told = ["how HPAs and VPAs would have reacted", "pods that came and went between two looks"]
    for each in variations:
        if each.unknown_share > 0:
            hazard = survey.facts.hazard or 0.0
            told.append(
                f"{each.unknown_share:.0%} of the node hours of {each.name} are in spot places never used "
                f"before (hazard assumed: {hazard:.1%} an hour)"
            )
    if assume == "optimistic":
        told.append("whether the cloud has all that it lists")
    elif variations:
        told.append("capacity beyond what was seen for sale")
    if survey.buffers:
        told.append("capacity buffers, which are not replayed")
    if survey.unpriced_hours:
        told.append(f"the price of {survey.unpriced_hours:,.1f} node hours, which count as nothing")
    for since, until in survey.gaps:
        told.append(
            f"what happened from {_tell(since)} to {_tell(until)}: nothing is recorded, nothing counted"
        )
    return told


def _tell(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def render_report(report: ReplayReport) -> str:
    """The table for people, and the sentences under it."""
    columns = [AS_IT_WAS, *(each.name for each in report.variations)]
    rows = list_rows(report)
    widths = [max(len(row[0]) for row in rows)]
    for number, column in enumerate(columns, 1):
        widths.append(max(len(column), *(len(row[number]) for row in rows)))
    lines = [_join(("", *columns), widths)]
    lines += [_join(row, widths) for row in rows]
    lines += list_remarks(report)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return first[0].ljust(first[1]) + "".join(f"   {cell.rjust(width)}" for cell, width in rest)


def list_rows(report: ReplayReport) -> list[tuple[str, ...]]:
    """The rows of the table, each a name and a cell for what was and for each variation."""
    was, each_of = report.was, report.variations
    against = any(each.name == KARPENTER for each in each_of)
    rows: list[tuple[str, ...]] = [
        ("dollars (list prices)", f"${was.dollars:,.2f}", *(f"${each.dollars:,.2f}" for each in each_of))
    ]
    if each_of:
        name = f"  against {KARPENTER if against else AS_IT_WAS}"
        rows.append((name, "", *(_tell_difference(report, each) for each in each_of)))
        rows.append(("  sure to within", "", *(f"±{each.certainty.within:.1%}" for each in each_of)))
    bills = (was, *(each.bill for each in each_of))
    if any(bill.estimated > 0 for bill in bills):
        rows.append(("  of it at estimated prices", *map(_tell_estimated, bills)))
    if any(each.bounds for each in each_of):
        rows.append(
            (
                "  between",
                "",
                *(
                    f"${each.bounds[0]:,.2f} and ${each.bounds[1]:,.2f}" if each.bounds else ""
                    for each in each_of
                ),
            )
        )
    rows.append(("node hours", *(f"{bill.node_hours:,.0f}" for bill in bills)))
    rows.append(("pods evicted", *(f"{bill.evictions:,}" for bill in bills)))
    rows.append(("pods that waited over 60 s", *(f"{bill.pods_waited:,}" for bill in bills)))
    if any(bill.job_hours_repeated >= 0.005 for bill in bills):
        rows.append(("job hours repeated", *(f"{bill.job_hours_repeated:,.2f}" for bill in bills)))
    if report.unplaced:
        rows.append(
            ("pods without a place", "0", *(f"{sum(p.pods for p in each.unplaced):,}" for each in each_of))
        )
    return rows


def _tell_estimated(bill: ReplayBill) -> str:
    return f"{bill.estimated / bill.dollars:.0%}" if bill.dollars else ""


def _tell_difference(report: ReplayReport, each: ReplayedVariation) -> str:
    difference = report.find_difference(each)
    if difference is None:
        return ""
    if not each.certainty.can_tell(difference):
        return NOT_TOLD
    return f"{'−' if difference < 0 else '+'}{abs(difference):.1%}"


def list_remarks(report: ReplayReport) -> list[str]:
    """The sentences under the table."""
    lines = []
    if report.variations and not report.calibration.known:
        lines.append(
            f"calibration: none, for there is nothing that was paid to hold {report.baseline} against; "
            "no difference is claimed"
        )
    elif report.variations:
        error = abs(report.calibration.error)
        lines.append(
            f"calibration: the model's own bill for what was done ({report.baseline}) differs from the "
            f"recorded one by {error:.1%}, by {report.calibration.largest:.1%} at most on a day; differences "
            "below what is sure are not claimed"
        )
    if report.variations:
        lines.append(f"not known: {'; '.join(report.unknown)}")
    for each in report.variations:
        for pods in each.unplaced:
            lines.append(
                f"without a place under {each.name}: {pods.workload}, {pods.pods:,} pod"
                f"{'' if pods.pods == 1 else 's'} for {pods.hours:,.1f} hours together"
            )
    return lines


def build_report_document(report: ReplayReport) -> Json:
    """The report for programs."""
    was = report.was
    return {
        "from": _tell(was.since),
        "to": _tell(was.until),
        "seed": report.seed,
        "assume": report.assume,
        "asItWas": _build_bill(was),
        "baseline": report.baseline,
        "calibration": {
            "known": report.calibration.known,
            "error": report.calibration.error,
            "largestOfADay": report.calibration.largest,
            "days": dict(report.calibration.days),
        },
        "variations": [
            {
                "name": each.name,
                **_build_bill(each.bill),
                "dollars": each.dollars,
                "dollarsBySeed": list(each.totals),
                "difference": report.find_difference(each),
                "canBeTold": each.certainty.can_tell(report.find_difference(each) or 0.0),
                "sureToWithin": each.certainty.within,
                "bounds": list(each.bounds) if each.bounds else None,
                "unknownSpotShare": each.unknown_share,
                "withoutPlace": [
                    {"workload": pods.workload, "pods": pods.pods, "hours": pods.hours}
                    for pods in each.unplaced
                ],
            }
            for each in report.variations
        ],
        "notKnown": list(report.unknown),
    }


def _build_bill(bill: ReplayBill) -> Json:
    return {
        "dollars": bill.dollars,
        "dollarsAtEstimatedPrices": bill.estimated,
        "nodeHours": bill.node_hours,
        "podsEvicted": bill.evictions,
        "podsWaited": bill.pods_waited,
        "jobHoursRepeated": bill.job_hours_repeated,
        "hours": [
            {"began": _tell(hour.began), "dollars": hour.dollars, "nodeHours": hour.node_hours}
            for hour in bill.hours
        ],
    }
