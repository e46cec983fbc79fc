"""The report as one HTML page that needs nothing else, in light and in dark."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil, floor, log10

from dovetail.sim.report import RunReport, build_rows
from dovetail.sim.run_recorder import Sample

__all__ = ["COLOURS", "COUNT", "PAGE", "ChartLine", "draw_chart", "draw_legend", "render_page"]

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 170
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 22
COUNT = "{:.0f}"  # the shape of what has no halves
CLOCK, MARKS = (1, 2, 3, 5, 6, 10, 12, 15, 20, 24), 8
FINE = 660  # a picture is some hundred points wide; more only make the file larger


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart: its name, hours and values; dashed if it is only there to measure by."""

    name: str
    points: Points
    colour: int = 0
    dashed: bool = False


def draw_chart(title: str, lines: Sequence[ChartLine], shape: str = "{:g}") -> str:
    """A titled chart; one that never leaves zero is a sentence instead of an empty frame."""
    most = max((y for line in lines for _, y in line.points), default=0.0)
    head = f"<h2>{html.escape(title)}</h2>"
    if most <= 0:
        return f'{head}<p class="none">None at any time.</p>'
    hours = max((x for line in lines for x, _ in line.points), default=0.0) or 1.0
    ticks = _list_ticks(most, 1.0 if shape == COUNT else 0.0)
    drawn = "".join(_draw_line(line, hours, ticks[-1]) for line in lines)
    label = html.escape(f"{title}, over {hours:g} hours")
    return (
        f'{head}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{_draw_values(ticks, shape)}{_draw_hours(hours)}{drawn}</svg>"
    )


def draw_legend(lines: Sequence[ChartLine]) -> str:
    """Which colour is which run; nothing where there is only one."""
    if len(lines) < 2:
        return ""
    keys = "".join(f'<span><i class="c{line.colour}"></i>{html.escape(line.name)}</span>' for line in lines)
    return f'<p class="legend">{keys}</p>'


def _draw_values(ticks: Sequence[float], shape: str) -> str:
    """Horizontal lines at round values, each with its number."""
    drawn = []
    for at in ticks:
        y = _place_y(at, ticks[-1])
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y}" dy=".35em" text-anchor="end">{shape.format(at)}</text>')
    return "".join(drawn)


def _draw_hours(hours: float) -> str:
    """Round moments under the chart, in minutes where it is short."""
    scale, unit = (60.0, "min") if hours <= 2 else (1.0, "h")
    last = hours * scale
    # As a clock is divided; what is longer than some days, by days.
    step = next((each for each in CLOCK if last / each <= MARKS), 24 * ceil(last / 24 / MARKS))
    return "".join(
        f'<text x="{_place_x(at / scale, hours)}" y="{HEIGHT - 6}" text-anchor="{_choose_anchor(at, last)}">'
        f"{at} {unit}</text>"
        for at in range(0, int(last) + 1, step)
    )


def _choose_anchor(at: float, last: float) -> str:
    return "end" if at >= 0.97 * last else "middle" if at else "start"


def _draw_line(line: ChartLine, hours: float, top: float) -> str:
    places = [
        f"{_place_x(x, hours)},{_place_y(y, top)}" for x, y in _add_steps(_thin_points(line.points, hours))
    ]
    dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
    return f'<polyline class="c{line.colour}"{dashes} points="{" ".join(places)}"/>'


def _place_x(at: float, hours: float) -> str:
    return f"{LEFT + at / hours * (WIDTH - LEFT - RIGHT):.1f}"


def _place_y(value: float, top: float) -> str:
    return f"{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"


def _list_ticks(most: float, least: float) -> list[float]:
    """Zero and round steps of 1, 2 or 5, none below the least, up to the first at or above the most."""
    rough = most / 4
    power = 10.0 ** floor(log10(rough))
    step = max(least, power * next(each for each in (1, 2, 5, 10) if each * power >= rough * 0.999))
    return [round(step * i, 10) for i in range(ceil(most / step * 0.999) + 1)]


def _add_steps(points: Points) -> list[tuple[float, float]]:
    """Each value holds until the next, as it does in the sums."""
    out = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        if y != before:
            out.append((x, before))
        out.append((x, y))
    return out


def _thin_points(points: Points, hours: float) -> list[tuple[float, float]]:
    """One point for each dot of the picture, and it is the highest: a peak must not fall between two."""
    if len(points) <= FINE:
        return list(points)
    dots = groupby(points, key=lambda point: int(point[0] / hours * FINE))
    return [max(group, key=lambda point: point[1]) for _, group in dots]


