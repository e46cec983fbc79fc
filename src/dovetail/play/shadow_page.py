"""The report of shadow mode as one HTML page that needs nothing else: to be mailed, or served."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime

from dovetail.history.difference import Difference
from dovetail.history.shadow import ShadowReport, describe_prices, tell_estimated
from dovetail.history.shadow_claim import TwinBill
from dovetail.sim.report_page import ChartLine, draw_chart, draw_legend

__all__ = ["render_shadow"]

MOST = 200
ESTIMATES = "~ marks estimates: prices that are not known without asking AWS"
KINDS = {"bought": "bought otherwise", "stayed": "consolidated what stayed", "went": "left what went"}


def render_shadow(report: ShadowReport) -> str:
    """Numbers, dollars over time of all worlds, and the differences, the largest first."""
    lines = _list_lines(report)
    span = f"{_tell(report.since)} to {_tell(report.until)}" if report.since else "nothing watched yet"
    return PAGE.format(
        span=html.escape(span),
        numbers=_render_numbers(report),
        legend=draw_legend(lines),
        chart=draw_chart("Dollars, added up", lines, "${:,.2f}"),
        differences=_render_differences(report.list_largest(MOST)),
        more=f"<p>{len(report.differences) - MOST:,} smaller ones are not shown.</p>"
        if len(report.differences) > MOST
        else "",
        colours=" ".join(f".c{i} {{ stroke: var(--c{i}); background: var(--c{i}) }}" for i in range(3)),
    )


def _render_numbers(report: ShadowReport) -> str:
    claim, twin = report.claim, report.twin
    told = claim.sentence
    if claim.share is not None and twin is not None:
        told = (
            f"${twin.dollars:,.2f}, {claim.share:+.1%}, sure to within ±{claim.certainty:.1%} "
            f"(paid in the same time: ${twin.paid:,.2f})"
            + (f", {tell_estimated(twin)}" if twin.estimated > 0 else "")
        )
    sums = "; ".join(
        f"{KINDS.get(kind, kind)} {found.count}×, {_format_dollars(-found.dollars)}"
        for kind, found in report.sums.items()
    )
    here = twin.promises if twin is not None else None
    beside = f" there, {here.waited:,} here" if here is not None else ""
    moved = f" there, {here.evictions:,} here" if here is not None else ""
    broken = f" there, {here.budgets_broken:,} here" if here is not None else ""
    rows = [
        (
            "what was paid",
            f"${report.paid.dollars:,.2f}, {describe_prices(report.paid)}, "
            f"{report.paid.node_hours:,.1f} node hours",
        ),
        ("Dovetail's twin", told or "none"),
        ("where we differ", sums or f"nowhere, in {report.compared:,} decisions"),
        ("pods that waited over 60 s", f"{report.promises.waited:,}{beside}"),
        ("evictions", f"{report.promises.evictions:,}{moved}"),
        ("PDBs broken", f"{report.promises.budgets_broken:,}{broken}"),
        ("watched", f"{report.paid.watched_seconds / 3600:,.1f} hours, {report.gaps} gaps"),
    ]
    if report.left_out:
        rows.append(("left out", "NodePools of classes that are not known: " + ", ".join(report.left_out)))
    rows += [("assumed wrongly", each) for each in claim.assumptions]
    rows += [("note", note) for note in report.notes]
    cells = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in rows)
    return f'<table class="alone"><tbody>{cells}</tbody></table>'


def _list_lines(report: ShadowReport) -> list[ChartLine]:
    began = report.paid.hours[0].began if report.paid.hours else None
    if began is None:
        return []
    real = [(hour.began, hour.dollars) for hour in report.paid.hours]
    lines = [ChartLine("what was paid", _add_up(real, began), 0)]
    if report.twin is not None:
        lines.append(ChartLine("Dovetail's twin", _add_up(_list_hours(report.twin), began), 1))
    if report.calibration is not None:
        lines.append(
            ChartLine("calibration", _add_up(_list_hours(report.calibration), began), 2, dashed=True)
        )
    return lines


def _list_hours(twin: TwinBill) -> list[tuple[datetime, float]]:
    return [(hour.began, hour.dollars) for hour in twin.hours]


def _add_up(hours: Iterable[tuple[datetime, float]], began: datetime) -> list[tuple[float, float]]:
    points, total = [(0.0, 0.0)], 0.0
    for hour, dollars in hours:
        total += dollars
        points.append(((hour - began).total_seconds() / 3600 + 1, total))
    return points


def _render_differences(found: Sequence[Difference]) -> str:
    if not found:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{each.at:%Y-%m-%d %H:%M}</td><td>{html.escape(KINDS.get(each.kind, each.kind))}</td>"
        f"<td>{html.escape(each.pool)}</td><td>{html.escape(each.theirs)}</td><td>{html.escape(each.ours)}</td>"
        f"<td><b>{html.escape(each.reason)}</b>: {html.escape(each.why)}</td>"
        f'<td class="n">{"~" if each.estimated else ""}{_format_dollars(-each.dollars)}</td></tr>'
        for each in found
    )
    head = "".join(f"<th>{name}</th>" for name in ("when", "what", "pool", "there", "here", "why", "dollars"))
    if any(each.estimated for each in found):
        rows += f'<tr><td colspan="7">{ESTIMATES}</td></tr>'
    return f'<table class="several"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _format_dollars(amount: float) -> str:
    return f"{'−' if amount < 0 else '+'}${abs(amount):,.2f}"


def _tell(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC" if time is not None else "now"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Shadow report</title>
<style>
:root {{ color-scheme: light dark; --c0: #b3541e; --c1: #1a7f5a; --c2: #6b7280; --line: #8884 }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem; margin-bottom: 0 }} h2 {{ font-size: 1.05rem; margin: 1.6rem 0 .4rem }}
table {{ border-collapse: collapse; width: 100% }} th, td {{ text-align: left; vertical-align: top;
 padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }}
table.alone th {{ font-weight: 500; width: 15rem }} td.n {{ text-align: right; white-space: nowrap }}
table.several {{ font-size: 13px }} table.several th {{ overflow-wrap: normal }}
table.several td:nth-child(-n+3) {{ overflow-wrap: normal; min-width: 4.5em }}
table.several td:first-child {{ white-space: nowrap }}
svg {{ width: 100%; height: auto; font-size: 11px }} svg text {{ fill: currentColor; opacity: .7 }}
.grid {{ stroke: var(--line) }} polyline {{ fill: none; stroke-width: 2; background: none !important }}
.legend span {{ margin-right: 1.2rem }} .legend i {{ display: inline-block; width: 1em; height: .25em;
 margin-right: .4em; vertical-align: middle }} {colours}
.none, .about {{ opacity: .7; margin-top: 0 }}
</style></head><body>
<h1>What Dovetail would have done</h1>
<p class="about">{span}. Nothing was written to the cluster.</p>
{numbers}
{chart}{legend}
<h2>Where we differ, each as if it alone had been done</h2>
{differences}{more}
</body></html>
"""
