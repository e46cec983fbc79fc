"""A report of shadow mode as text: what was paid, the twin, where decisions differ, and promises."""

from __future__ import annotations

from datetime import timedelta

from dovetail.cli.views.output import format_count
from dovetail.history.shadow import ShadowReport, describe_prices, tell_estimated

__all__ = ["format_report"]

KINDS = {
    "bought": "bought otherwise",
    "stayed": "consolidated what stayed",
    "went": "left what went",
    "spot": "spot/on-demand",
}


def format_report(report: ShadowReport, most: int = 10) -> str:
    """The report as `dovetail shadow report` prints it."""
    rows = [
        ("what was paid", f"${report.paid.dollars:,.2f} ({describe_prices(report.paid)})"),
        ("Dovetail's twin", _format_twin(report)),
        ("where we differ", _format_sums(report)),
        ("promises", _format_promises(report)),
    ]
    if report.left_out:
        names = ", ".join(report.left_out)
        rows.append(("left out", f"{names}: NodePools of a node class that Dovetail does not know"))
    if report.paid.unpriced_hours:
        rows.append(("without a price", f"{report.paid.unpriced_hours:,.1f} node hours, counted as nothing"))
    rows += [("assumed wrongly", each) for each in report.claim.assumptions]
    rows += [("note", note) for note in report.notes]
    lines = [_format_head(report)] + [f"{name:<19} {text}" for name, text in rows]
    largest = report.list_largest(most)
    if largest:
        lines.append("the largest differences, each as if it alone had been done:")
    for each in largest:
        ended = f"; {each.ended}" if each.ended else ""
        mark = "~" if each.estimated else ""
        lines.append(
            f"  {each.at:%Y-%m-%d %H:%M}  {mark}{_format_dollars(-each.dollars)}  {each.sentence}{ended}"
        )
    if any(each.estimated for each in largest):
        lines.append("~ marks estimates: prices that are not known without asking AWS")
    return "\n".join(lines) + "\n"


def _format_head(report: ShadowReport) -> str:
    pools, nodes = format_count(report.pools, "pool"), format_count(report.nodes, "node")
    watched = format_length(report.paid.watched_seconds)
    gaps = "no gaps"
    if report.gaps:
        gaps = f"{format_count(report.gaps, 'gap')} of {format_length(report.gap_seconds)} together"
    return f"beside the cluster's autoscaler ({pools}, {nodes}): {watched} watched, {gaps}"


def _format_twin(report: ShadowReport) -> str:
    claim, twin = report.claim, report.twin
    if claim.share is None or twin is None:
        return claim.sentence or "none"
    sure = f"sure to within ±{claim.certainty:.1%} (calibration {claim.calibration:.1%})"
    guessed = f"; {tell_estimated(twin)}" if twin.estimated > 0 else ""
    there = f"paid in the same time: ${twin.paid:,.2f}{guessed}"
    return f"${twin.dollars:,.2f}   {claim.share:+.1%}  {sure}; {there}"


def _format_sums(report: ShadowReport) -> str:
    if not report.sums:
        return f"nowhere, in {format_count(report.compared, 'decision')} compared"
    told = [
        f"{KINDS.get(kind, kind)} {found.count}×  {_format_dollars(-found.dollars)}"
        for kind, found in report.sums.items()
    ]
    return "   ·   ".join(told)


def _format_promises(report: ShadowReport) -> str:
    there, twin = report.promises, report.twin
    if twin is None:
        return (
            f"pods that waited over 60 s: {there.waited:,} · evictions: {there.evictions:,} · "
            f"PDBs broken: {there.budgets_broken:,}"
        )
    here = twin.promises
    return (
        f"pods that waited over 60 s: {there.waited:,} there, {here.waited:,} here · "
        f"evictions: {there.evictions:,} there, {here.evictions:,} here · "
        f"PDBs broken: {there.budgets_broken:,} there, {here.budgets_broken:,} here"
    )


def _format_dollars(amount: float) -> str:
    """Dollars with a sign: less is a minus."""
    sign = "−" if amount < 0 else "+"
    return f"{sign}${abs(amount):,.2f}"


def format_length(seconds: float) -> str:
    """A length of time as a person says it."""
    length = timedelta(seconds=round(seconds))
    if length >= timedelta(days=2):
        return f"{length / timedelta(days=1):.0f} days"
    if length >= timedelta(hours=2):
        return f"{length / timedelta(hours=1):.1f} hours"
    return f"{max(1, round(length / timedelta(minutes=1)))} min"
