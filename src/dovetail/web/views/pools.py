"""NodePools: how much of their limits is used, what their budgets let go, and whether they are ready."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from dovetail.api import conditions
from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.budgets import list_budgets
from dovetail.picture import Picture
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.resources import convert_to_nano
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.web.page import (
    Cell,
    WebPage,
    WebTable,
    amount_cell,
    format_count,
    names_cell,
    number_cell,
    price_cell,
    prose_cell,
    share_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.history import build_history_table, build_past_page

__all__ = ["build_pool_page", "build_pool_table", "build_pools_page", "link_pool"]

POOLS = (
    ("name", "Pool"),
    ("ready", "Ready"),
    ("weight", "Weight"),
    ("nodes", "Nodes"),
    ("price", "$/h"),
    ("cpu", "CPU requested"),
    ("memory", "Memory requested"),
    ("nodeClass", "Node class"),
    ("consolidation", "Consolidates"),
)
LIMITS = (
    ("pool", "Pool"),
    ("resource", "Resource"),
    ("used", "Used"),
    ("limit", "Limit"),
    ("share", "Share"),
)
BUDGETS = (
    ("pool", "Pool"),
    ("nodes", "Nodes at once"),
    ("reasons", "For"),
    ("schedule", "Schedule"),
    ("duration", "For how long"),
)


def build_pools_page(picture: Picture) -> WebPage:
    """Every pool."""
    found = [pool.nodepool for pool in picture.snapshot.pools]
    unready = [pool.name for pool in found if not _is_ready(pool)]
    return WebPage(
        "NodePools",
        f"{len(found)} pool{'' if len(found) == 1 else 's'}"
        + (f"; not ready: {', '.join(unready)}." if unready else ", all ready." if found else "."),
        tables=(
            build_pool_table(picture),
            WebTable("limits", "Limits", LIMITS, _build_limit_rows(picture), "No pool has a limit."),
            WebTable("budgets", "Budgets", BUDGETS, _build_budget_rows(found), "No pool has a budget."),
            _build_requirements(found),
        ),
    )


def link_pool(name: str) -> str:
    return f"pools/{quote(name, safe='')}"


def build_pool_page(picture: Picture, name: str) -> WebPage | None:
    """One pool: how it fares, its limits, budgets and requirements, and what happened in it."""
    found = [pool.nodepool for pool in picture.snapshot.pools if pool.name == name]
    if not found:
        return build_past_page(picture, f"pool/{name}")
    nodes = len(_list_nodes(picture, found[0]))
    whole = build_pools_page(picture)
    own = [
        replace(table, rows=tuple(row for row in table.rows if row[0].value == name))
        for table in whole.tables
    ]
    return WebPage(
        name,
        f"{format_count(nodes, 'node')}; {'ready' if _is_ready(found[0]) else 'not ready'}.",
        tables=(*own, build_history_table(picture, f"pool/{name}")),
    )


def _is_ready(pool: NodePool) -> bool:
    return conditions.is_true(pool, conditions.READY)


def _list_nodes(picture: Picture, pool: NodePool) -> list[StateNode]:
    return [each for each in picture.nodes if states.read_pool_name(each) == pool.name]


def build_pool_table(picture: Picture) -> WebTable:
    """The pools and how they fare."""
    empty = "There is no NodePool, so nothing can be bought."
    return WebTable("pools", "NodePools", POOLS, _build_pool_rows(picture), empty)


def _build_pool_rows(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for each in picture.snapshot.pools:
        pool, own = each.nodepool, _list_nodes(picture, each.nodepool)
        reference = pool.spec.template.spec.node_class_ref
        policy = pool.spec.disruption.consolidation_policy or "WhenEmptyOrUnderutilized"
        after = pool.spec.disruption.consolidate_after or "0s"
        rows.append(
            (
                text_cell(pool.name, link=link_pool(pool.name)),
                word_cell("ready", "good") if _is_ready(pool) else word_cell("not ready", "bad"),
                number_cell(pool.spec.weight or 0),
                number_cell(len(own)),
                price_cell(sum(picture.prices.get(states.read_name(state), 0.0) for state in own)),
                share_cell(picture.sum_load("cpu", *own).share),
                share_cell(picture.sum_load("memory", *own).share),
                text_cell(f"{reference.kind} {reference.name}"),
                prose_cell(f"{policy}, after {after}"),
            )
        )
    return tuple(rows)


def _build_limit_rows(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for each in picture.snapshot.pools:
        own = _list_nodes(picture, each.nodepool)
        for resource, most in convert_to_nano(each.nodepool.spec.limits).items():
            used = sum(states.read_capacity(state).get(resource, 0) for state in own)
            used = len(own) * 10**9 if resource == "nodes" else used
            rows.append(
                (
                    text_cell(each.nodepool.name),
                    text_cell(resource),
                    amount_cell(resource, used),
                    amount_cell(resource, most),
                    share_cell(used / most if most else None, full=0.9),
                )
            )
    return tuple(rows)


def _build_budget_rows(found: list[NodePool]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(_build_budget_row(pool, each) for pool in found for each in list_budgets(pool))


def _build_budget_row(pool: NodePool, budget: Budget) -> tuple[Cell, ...]:
    reasons = Cell(None, "every reason") if budget.reasons is None else names_cell(budget.reasons)
    return (
        text_cell(pool.name),
        text_cell(budget.nodes),
        reasons,
        text_cell(budget.schedule, kind="code") if budget.schedule else Cell(None, "always"),
        text_cell(budget.duration),
    )


def _build_requirements(found: list[NodePool]) -> WebTable:
    columns = (("pool", "Pool"), ("key", "Label"), ("operator", "Must be"), ("values", "Values"))
    rows = tuple(
        (
            text_cell(pool.name),
            text_cell(each.key, kind="code"),
            text_cell(each.operator),
            names_cell(each.values, 6),
        )
        for pool in found
        for each in pool.spec.template.spec.requirements or ()
    )
    return WebTable(
        "requirements", "Requirements", columns, rows, "Any instance type of the node class will do."
    )
