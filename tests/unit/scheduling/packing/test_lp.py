"""The linear program over patterns follows the demand it is given."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.scheduling.packing.lp import MasterProgram


def master(*demand: int) -> MasterProgram:
    found = MasterProgram(np.array(demand))
    found.add(np.array([1.0, 3.0]), np.array([[1, 0], [1, 2]]))
    return found


def test_every_class_of_pods_is_covered_at_the_least_price() -> None:
    value, amounts, duals = master(4, 2).solve()
    assert value == pytest.approx(3.0 + 3.0)
    assert amounts == pytest.approx([3.0, 1.0])
    assert duals == pytest.approx([1.0, 1.0])


def test_a_new_demand_replaces_the_old_one() -> None:
    found = master(4, 2)
    found.solve()
    found.set_demand(np.array([1, 4]))
    value, amounts, _ = found.solve()
    assert value == pytest.approx(6.0)
    assert amounts == pytest.approx([0.0, 2.0])


def test_pods_that_are_placed_already_cost_nothing_more() -> None:
    found = master(4, 2)
    found.set_demand(np.array([0, 0]))
    assert found.solve()[0] == pytest.approx(0.0)
