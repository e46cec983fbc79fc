"""The report as one HTML page that needs nothing else, in light and in dark."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence

from dovetail.sim.charts import COUNT, Line, chart, legend
from dovetail.sim.measure import Sample
from dovetail.sim.report import Report, rows_of

__all__ = ["as_html"]

CHARTS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("Dollars an hour", "${:g}", lambda s: s.dollars),
    ("Nodes", COUNT, lambda s: float(s.nodes)),
    ("Pods running", COUNT, lambda s: float(s.running)),
    ("Pods waiting", COUNT, lambda s: float(s.pending)),
    ("Cpu used, of what nodes offer", "{:g}%", lambda s: _percent(s.cpu_used, s.cpu_offered)),
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


def as_html(reports: Sequence[Report]) -> str:
    """Numbers, promises and charts of one run, or of several side by side."""
    lines = [Line(report.name, (), number % COLOURS) for number, report in enumerate(reports)]
    return PAGE.format(
        title=html.escape(_common([report.name for report in reports])),
        about=html.escape(_about(reports)),
        numbers=_numbers(reports),
        promises="".join(_promises(report, len(reports) > 1) for report in reports),
        legend=legend(lines),
        charts="".join(_charts(reports)),
        colours=" ".join(f".c{i} {{ stroke: var(--c{i}); background: var(--c{i}) }}" for i in range(COLOURS)),
    )


def _common(names: Sequence[str]) -> str:
    """What the runs have in common, or else all their names."""
    shared = []
    for words in zip(*(name.split() for name in names), strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return " ".join(shared) or " and ".join(names)


def _about(reports: Sequence[Report]) -> str:
    spans = sorted({f"{report.hours:g} simulated hours, seed {report.seed}" for report in reports})
    return "; ".join(spans)


def _numbers(reports: Sequence[Report]) -> str:
    several = len(reports) > 1
    names = "".join(f"<th>{html.escape(report.name)}</th>" for report in reports)
    head = f"<thead><tr><th></th>{names}</tr></thead>" if several else ""
    rows = "".join(
        f"<tr><th>{label}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for label, cells in rows_of(reports)
    )
    return f'<table class="{"several" if several else "alone"}">{head}<tbody>{rows}</tbody></table>'


def _promises(report: Report, named: bool) -> str:
    if not report.objectives:
        return ""
    told = "".join(
        f'<li><b class="{"kept" if each.kept else "broken"}">{"kept" if each.kept else "broken"}</b> '
        f"{html.escape(each.promise)}: {html.escape(each.measured)}</li>"
        for each in report.objectives
    )
    whose = f" of {html.escape(report.name)}" if named else ""
    return f'<h2>Promises{whose}</h2><ul class="promises">{told}</ul>'


def _charts(reports: Sequence[Report]) -> Iterator[str]:
    floored = [report for report in reports if report.dollars_floor is not None]
    for number, (title, shape, of) in enumerate(CHARTS):
        lines = [Line(r.name, _points(r.samples, of), colour % COLOURS) for colour, r in enumerate(reports)]
        if number == 0 and floored:
            title += "; dashed, what the cheapest thinkable fleet would cost"
            lines += [
                Line(r.name, _points([s for s in r.samples if s.floor], lambda s: s.floor), i % COLOURS, True)
                for i, r in enumerate(reports)
            ]
        yield chart(title, lines, shape)


def _points(samples: Sequence[Sample], of: Callable[[Sample], float]) -> list[tuple[float, float]]:
    return [(sample.second / 3600, of(sample)) for sample in samples]


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
