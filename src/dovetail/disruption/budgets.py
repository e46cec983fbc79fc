"""How many nodes of a pool may be disrupted now, for a reason.

Every active budget that speaks of the reason counts, and the smallest wins. A budget that cannot be
read allows nothing, whatever it was about: fail closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from dovetail.api import cron
from dovetail.api.nodepool import Budget
from dovetail.api.numbers import parse_integer
from dovetail.errors import shorten_text
from dovetail.settings.durations import parse as parse_duration

__all__ = ["UNLIMITED", "BadBudget", "active", "allowed", "allowed_for", "readable"]

UNLIMITED: Final = 2**31 - 1


class BadBudget(ValueError):
    """A budget that cannot be read."""


def active(budget: Budget, now: datetime) -> bool:
    """Whether the budget holds at this moment: always, or since its schedule last fired."""
    if budget.schedule is None and budget.duration is None:
        return True
    try:
        schedule = cron.parse(budget.schedule or "")
        lasts = parse_duration(budget.duration) if budget.duration is not None else parse_duration("0s")
    except ValueError as error:
        raise BadBudget(str(error)) from error
    hit = schedule.next(now - lasts)
    # Karpenter: a schedule that can never fire has Go's zero time as its next hit, which is always past.
    return hit is None or hit <= now


def allowed(budget: Budget, now: datetime, nodes: int) -> int:
    """How many of this many nodes the budget lets go; no limit while it is not active."""
    if not active(budget, now):
        return UNLIMITED
    text = budget.nodes
    number = parse_integer(text.removesuffix("%"))
    if number is None:
        shown = shorten_text(text)
        raise BadBudget(f"invalid value for IntOrString: {shown!r} is neither a number nor a percentage")
    return -(-number * nodes // 100) if text.endswith("%") else number


def allowed_for(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The pool's allowance for a reason; BadBudget when any of its budgets cannot be read."""
    amounts = [(budget, allowed(budget, now, nodes)) for budget in budgets]
    mine = [amount for budget, amount in amounts if budget.reasons is None or reason in budget.reasons]
    return min(mine, default=UNLIMITED)


def readable(budgets: Sequence[Budget], reason: str, now: datetime, nodes: int) -> int:
    """The allowance, where what cannot be read allows nothing."""
    try:
        return allowed_for(budgets, reason, now, nodes)
    except BadBudget:
        return 0
