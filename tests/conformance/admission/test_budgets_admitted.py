"""Which disruption budgets may be stored."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.validation import admit_object
from support.admission import full_object

GOOD: list[dict[str, Any]] = [
    {"nodes": "10"},
    {"nodes": "100%"},
    {"nodes": "10", "schedule": "0 9 * * mon-fri", "duration": "8h30m"},
    *({"nodes": "1", "schedule": each, "duration": "1h"} for each in ("@yearly", "@monthly", "@hourly")),
    {"nodes": "0", "reasons": ["Empty", "Drifted", "Underutilized"]},
]
BAD: list[dict[str, Any]] = [
    {"nodes": "-10"},
    {"nodes": "-10%"},
    {"nodes": "1000%"},
    {"nodes": "10", "schedule": "@daily", "duration": "30s"},
    {"nodes": "10", "schedule": "@daily", "duration": "-1h"},
    {"nodes": "10", "schedule": "@daily"},
    {"nodes": "10", "duration": "1h"},
    {"nodes": "10", "schedule": "@never", "duration": "1h"},
    {"nodes": "10", "reasons": ["expired"]},
]


def complaints(budget: dict[str, Any]) -> int:
    pool = full_object("NodePool")
    pool["spec"]["disruption"]["budgets"] = [budget]
    return len(admit_object("NodePool", pool))


@pytest.mark.spec("disruption-45")
@pytest.mark.parametrize("budget", GOOD, ids=str)
def test_a_sound_budget_is_taken(budget: dict[str, Any]) -> None:
    assert complaints(budget) == 0


@pytest.mark.spec("disruption-45")
@pytest.mark.parametrize("budget", BAD, ids=str)
def test_an_unsound_budget_is_refused(budget: dict[str, Any]) -> None:
    assert complaints(budget) > 0
