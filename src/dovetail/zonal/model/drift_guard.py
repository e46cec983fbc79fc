"""A budget that keeps a pool's nodes from being replaced for the very edit that is to protect them.

A pool that excludes a zone makes that zone's nodes drifted, and whoever replaces drifted nodes would begin
with those we want left alone. Until drift has been forgotten again, none of the pool's nodes may go for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from dovetail.zonal.model.shifts import CONTROLLER

__all__ = ["GUARD", "BudgetGuard", "GuardedBudgets", "add_drift_guard"]

Budget = Mapping[str, Any]
GUARD: Budget = {"nodes": "0", "reasons": ["Drifted"]}
# What holds where a pool names no budgets, and what the API takes at most.
USUAL: Budget = {"nodes": "10%"}
MOST_BUDGETS = 50
NONE_AT_ALL = ("0", "0%")
VERSION = 2


class BudgetGuard(Struct, frozen=True, omit_defaults=True):
    """That a budget of a pool is ours; `absent` when the pool named none before."""

    uid: str
    shifts: tuple[str, ...] = ()
    absent: bool = False
    owner: str = CONTROLLER
    v: int = VERSION


class GuardedBudgets(Struct, frozen=True):
    """The budgets as they should stand (None: none named), what we note beside them, and what to tell."""

    budgets: tuple[Budget, ...] | None
    ledger: BudgetGuard | None
    notes: tuple[str, ...] = ()


def add_drift_guard(
    theirs: Sequence[Budget] | None,
    ledger: BudgetGuard | None,
    shifts: Sequence[str],
    *,
    uid: str,
    owner: str = CONTROLLER,
) -> GuardedBudgets:
    """A pool's budgets while these shifts edit its requirements; without any, as the user wants them."""
    if ledger is not None and ledger.uid != uid:
        ledger = None
    base = _remove_guard(theirs, ledger)
    if not shifts or any(map(_blocks_drift, base or ())):
        return GuardedBudgets(base, None)
    before = (USUAL,) if base is None else base
    if len(before) >= MOST_BUDGETS:
        return GuardedBudgets(
            base, None, ("it has as many budgets as there may be: nothing keeps drift away",)
        )
    return GuardedBudgets((*before, GUARD), BudgetGuard(uid, tuple(shifts), absent=base is None, owner=owner))


def _remove_guard(theirs: Sequence[Budget] | None, ledger: BudgetGuard | None) -> tuple[Budget, ...] | None:
    """The budgets without ours, and without the one we named because it held unnamed."""
    now = None if theirs is None else tuple(theirs)
    if ledger is None or not now:
        return now
    left = _without_last(now, GUARD)
    if not ledger.absent:
        return left
    return _without_last(left, USUAL) or None


def _without_last(budgets: tuple[Budget, ...], one: Budget) -> tuple[Budget, ...]:
    at = max((at for at, each in enumerate(budgets) if each == one), default=-1)
    return tuple(each for number, each in enumerate(budgets) if number != at)


def _blocks_drift(budget: Budget) -> bool:
    """Whether the pool's own budget keeps drift away already, at all times."""
    reasons = budget.get("reasons")
    return (
        str(budget.get("nodes")) in NONE_AT_ALL
        and not budget.get("schedule")
        and (reasons is None or "Drifted" in reasons)
    )