CHARTS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("Dollars an hour", "${:g}", lambda s: s.dollars),
    ("Nodes", COUNT, lambda s: float(s.nodes)),
    ("Pods running", COUNT, lambda s: float(s.running)),
    ("Pods pending", COUNT, lambda s: float(s.pending)),
    ("Cpu used, of what nodes offer", "{:g}%", lambda s: _compute_percent(s.cpu_used, s.cpu_offered)),
)
COLOURS = 6
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --ink: #1f2937; --soft: #6b7280; --grid: #e5e7eb; --card: #f6f7f9;
  --page: #fff; --c0: #2563eb; --c1: #d97706; --c2: #059669; --c3: #be185d; --c4: #7c3aed; --c5: #0e7490 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e5e7eb; --soft: #9ca3af; --grid: #2b3442;
  --card: #1a212c; --page: #10151d; --c0: #60a5fa; --c1: #fbbf24; --c2: #34d399; --c3: #f472b6;
  --c4: #a78bfa; --c5: #22d3ee }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 780px; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page) }}
h1 {{ font-size: 1.5rem; margin: 0 }} h2 {{ font-size: 1rem; margin: 1.6rem 0 .3rem }}
.about, .none {{ color: var(--soft); margin: .1rem 0 1rem }}
.scroll {{ overflow-x: auto; background: var(--card); border-radius: 8px; padding: .6rem 1rem }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100% }}
th, td {{ padding: .15rem .8rem .15rem 0; text-align: right; font-weight: 400 }}
th:first-child {{ text-align: left; color: var(--soft) }} thead th {{ font-weight: 600 }}
table.alone {{ width: auto }} table.alone td {{ padding-left: 2.5rem }}
ul.promises {{ list-style: none; padding: 0 }} .kept {{ color: var(--c2) }} .broken {{ color: var(--c3) }}
.legend span {{ margin-right: 1.2rem; white-space: nowrap }}
.legend i {{ display: inline-block; width: 1.1rem; height: 3px; margin-right: .4rem; vertical-align: middle }}
svg {{ width: 100%; height: auto; display: block }}
text {{ font: 11px system-ui, sans-serif; fill: var(--soft) }}
polyline {{ fill: none; stroke-width: 1.6; stroke-linejoin: round }} .grid {{ stroke: var(--grid) }}
{colours}
</style></head><body><h1>{title}</h1><p class="about">{about}</p>
<div class="scroll">{numbers}</div>{promises}{legend}{charts}</body></html>
"""


def render_page(reports: Sequence[RunReport]) -> str:
    """Numbers, promises and charts of one run, or of several side by side."""
    lines = [ChartLine(report.name, (), number % COLOURS) for number, report in enumerate(reports)]
    return PAGE.format(
        title=html.escape(_find_common_name([report.name for report in reports])),
        about=html.escape(_describe_runs(reports)),
        numbers=_render_numbers(reports),
        promises="".join(_render_objectives(report, len(reports) > 1) for report in reports),
        legend=draw_legend(lines),
        charts="".join(_render_charts(reports)),
        colours=" ".join(f".c{i} {{ stroke: var(--c{i}); background: var(--c{i}) }}" for i in range(COLOURS)),
    )


def _find_common_name(names: Sequence[str]) -> str:
    """What the runs have in common, or else all their names."""
    shared = []
    for words in zip(*(name.split() for name in names), strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return " ".join(shared) or " and ".join(names)


def _describe_runs(reports: Sequence[RunReport]) -> str:
    spans = sorted({f"{report.hours:g} simulated hours, seed {report.seed}" for report in reports})
    return "; ".join(spans)


def _render_numbers(reports: Sequence[RunReport]) -> str:
    several = len(reports) > 1
    names = "".join(f"<th>{html.escape(report.name)}</th>" for report in reports)
    head = f"<thead><tr><th></th>{names}</tr></thead>" if several else ""
    rows = "".join(
        f"<tr><th>{label}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for label, cells in build_rows(reports)
    )
    return f'<table class="{"several" if several else "alone"}">{head}<tbody>{rows}</tbody></table>'


def _render_objectives(report: RunReport, named: bool) -> str:
    if not report.objectives:
        return ""
    told = "".join(
        f'<li><b class="{"kept" if each.kept else "broken"}">{"kept" if each.kept else "broken"}</b> '
        f"{html.escape(each.promise)}: {html.escape(each.measured)}</li>"
        for each in report.objectives
    )
    whose = f" of {html.escape(report.name)}" if named else ""
    return f'<h2>Promises{whose}</h2><ul class="promises">{told}</ul>'


def _render_charts(reports: Sequence[RunReport]) -> Iterator[str]:
    floored = [report for report in reports if report.dollars_floor is not None]
    for number, (title, shape, of) in enumerate(CHARTS):
        lines = [
            ChartLine(r.name, _list_points(r.samples, of), colour % COLOURS)
            for colour, r in enumerate(reports)
        ]
        if number == 0 and floored:
            title += "; dashed, what the cheapest thinkable fleet would cost"
            lines += [
                ChartLine(
                    r.name,
                    _list_points([s for s in r.samples if s.floor], lambda s: s.floor),
                    i % COLOURS,
                    True,
                )
                for i, r in enumerate(reports)
            ]
        yield draw_chart(title, lines, shape)


def _list_points(samples: Sequence[Sample], of: Callable[[Sample], float]) -> list[tuple[float, float]]:
    return [(sample.second / 3600, of(sample)) for sample in samples]


def _compute_percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
