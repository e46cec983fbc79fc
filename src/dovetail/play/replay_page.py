"""The report of a replay as an HTML page: dollars over time of all variations, and where they differ."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import datetime

from dovetail.history.paid import PaidHour
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replay_report import AS_IT_WAS, ReplayReport, list_remarks, list_rows
from dovetail.sim.report_page import COLOURS, PAGE, ChartLine, draw_chart, draw_legend

__all__ = ["render_replay_page"]

MOST_DIFFERENT = 10


def render_replay_page(report: ReplayReport, place: str) -> str:
    """Numbers, one chart in one frame, the hours that differ most, and what is not known."""
    was = report.was
    bills = [(AS_IT_WAS, was), *((each.name, each.bill) for each in report.variations)]
    lines = [
        ChartLine(name, _list_points(bill, was.since), number % COLOURS, dashed=number == 0)
        for number, (name, bill) in enumerate(bills)
    ]
    remarks = "".join(f"<p>{html.escape(each)}</p>" for each in list_remarks(report))
    return PAGE.format(
        title=html.escape(f"replay of {place}"),
        about=html.escape(
            f"{was.since:%Y-%m-%d %H:%M} to {was.until:%Y-%m-%d %H:%M} UTC, "
            f"seed {report.seed}, {report.assume}"
        ),
        numbers=_render_table(report),
        promises="",
        legend=draw_legend(lines),
        charts=draw_chart("Dollars an hour", lines, "${:g}") + _render_hours(report, place) + remarks,
        colours=" ".join(f".c{i} {{ stroke: var(--c{i}); background: var(--c{i}) }}" for i in range(COLOURS)),
    )


def _list_points(bill: ReplayBill, since: datetime) -> list[tuple[float, float]]:
    return [
        (max((hour.began - since).total_seconds() / 3600, 0.0), _find_rate(hour))
        for hour in bill.hours
        if hour.watched_seconds
    ]


def _find_rate(hour: PaidHour) -> float:
    return hour.dollars / hour.watched_seconds * 3600 if hour.watched_seconds else 0.0


def _render_table(report: ReplayReport) -> str:
    names = "".join(
        f"<th>{html.escape(name)}</th>" for name in (AS_IT_WAS, *(each.name for each in report.variations))
    )
    rows = ""
    for name, *cells in list_rows(report):
        told = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows += f"<tr><th>{html.escape(name)}</th>{told}</tr>"
    return f'<table class="several"><thead><tr><th></th>{names}</tr></thead><tbody>{rows}</tbody></table>'


def _render_hours(report: ReplayReport, place: str) -> str:
    """The hours in which a variation is furthest from what was, each with how to look at it."""
    found = sorted(_list_differences(report), key=lambda each: -abs(each[2] - each[3]))[:MOST_DIFFERENT]
    if not found:
        return ""
    rows = "".join(
        f'<tr id="{began:%Y%m%dT%H}"><th>{began:%Y-%m-%d %H:%M}</th><td>{html.escape(name)}</td>'
        f"<td>${was:,.2f}</td><td>${now:,.2f}</td><td><code>dovetail recording snapshot "
        f"{html.escape(place)} --at {began:%Y-%m-%dT%H:%M:%SZ}</code></td></tr>"
        for began, name, was, now in found
    )
    head = "<tr><th>hour</th><th>variation</th><th>as it was</th><th>here</th><th>look at it</th></tr>"
    return (
        f"<h2>The {len(found)} most different hours</h2>"
        f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    )


def _list_differences(report: ReplayReport) -> Iterator[tuple[datetime, str, float, float]]:
    was = {hour.began: hour.dollars for hour in report.was.hours}
    for each in report.variations:
        for hour in each.bill.hours:
            if hour.began in was:
                yield hour.began, each.name, was[hour.began], hour.dollars
