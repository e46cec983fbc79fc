"""SpendLimits as a table, and as JSON or YAML."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api.spend_limit import MonthSpend, SpendLimit
from dovetail.cli.views.output import Output, print_structured, print_table, print_text, some_of
from dovetail.scheduling.spend_report import SpendLine

__all__ = ["show_spending"]

_COLUMNS = ("LIMIT", "WINDOW", "MODE", "$/H", "SPENT", "ORDERED", "NODES", "MONTH", "PROJECTED", "HELD")


def show_spending(lines: Sequence[SpendLine], limits: Sequence[SpendLimit], output: Output) -> None:
    """Write the limits; months are known of a live cluster alone, where the controller counts them."""
    months = {each.name: each.status.month or MonthSpend() for each in limits}
    if output is not Output.table:
        print_structured(
            {"limits": [_build_document(line, months.get(line.limit)) for line in lines]}, output
        )
        return
    if not lines:
        return
    print_table(_COLUMNS, [_build_row(line, months.get(line.limit) or MonthSpend()) for line in lines])
    for line in lines:
        if line.problem:
            print_text(
                f"{line.limit}: cannot be read, so nothing is bought for its NodePools: {line.problem}\n"
            )
        if line.unpriced:
            print_text(f"{line.limit}: nobody knows the price of {some_of(line.unpriced)}\n")
        if line.held:
            would = "would be held" if line.warns else "are held"
            print_text(
                f"{line.limit}: {some_of(line.held)} {would}" + (f": {line.told}\n" if line.told else "\n")
            )


def _build_row(line: SpendLine, month: MonthSpend) -> tuple[str, ...]:
    return (
        line.limit,
        line.window or "-",
        "Warn" if line.warns else "Enforce",
        "-" if line.hourly is None else f"{line.hourly:.2f}",
        f"{line.spent:.2f}",
        f"{line.in_flight:.2f}",
        str(line.nodes) if line.most_nodes is None else f"{line.nodes} of {line.most_nodes}",
        month.spent or "-",
        month.projected or "-",
        str(len(line.held)),
    )


def _build_document(line: SpendLine, month: MonthSpend | None) -> dict[str, object]:
    found: dict[str, object] = {
        "limit": line.limit,
        "window": line.window,
        "mode": "Warn" if line.warns else "Enforce",
        "hourly": line.hourly,
        "spent": round(line.spent, 6),
        "inFlight": round(line.in_flight, 6),
        "nodes": line.nodes,
        "mostNodes": line.most_nodes,
        "held": list(line.held),
        "why": line.told or line.problem,
        "unpriced": list(line.unpriced),
    }
    if month is not None and month.of:
        found["month"] = {"of": month.of, "spent": month.spent, "projected": month.projected}
    return found
