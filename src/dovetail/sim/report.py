"""The report of a run: a table for people, JSON for programs, and one HTML page with charts."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import msgspec

from dovetail.sim.measure import Measure, Sample
from dovetail.sim.objectives import Kept, judge
from dovetail.sim.scenario import Scenario

__all__ = ["Report", "as_document", "as_html", "as_text", "report_of", "side_by_side"]

WIDTH, HEIGHT, MARGIN = 720, 160, 34


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
    samples: tuple[Sample, ...] = ()


def report_of(story: Scenario, measure: Measure) -> Report:
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


def _told(reports: Sequence[Report]) -> list[tuple[str, str, str]]:
    """The lines that have something to say: no floor was asked for, or no promise made, is no line."""
    skipped = set()
    if all(report.dollars_floor is None for report in reports):
        skipped |= {"dollars_floor", "above_floor"}
    if not any(report.objectives for report in reports):
        skipped.add("slo_breaches")
    return [line for line in LINES if line[1] not in skipped]


def as_text(report: Report) -> str:
    """The report for a terminal."""
    head = f"{report.name}: {report.hours:g} simulated hours, seed {report.seed}\n"
    numbers = "".join(f"  {label:<22}{_cell(report, key, shape)}\n" for label, key, shape in _told([report]))
    return (
        head
        + numbers
        + "".join(
            f"  {'kept' if each.kept else 'BROKEN':<8}{each.promise}: {each.measured}"
            + (f" ({each.broken} beyond it)\n" if each.broken else "\n")
            for each in report.objectives
        )
    )


def side_by_side(reports: Sequence[Report]) -> str:
    """Several runs in one table."""
    width = max(18, *(len(report.name) + 2 for report in reports))
    rows = [f"{'':<24}" + "".join(f"{report.name:>{width}}" for report in reports)]
    for label, key, shape in _told(reports):
        cells = "".join(f"{_cell(report, key, shape):>{width}}" for report in reports)
        rows.append(f"{label:<24}{cells}")
    return "\n".join(rows) + "\n"


def as_document(report: Report) -> dict[str, object]:
    """The report for programs, samples included."""
    document: dict[str, object] = msgspec.to_builtins(asdict(report))
    return document


def as_html(reports: Sequence[Report]) -> str:
    """One page that needs nothing else: numbers and charts."""
    charts = "".join(
        _chart(title, [(r.name, _points(r.samples, of)) for r in reports]) for title, of in CHARTS
    )
    if any(report.dollars_floor is not None for report in reports):
        floors = [(r.name, _points([s for s in r.samples if s.floor], lambda s: s.floor)) for r in reports]
        charts += _chart("dollars an hour of the cheapest thinkable fleet", floors)
    numbers = html.escape(side_by_side(reports) if len(reports) > 1 else as_text(reports[0]))
    title = html.escape(" and ".join(report.name for report in reports))
    return PAGE.format(title=title, numbers=numbers, charts=charts)


def _points(samples: Sequence[Sample], of: Callable[[Sample], float]) -> list[tuple[float, float]]:
    return [(sample.second / 3600, of(sample)) for sample in samples]


CHARTS: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("dollars an hour", lambda s: s.dollars),
    ("nodes", lambda s: float(s.nodes)),
    ("pods running", lambda s: float(s.running)),
    ("pods waiting", lambda s: float(s.pending)),
    ("cpu used, % of what nodes offer", lambda s: 100 * s.cpu_used / s.cpu_offered if s.cpu_offered else 0.0),
)
COLOURS = ("#2563eb", "#d97706", "#059669", "#be185d")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2rem auto; color: #1f2937 }}
pre {{ background: #f3f4f6; padding: 1rem; border-radius: 6px; overflow-x: auto }}
svg {{ width: 100%; height: auto }} text {{ font: 11px system-ui, sans-serif; fill: #6b7280 }}
h2 {{ font-size: 1rem; margin: 1.5rem 0 .3rem }}
</style></head><body><h1>{title}</h1><pre>{numbers}</pre>{charts}</body></html>
"""


def _chart(title: str, lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> str:
    last = max((x for _, points in lines for x, _ in points), default=1.0) or 1.0
    most = max((y for _, points in lines for _, y in points), default=1.0) or 1.0
    drawn = []
    for number, (name, points) in enumerate(lines):
        path = " ".join(
            f"{MARGIN + x / last * (WIDTH - MARGIN):.1f},{HEIGHT - 18 - y / most * (HEIGHT - 30):.1f}"
            for x, y in _thinned(points)
        )
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{path}"/>')
        if len(lines) > 1:
            place = f'x="{MARGIN + 6 + number * 160}" y="12"'
            drawn.append(f'<text {place} style="fill:{colour}">{html.escape(name)}</text>')
    axes = (
        f'<text x="0" y="22">{most:.3g}</text><text x="0" y="{HEIGHT - 18}">0</text>'
        f'<text x="{WIDTH - 40}" y="{HEIGHT - 4}">{last:g} h</text>'
        f'<line x1="{MARGIN}" y1="{HEIGHT - 18}" x2="{WIDTH}" y2="{HEIGHT - 18}" stroke="#d1d5db"/>'
    )
    return f'<h2>{title}</h2><svg viewBox="0 0 {WIDTH} {HEIGHT}">{axes}{"".join(drawn)}</svg>'


def _thinned(points: Sequence[tuple[float, float]], most: int = 700) -> Sequence[tuple[float, float]]:
    """A picture is some hundred points wide; more only make the file larger."""
    step = max(1, len(points) // most)
    return points[::step]
