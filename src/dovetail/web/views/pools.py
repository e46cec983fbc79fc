"""NodePools: how much of their limits is used, what their budgets let go, and whether they are ready."""

from __future__ import annotations

from dovetail.api import conditions
from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.allowance import budgets_of
from dovetail.scheduling import nodes as states
from dovetail.scheduling.resources import nano
from dovetail.scheduling.snapshot import StateNode
from dovetail.web.page import Cell, Page, Table, amount, dollars, names, number, prose, share, text, word
from dovetail.web.picture import Picture

__all__ = ["pools", "table"]

POOLS = (
    ("name", "Pool"),
    ("ready", "Ready"),
    ("weight", "Weight"),
    ("nodes", "Nodes"),
    ("price", "$/h"),
    ("cpu", "CPU asked"),
    ("memory", "Memory asked"),
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


def pools(picture: Picture) -> Page:
    """Every pool."""
    found = [pool.nodepool for pool in picture.snapshot.pools]
    unready = [pool.name for pool in found if not _ready(pool)]
    return Page(
        "NodePools",
        f"{len(found)} pool{'' if len(found) == 1 else 's'}"
        + (f"; not ready: {', '.join(unready)}." if unready else ", all ready." if found else "."),
        tables=(
            table(picture),
            Table("limits", "Limits", LIMITS, _limits(picture), "No pool has a limit."),
            Table("budgets", "Budgets", BUDGETS, _budgets(found), "No pool has a budget."),
            _requirements(found),
        ),
    )


def _ready(pool: NodePool) -> bool:
    return conditions.is_true(pool, conditions.READY)


def _of(picture: Picture, pool: NodePool) -> list[StateNode]:
    return [each for each in picture.nodes if states.pool(each) == pool.name]


def table(picture: Picture) -> Table:
    """The pools and how they fare."""
    empty = "There is no NodePool, so nothing can be bought."
    return Table("pools", "NodePools", POOLS, _pools(picture), empty)


def _pools(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for each in picture.snapshot.pools:
        pool, own = each.nodepool, _of(picture, each.nodepool)
        reference = pool.spec.template.spec.node_class_ref
        policy = pool.spec.disruption.consolidation_policy or "WhenEmptyOrUnderutilized"
        after = pool.spec.disruption.consolidate_after or "0s"
        rows.append(
            (
                text(pool.name),
                word("ready", "good") if _ready(pool) else word("not ready", "bad"),
                number(pool.spec.weight or 0),
                number(len(own)),
                dollars(sum(picture.prices.get(states.name(state), 0.0) for state in own)),
                share(picture.load("cpu", *own).share),
                share(picture.load("memory", *own).share),
                text(f"{reference.kind} {reference.name}"),
                prose(f"{policy}, after {after}"),
            )
        )
    return tuple(rows)


def _limits(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for each in picture.snapshot.pools:
        own = _of(picture, each.nodepool)
        for resource, most in nano(each.nodepool.spec.limits).items():
            used = sum(states.capacity(state).get(resource, 0) for state in own)
            used = len(own) * 10**9 if resource == "nodes" else used
            rows.append(
                (
                    text(each.nodepool.name),
                    text(resource),
                    amount(resource, used),
                    amount(resource, most),
                    share(used / most if most else None, full=0.9),
                )
            )
    return tuple(rows)


def _budgets(found: list[NodePool]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(_budget(pool, each) for pool in found for each in budgets_of(pool))


def _budget(pool: NodePool, budget: Budget) -> tuple[Cell, ...]:
    reasons = Cell(None, "every reason") if budget.reasons is None else names(budget.reasons)
    return (
        text(pool.name),
        text(budget.nodes),
        reasons,
        text(budget.schedule, kind="code") if budget.schedule else Cell(None, "always"),
        text(budget.duration),
    )


def _requirements(found: list[NodePool]) -> Table:
    columns = (("pool", "Pool"), ("key", "Label"), ("operator", "Must be"), ("values", "Values"))
    rows = tuple(
        (text(pool.name), text(each.key, kind="code"), text(each.operator), names(each.values, 6))
        for pool in found
        for each in pool.spec.template.spec.requirements or ()
    )
    return Table(
        "requirements", "Requirements", columns, rows, "Any instance type of the node class will do."
    )
