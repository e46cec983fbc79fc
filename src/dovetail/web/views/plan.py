"""The plan: what would be bought now, what it costs, and how far from the best it can be at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf

from dovetail.picture import Picture
from dovetail.scheduling.bill import HOURS_A_MONTH, sum_known_prices
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.web.page import (
    Cell,
    Fact,
    WebPage,
    WebTable,
    names_cell,
    number_cell,
    price_cell,
    prose_cell,
    text_cell,
)

__all__ = ["build_plan_page"]

NEW = (
    ("count", "Nodes"),
    ("pool", "Pool"),
    ("instanceType", "Type"),
    ("others", "Or"),
    ("zone", "Zone"),
    ("capacityType", "Capacity type"),
    ("podsEach", "Pods each"),
)
EXTRAS = ("extras", "Extras $/h")
PRICES = (("price", "$/h"), ("pricePerMonth", "$/month"))


def build_plan_page(picture: Picture) -> WebPage:
    """What would be launched for the pending pods."""
    plan = picture.plan
    price = sum_known_prices(plan.new_nodes)
    joined = sum(map(len, plan.existing.values()))
    gap = max(0.0, price / plan.bound - 1) if plan.bound > 0 else None
    return WebPage(
        "Plan",
        _describe_plan(len(plan.new_nodes), price, joined),
        (
            Fact("newNodes", "New nodes", number_cell(len(plan.new_nodes))),
            Fact("price", "Price an hour", price_cell(price, 2), _describe_price(plan.new_nodes, price)),
            Fact("gap", "From the optimum", _build_gap(gap), _describe_proof(picture)),
            Fact("joined", "Pods on running nodes", number_cell(joined)),
        ),
        (_build_new_nodes(plan.new_nodes), _build_existing(picture), _build_problems(picture)),
    )


def _describe_plan(count: int, price: float, joined: int) -> str:
    if not count:
        return "Nothing would be bought now." + (f" {joined} pods fit on running nodes." if joined else "")
    return f"{count} new node{'' if count == 1 else 's'} would be bought now, for ${price:,.2f} an hour."


def _describe_price(nodes: Sequence[PlannedNode], price: float) -> str:
    monthly = f"${price * HOURS_A_MONTH:,.0f} a month"
    guessed = sum(node.price_estimated for node in nodes)
    return f"{monthly}, {guessed} at estimated prices" if guessed else monthly


def _build_gap(gap: float | None) -> Cell:
    if gap is None:
        return Cell(None, "–", "number", "quiet")
    return Cell(round(gap, 6), f"{gap:.1%}", "number", "good" if gap < 0.05 else "warn")


def _describe_proof(picture: Picture) -> str:
    plan = picture.plan
    if not plan.new_nodes:
        return "there is nothing to buy"
    if plan.bound <= 0:
        return "nothing is proven about this plan"
    return f"no plan for {plan.proven_pods:,} of these pods costs less than ${plan.bound:,.2f} an hour"


def _build_new_nodes(nodes: Iterable[PlannedNode]) -> WebTable:
    groups: dict[tuple[object, ...], tuple[PlannedNode, int]] = {}
    for each in nodes:
        key = (each.pool, each.instance_type, each.zone, each.capacity_type, len(each.pods))
        first, count = groups.get(key, (each, 0))
        groups[key] = (first, count + 1)
    extras = any(each.extras for each, _ in groups.values())
    columns = (*NEW, EXTRAS, *PRICES) if extras else (*NEW, *PRICES)
    rows = tuple(_build_row(first, count, extras) for first, count in groups.values())
    return WebTable("newNodes", "New nodes", columns, rows, "No node is needed.")


def _build_row(node: PlannedNode, count: int, extras: bool) -> tuple[Cell, ...]:
    price = None if isinf(node.price) else node.price * count
    return (
        number_cell(count),
        text_cell(node.pool),
        text_cell(node.instance_type or None),
        names_cell([each for each in node.instance_types if each != node.instance_type]),
        text_cell(node.zone or None),
        text_cell(node.capacity_type or None),
        number_cell(len(node.pods)),
        *((price_cell(node.extras * count),) if extras else ()),
        price_cell(price),
        price_cell(None if price is None else price * HOURS_A_MONTH, 2),
    )


def _build_existing(picture: Picture) -> WebTable:
    rows = tuple((text_cell(name), names_cell(pods)) for name, pods in picture.plan.existing.items() if pods)
    empty = "No pending pod fits on a running node."
    return WebTable(
        "existing", "Pods that fit on running nodes", (("node", "Node"), ("pods", "Pods")), rows, empty
    )


def _build_problems(picture: Picture) -> WebTable:
    rows = tuple(
        (text_cell(name), prose_cell(why, tone="bad")) for name, why in picture.plan.pool_problems.items()
    )
    return WebTable(
        "poolProblems", "Pools that cannot be used", (("pool", "Pool"), ("why", "Because")), rows, "None."
    )
