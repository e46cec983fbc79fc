"""The report of a run: a table for people, JSON for programs; the page with charts is page.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from textwrap import wrap

import msgspec

from dovetail.sim.measure import Measure, Sample
from dovetail.sim.objectives import Kept, judge
from dovetail.sim.scenario import Scenario
from dovetail.sim.shifting import ShiftTold, as_line

__all__ = ["Report", "as_document", "as_text", "report_of", "rows_of", "side_by_side"]

# A column's name is broken into lines of about this length.
HEAD = 20


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    name: str
    seed: int
    hours: float
    dollars: float
    dollars_per_hour: float
    node_hours: float
    nodes_most: int
    nodes_added: int
    nodes_removed: int
    pods_started: int
    pods_waiting: int
    wait_p50: float
    wait_p99: float
    wait_most: float
    evictions: int
    cpu_utilisation: float
    spot_share: float
    # What the cheapest thinkable fleet for the pods that ran would have cost, and what was paid beyond it.
    # Both are over the time in which it was asked; None when it was not.
    dollars_floor: float | None = None
    above_floor: float | None = None
    slo_breaches: int = 0
    objectives: tuple[Kept, ...] = ()
    shifts: tuple[ShiftTold, ...] = ()
    samples: tuple[Sample, ...] = ()


def report_of(story: Scenario, measure: Measure, shifts: Sequence[ShiftTold] = ()) -> Report:
    """Sum up a run."""
    samples = tuple(measure.samples)
    hours = samples[-1].second / 3600 if samples else 0.0
    dollars, node_hours = _integral(samples, lambda s: s.dollars), _integral(samples, lambda s: s.nodes)
    offered = _integral(samples, lambda s: s.cpu_offered)
    waits = sorted([*measure.waits, *measure.still_waiting()])
    promises = judge(story.objectives, measure.observed(), hours)
    floor = _floor(samples) if story.floor_every else None
    return Report(
        name=story.name,
        seed=story.seed,
        hours=round(hours, 4),
        dollars=round(dollars, 6),
        dollars_per_hour=round(dollars / hours, 6) if hours else 0.0,
        node_hours=round(node_hours, 4),
        nodes_most=max((s.nodes for s in samples), default=0),
        nodes_added=measure.nodes_added,
        nodes_removed=measure.nodes_removed,
        pods_started=len(measure.waits),
        pods_waiting=len(measure.still_waiting()),
        wait_p50=round(_quantile(waits, 0.5), 3),
        wait_p99=round(_quantile(waits, 0.99), 3),
        wait_most=round(waits[-1], 3) if waits else 0.0,
        evictions=measure.evictions,
        cpu_utilisation=round(_integral(samples, lambda s: s.cpu_used) / offered, 4) if offered else 0.0,
        spot_share=round(_integral(samples, lambda s: s.spot) / node_hours, 4) if node_hours else 0.0,
        dollars_floor=round(floor, 6) if floor is not None else None,
        above_floor=round(dollars / floor - 1, 4) if floor else None,
        slo_breaches=sum(not each.kept for each in promises),
        objectives=promises,
        shifts=tuple(shifts),
        samples=samples,
    )


def _floor(samples: Sequence[Sample]) -> float:
    """Dollars no fleet could have undercut. Between two answers the lower one is taken to hold."""
    asked = [sample for sample in samples if sample.floor]
    return sum(min(one.floor, two.floor) * (two.second - one.second) for one, two in pairwise(asked)) / 3600


def _integral(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """The sum over time, in hours; each sample holds until the next."""
    return sum(of(one) * (after.second - one.second) for one, after in pairwise(samples)) / 3600


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


LINES: tuple[tuple[str, str, str], ...] = (
    ("dollars", "dollars", "${:,.2f}"),
    ("dollars an hour", "dollars_per_hour", "${:,.4f}"),
    ("node hours", "node_hours", "{:,.1f}"),
    ("most nodes at once", "nodes_most", "{}"),
    ("nodes added", "nodes_added", "{}"),
    ("nodes removed", "nodes_removed", "{}"),
    ("pods started", "pods_started", "{}"),
    ("pods still waiting", "pods_waiting", "{}"),
    ("wait, median", "wait_p50", "{:.1f} s"),
    ("wait, 99th percentile", "wait_p99", "{:.1f} s"),
    ("longest wait", "wait_most", "{:.1f} s"),
    ("pods evicted", "evictions", "{}"),
    ("cpu used", "cpu_utilisation", "{:.1%}"),
    ("spot nodes", "spot_share", "{:.1%}"),
    ("cheapest thinkable", "dollars_floor", "${:,.2f}"),
    ("paid above that", "above_floor", "{:.1%}"),
    ("promises broken", "slo_breaches", "{}"),
)


def _cell(report: Report, key: str, shape: str) -> str:
    value = getattr(report, key)
    return "" if value is None else shape.format(value)


def rows_of(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    """The lines that have something to say: no floor was asked for, or no promise made, is no line."""
    skipped = set()
    if all(report.dollars_floor is None for report in reports):
        skipped |= {"dollars_floor", "above_floor"}
    if not any(report.objectives for report in reports):
        skipped.add("slo_breaches")
    return [
        (label, [_cell(report, key, shape) for report in reports])
        for label, key, shape in LINES
        if key not in skipped
    ]


def as_text(report: Report) -> str:
    """The report for a terminal."""
    head = f"{report.name}: {report.hours:g} simulated hours, seed {report.seed}\n"
    numbers = "".join(f"  {label:<22}{cell}\n" for label, (cell,) in rows_of([report]))
    promises = "".join(
        f"  {'kept' if each.kept else 'BROKEN':<8}{each.promise}: {each.measured}"
        + (f" ({each.broken} beyond it)\n" if each.broken else "\n")
        for each in report.objectives
    )
    shifts = "".join(f"  {as_line(each)}\n" for each in report.shifts)
    return head + numbers + promises + shifts


def side_by_side(reports: Sequence[Report]) -> str:
    """Several runs in one table; what varies between them stands line by line at the top."""
    heads = [wrap(report.name, HEAD, break_long_words=False, break_on_hyphens=False) for report in reports]
    width = max(18, *(len(line) + 2 for head in heads for line in head))
    lines = zip_longest(*(reversed(head) for head in heads), fillvalue="")
    rows = [f"{'':<24}" + "".join(f"{word:>{width}}" for word in line) for line in lines][::-1]
    rows += [
        f"{label:<24}" + "".join(f"{cell:>{width}}" for cell in cells) for label, cells in rows_of(reports)
    ]
    return "\n".join(rows) + "\n"


def as_document(report: Report) -> dict[str, object]:
    """The report for programs, samples included."""
    document: dict[str, object] = msgspec.to_builtins(asdict(report))
    return document
