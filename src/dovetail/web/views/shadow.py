"""What a shadow found: dollars of three worlds, and each decision that differs with both sides' reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from urllib.parse import urlencode

from dovetail.errors import escape_text
from dovetail.history.difference import Difference
from dovetail.history.shadow import ShadowReport, describe_prices, tell_estimated
from dovetail.picture import Picture
from dovetail.web.chart import ChartPath, WebChart
from dovetail.web.page import (
    Cell,
    Fact,
    FilterLink,
    FilterRow,
    WebPage,
    WebTable,
    format_count,
    prose_cell,
    text_cell,
    word_cell,
)

__all__ = ["build_shadow_page"]

NONE = (
    "There is no shadow to show: `dovetail shadow` watches a cluster without a write, and the dashboard "
    "shows what it found with --shadow, the address of its report or a file of it, or with --recording."
)
KINDS = {
    "bought": "bought otherwise",
    "stayed": "consolidated what stayed",
    "went": "left what went",
}
COLUMNS = (
    ("at", "When"),
    ("kind", "What"),
    ("pool", "NodePool"),
    ("theirs", "There"),
    ("theirReason", "Their reason"),
    ("ours", "Here"),
    ("ourReason", "Our reason"),
    ("reason", "They part over"),
    ("dollars", "Dollars"),
)
FILTERS = (("What", "kind"), ("They part over", "reason"), ("NodePool", "pool"))
HOUR = timedelta(hours=1)


def build_shadow_page(picture: Picture, asked: Mapping[str, str]) -> WebPage:
    """What was found, fewer differences with each filter that is chosen."""
    report = picture.shadow.report
    if report is None:
        return WebPage("Shadow", picture.shadow.why or NONE)
    shown = [each for each in report.differences if _is_wanted(each, asked)]
    shown.sort(key=lambda each: (-abs(each.dollars), each.at))
    return WebPage(
        "Shadow",
        f"{_describe_time(report)} Nothing was written to the cluster.",
        facts=tuple(_build_facts(report)),
        charts=tuple(_build_charts(report)),
        filters=tuple(_build_filters(report.differences, asked)),
        tables=(
            WebTable(
                "differences",
                "Where we differ, each as if it alone had been done",
                COLUMNS,
                tuple(map(_build_row, shown)),
                f"Nowhere, in {format_count(report.compared, 'decision')} that were compared."
                if not report.differences
                else "None is left by these filters.",
            ),
        ),
        remarks=tuple(_list_remarks(report, picture.shadow.why)),
    )


def _describe_time(report: ShadowReport) -> str:
    if report.since is None or report.until is None:
        return "Nothing was watched yet."
    span = f"{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC"
    gaps = f", {format_count(report.gaps, 'gap')} not counted" if report.gaps else ""
    return f"Watched from {span}{gaps}."


def _build_facts(report: ShadowReport) -> Iterable[Fact]:
    twin, claim = report.twin, report.claim
    yield Fact("paid", "What was paid", _money(report.paid.dollars), describe_prices(report.paid))
    if claim.share is not None and twin is not None:
        note = f"{claim.share:+.1%}, sure to within ±{claim.certainty:.1%}; paid then ${twin.paid:,.2f}"
        guessed = f"; {tell_estimated(twin)}" if twin.estimated > 0 else ""
        yield Fact("twin", "Dovetail's twin", _money(twin.dollars), note + guessed)
    else:
        yield Fact("twin", "Dovetail's twin", Cell(None, "no claim", "word", "quiet"), claim.sentence)
    here = twin.promises if twin is not None else None
    there = report.promises
    yield Fact(
        "waited",
        "Pods that waited over 60 s",
        Cell(there.waited, f"{there.waited:,} there", "number"),
        f"{here.waited:,} here" if here is not None else "",
    )
    yield Fact(
        "evictions",
        "Evictions",
        Cell(there.evictions, f"{there.evictions:,} there", "number"),
        f"{here.evictions:,} here" if here is not None else "",
    )
    yield Fact(
        "broken",
        "PDBs broken",
        Cell(there.budgets_broken, f"{there.budgets_broken:,} there", "number"),
        f"{here.budgets_broken:,} here" if here is not None else "",
    )


def _build_charts(report: ShadowReport) -> Iterable[WebChart]:
    paths = [ChartPath("what was paid", _add_up((each.began, each.dollars) for each in report.paid.hours))]
    if report.twin is not None:
        paths.append(
            ChartPath("Dovetail's twin", _add_up((each.began, each.dollars) for each in report.twin.hours))
        )
    if report.calibration is not None:
        hours = ((each.began, each.dollars) for each in report.calibration.hours)
        paths.append(ChartPath("calibration", _add_up(hours), dashed=True))
    yield WebChart("dollars", "Dollars of all worlds, added up", tuple(paths))


def _add_up(hours: Iterable[tuple[datetime, float]]) -> tuple[tuple[datetime, float], ...]:
    points: list[tuple[datetime, float]] = []
    total = 0.0
    for began, dollars in hours:
        if not points:
            points.append((began, 0.0))
        total += dollars
        points.append((began + HOUR, total))
    return tuple(points)


def _build_row(each: Difference) -> tuple[Cell, ...]:
    return (
        Cell(each.at.isoformat(), f"{each.at:%m-%d %H:%M}", "number"),
        Cell(each.kind.value, KINDS.get(each.kind.value, each.kind.value), "word"),
        text_cell(escape_text(each.pool) or None),
        prose_cell(escape_text(each.theirs)),
        prose_cell(escape_text(each.their_reason)),
        prose_cell(escape_text(each.ours)),
        prose_cell(escape_text(each.our_reason or each.why)),
        word_cell(each.reason.value),
        _money(-each.dollars, signed=True, estimated=each.estimated),
    )


def _money(dollars: float, *, signed: bool = False, estimated: bool = False) -> Cell:
    sign = "−" if dollars < 0 else "+" if signed else ""
    return Cell(round(dollars, 4), f"{'~' if estimated else ''}{sign}${abs(dollars):,.2f}", "number")


def _list_remarks(report: ShadowReport, why: str) -> Iterable[str]:
    if why:
        yield why
    for said in report.claim.assumptions:
        yield f"Assumed wrongly: {said}."
    if report.left_out:
        yield f"Left out, of node classes that are not known: {', '.join(report.left_out)}."
    if any(each.estimated for each in report.differences):
        yield "~ marks estimates: prices that are not known without asking AWS."
    if report.paid.unpriced_hours > 0.05:
        yield f"{report.paid.unpriced_hours:,.1f} node hours have no price and count as nothing."
    yield from report.notes


def _is_wanted(each: Difference, asked: Mapping[str, str]) -> bool:
    return all(asked.get(key) in (None, "", _read(each, key)) for _, key in FILTERS)


def _read(each: Difference, key: str) -> str:
    return {"kind": each.kind.value, "reason": each.reason.value, "pool": each.pool}[key]


def _build_filters(found: Iterable[Difference], asked: Mapping[str, str]) -> Iterable[FilterRow]:
    """Each filter as links: another click takes it away again."""
    listed = tuple(found)
    for title, key in FILTERS:
        counts = Counter(_read(each, key) for each in listed if _read(each, key))
        chosen = asked.get(key, "")
        values = [chosen] if chosen else [value for value, _ in counts.most_common(12)]
        if values:
            links = tuple(
                FilterLink(
                    KINDS.get(value, value),
                    _link({**asked, key: "" if value == chosen else value}),
                    value == chosen,
                )
                for value in values
            )
            yield FilterRow(title, links)


def _link(asked: Mapping[str, str]) -> str:
    kept = {key: asked[key] for _, key in FILTERS if asked.get(key)}
    return f"shadow?{urlencode(kept)}" if kept else "shadow"
