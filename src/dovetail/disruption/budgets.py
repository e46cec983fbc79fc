"""How many nodes of a pool may be disrupted now, for a reason.

Every active budget that speaks of the reason counts, and the smallest wins. A budget that cannot be
read allows nothing, whatever it was about: fail closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

from dovetail.api import conditions, cron
from dovetail.api.nodepool import Budget
from dovetail.api.numbers import parse_integer
from dovetail.errors import shorten_text
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = [
    "UNLIMITED",
    "BadBudget",
    "PoolCounts",
    "count_allowed",
    "count_allowed_for",
    "count_allowed_or_zero",
    "count_pool_nodes",
    "is_active",
]

UNLIMITED: Final = 2**31 - 1


class BadBudget(ValueError):
    """A budget that cannot be read."""


def is_active(budget: Budget, now: datetime) -> bool:
    """Whether the budget holds at this moment: always, or since its schedule last fired."""
    if budget.schedule is None and budget.duration is None:
        return True
    try:
        schedule = cron.parse_schedule(budget.schedule or "")
        lasts = parse_duration(budget.duration) if budget.duration is not None else parse_duration("0s")
    except ValueError as error:
        raise BadBudget(str(error)) from error
    hit = schedule.find_next(now - lasts)
    # Karpenter: a schedule that can never fire has Go's zero time as its next hit, which is always past.
    return hit is None or hit <= now


def count_allowed(budget: Budget, now: datetime, nodes: int) -> int:
    """How many of this many nodes the budget lets go; no limit while it is not active."""
    if not is_active(budget, now):
        return UNLIMITED
    text = budget.nodes
    number = parse_integer(text.removesuffix("%"))
    if number is None:
        shown = shorten_text(text)
        raise BadBudget(f"invalid value for IntOrString: {shown!r} is neither a number nor a percentage")
    return -(-number * nodes // 100) if text.endswith("%") else number


def count_allowed_for(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The pool's allowance for a reason; BadBudget when any of its budgets cannot be read."""
    amounts = [(budget, count_allowed(budget, now, nodes)) for budget in budgets]
    mine = [amount for budget, amount in amounts if budget.reasons is None or reason in budget.reasons]
    return min(mine, default=UNLIMITED)


def count_allowed_or_zero(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The allowance, where what cannot be read allows nothing."""
    try:
        return count_allowed_for(budgets, reason, now, nodes)
    except BadBudget:
        return 0


class PoolCounts(NamedTuple):
    """Nodes by pool: all that count, and those of them that are down."""

    totals: dict[str, int]
    consumed: dict[str, int]


def count_pool_nodes(snapshot: Snapshot, queued: AbstractSet[str]) -> PoolCounts:
    """`queued` are the keys of nodes already being disrupted."""
    found = PoolCounts({}, {})
    for state in snapshot.nodes:
        if _is_counted(state):
            pool = views.read_pool_name(state)
            found.totals[pool] = found.totals.get(pool, 0) + 1
            found.consumed[pool] = found.consumed.get(pool, 0) + _is_down(state, queued)
    return found


def _is_counted(state: StateNode) -> bool:
    if state.claim is None or state.node is None or not views.is_initialized(state):
        return False
    return not conditions.is_true(state.claim, conditions.INSTANCE_TERMINATING)


def _is_down(state: StateNode, queued: AbstractSet[str]) -> bool:
    assert state.node is not None
    ready = state.node.status.find_condition("Ready")
    unready = ready is None or ready.status != "True"
    return unready or views.is_deleting(state) or views.read_provider_id(state) in queued
