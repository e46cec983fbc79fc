"""Prices of rules: worked out side by side, and shown as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from dovetail.cli.views.output import (
    Output,
    format_count,
    print_structured,
    print_table,
    print_text,
)
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.worker_runs import play_in_processes
from dovetail.disruption.pricing_rules import PricedCluster, Rule, RulePrice, list_kinds, price_rules
from dovetail.scheduling.bill import HOURS_A_MONTH

__all__ = ["price_in_processes", "show_prices", "write_csv", "write_prices"]

# Nodes times rules from which on it is worth telling other processes of the cluster.
MUCH = 2_000
COLUMNS = ("RULE", "KIND", "COSTS NOW", "A MONTH", "AT MOST", "HOW")


def price_in_processes(cluster: PricedCluster, rules: Sequence[Rule], workers: int) -> list[RulePrice]:
    """What these rules cost, in their order, whoever works it out."""
    count = workers or os.cpu_count() or 1
    much = (len(cluster.situation.snapshot.nodes) + 1) * len(rules) >= MUCH
    if count == 1 or len(rules) < 2 or not much:
        with ProgressBar(len(rules) + 1) as progress:
            progress.start_step("what disruption does anyway, and a fleet for all pods")
            return price_rules(cluster, rules, progress.start_step)
    with ProgressBar(1) as progress:
        progress.start_step("what disruption does anyway, and a fleet for all pods")
        cluster.prepare_prices({kind for rule in rules for kind in list_kinds(rule)})
    # One rule after the other: some take long, and who is done early takes the next.
    found = play_in_processes(price_one, [(cluster, rule) for rule in rules], count)
    return [price for number in sorted(found) for price in found[number]]


def price_one(cluster: PricedCluster, rule: Rule) -> list[RulePrice]:
    """What one rule costs, for another process to work out."""
    return price_rules(cluster, (rule,))


def show_prices(prices: Sequence[RulePrice], pairs: Sequence[RulePrice], count: int) -> None:
    """Print the prices for people, those of pairs below."""
    if prices:
        print_table(COLUMNS, map(_build_row, prices))
    if count > len(prices):
        print_text(f"and {format_count(count - len(prices), 'rule')} more; see --top\n")
    if pairs:
        print_text("\n")
        print_table(COLUMNS, map(_build_row, pairs))


def _build_row(price: RulePrice) -> tuple[str, ...]:
    return (
        price.rule.words,
        str(price.kind),
        f"${price.costs_now:,.2f}/h",
        f"${price.costs_now * HOURS_A_MONTH:,.0f}",
        f"${price.at_most:,.2f}/h",
        price.how,
    )


def write_prices(prices: Iterable[RulePrice], pairs: Iterable[RulePrice], now: datetime) -> None:
    """Write the prices for programs, to the last digit."""
    document: dict[str, object] = {
        "now": now.isoformat(),
        "rules": [_build_document(each) for each in prices],
        "pairs": [_build_document(each) for each in pairs],
    }
    print_structured(document, Output.json)


def _build_document(price: RulePrice) -> dict[str, object]:
    rule = price.rule
    found: dict[str, object] = {
        "rule": rule.name,
        "about": str(rule.kind),
        "words": rule.words,
        "kind": str(price.kind),
        "costsNowHourly": price.costs_now,
        "costsNowMonthly": price.costs_now * HOURS_A_MONTH,
        "atMostHourly": price.at_most,
        "how": price.how,
        "nodes": dict(price.nodes),
    }
    if rule.parts:
        found["parts"] = [part.name for part in rule.parts]
    return found


def write_csv(prices: Iterable[RulePrice]) -> None:
    """Write a row for each price."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("Rule", "Kind", "CostsNowHourly", "CostsNowMonthly", "AtMostHourly", "How"))
    writer.writerows(_list_cells(prices))
    print_text(text.getvalue())


def _list_cells(prices: Iterable[RulePrice]) -> Iterator[tuple[object, ...]]:
    for each in prices:
        monthly = each.costs_now * HOURS_A_MONTH
        yield each.rule.name, str(each.kind), each.costs_now, monthly, each.at_most, each.how
