"""A budget keeps drift away while a pool's requirements are edited, and goes with the edit."""

from __future__ import annotations

import pytest

from dovetail.zonal.model.drift_guard import GUARD, Budget, add_drift_guard

ALL_HELD: Budget = {"nodes": "0"}
TENTH: Budget = {"nodes": "10%"}


@pytest.mark.parametrize(
    "theirs", [None, (), (TENTH,), (ALL_HELD, TENTH)], ids=["none", "empty", "one", "held"]
)
def test_a_pool_under_edit_is_guarded_unless_a_budget_of_its_own_holds_everything(
    theirs: tuple[Budget, ...] | None,
) -> None:
    done = add_drift_guard(theirs, None, ["usw2-az1/aa"], uid="u-1")

    held = theirs is not None and ALL_HELD in theirs
    assert (done.ledger is None) == held
    assert (GUARD in (done.budgets or ())) != held


@pytest.mark.parametrize("theirs", [None, (), (TENTH,)], ids=["none", "empty", "one"])
def test_without_a_shift_the_budgets_are_as_the_user_wants_them(theirs: tuple[Budget, ...] | None) -> None:
    during = add_drift_guard(theirs, None, ["usw2-az1/aa"], uid="u-1")
    after = add_drift_guard(during.budgets, during.ledger, [], uid="u-1")

    assert after.ledger is None
    assert (after.budgets or None) == (theirs or None)
