"""Rules: what PodDisruptionBudgets, affinities, requirements and the like cost, the dearest first."""

from __future__ import annotations

from dovetail.disruption.pricing_rules import PriceKind, RulePrice
from dovetail.picture import Picture, PricedRules
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.web.page import Cell, Fact, WebPage, WebTable, number_cell, price_cell, prose_cell, text_cell

__all__ = ["build_rules_page"]

COLUMNS = (
    ("rule", "Rule"),
    ("costsNow", "Costs $/h"),
    ("monthly", "A month"),
    ("atMost", "At most $/h"),
    ("how", "How it would be saved"),
    ("name", "Name"),
)
HELD = "Held: what disruption would save without the rule, in the cluster as it is"
SHAPE = "Shape: what nodes for all pods, planned afresh, would cost less without the rule"
REMARKS = (
    "Each rule is priced as if all others stayed: prices do not add up, and held and shape never do.",
    "A rule may be worth its price. `dovetail price-of` asks about one by its name.",
)


def build_rules_page(picture: Picture) -> WebPage:
    """What rules cost, held and shape apart."""
    found = picture.rules
    kinds = {kind: [each for each in found.prices if each.kind is kind] for kind in PriceKind}
    return WebPage(
        "Rules",
        _describe_prices(found),
        (
            Fact("held", "Rules that hold nodes", number_cell(len(kinds[PriceKind.HELD]))),
            Fact("shape", "Rules that shape the fleet", number_cell(len(kinds[PriceKind.SHAPE]))),
        ),
        (
            _build_table("heldRules", HELD, kinds[PriceKind.HELD], "No rule holds a node that could go."),
            _build_table("shapeRules", SHAPE, kinds[PriceKind.SHAPE], "No rule makes the fleet dearer."),
        )
        if found.at is not None
        else (),
        remarks=REMARKS,
    )


def _describe_prices(found: PricedRules) -> str:
    if found.at is None:
        return found.why or "What rules cost is not worked out here; `dovetail price-of` does it."
    if not found.prices:
        return f"As of {found.at:%H:%M} UTC, no rule costs a cent an hour."
    dearest = found.prices[0]
    return (
        f"As of {found.at:%H:%M} UTC, the dearest rule is {dearest.rule.words}: "
        f"${dearest.costs_now:,.2f} an hour."
    )


def _build_table(key: str, title: str, prices: list[RulePrice], empty: str) -> WebTable:
    return WebTable(key, title, COLUMNS, tuple(map(_build_row, prices)), empty)


def _build_row(price: RulePrice) -> tuple[Cell, ...]:
    monthly = price.costs_now * HOURS_A_MONTH
    return (
        text_cell(price.rule.words),
        price_cell(price.costs_now, 2),
        Cell(monthly, f"${monthly:,.0f}", "number"),
        price_cell(price.at_most, 2),
        prose_cell(price.how),
        text_cell(price.rule.name, kind="code"),
    )
