"""How many rates a status holds, and which are left out where there are more."""

from __future__ import annotations

import json
from random import Random

import pytest

from dovetail.providers.aws.commitments import MOST_BYTES, MOST_RATES, choose_rates


def draw_rates(count: int, seed: int = 0, width: int = 8) -> dict[str, str]:
    chance = Random(seed)
    return {f"m{number:0{width}d}.large": f"{chance.uniform(0.01, 30):.5f}" for number in range(count)}


def test_few_rates_are_all_kept_by_name() -> None:
    rates = draw_rates(100)
    assert choose_rates(rates, ()) == dict(sorted(rates.items()))


@pytest.mark.parametrize("count", [801, 1500])
def test_of_many_rates_those_that_run_and_the_cheapest_are_kept(count: int) -> None:
    rates = draw_rates(count, width=4)
    dearest = max(rates, key=lambda name: float(rates[name]))
    found = choose_rates(rates, {dearest})
    assert len(found) == MOST_RATES
    assert dearest in found
    left_out = [float(rates[name]) for name in rates.keys() - found.keys()]
    kept = [float(rate) for name, rate in found.items() if name != dearest]
    assert max(kept) <= min(left_out)


def test_long_names_leave_fewer_of_them() -> None:
    found = choose_rates(draw_rates(800, width=40), ())
    size = len(json.dumps(found, separators=(",", ":")))
    assert MOST_BYTES - 100 < size <= MOST_BYTES
    assert len(found) < 400
