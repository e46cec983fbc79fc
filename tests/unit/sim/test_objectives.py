"""Promises a run is held to."""

from __future__ import annotations

import pytest

from dovetail.sim.run_recorder import ObservedWorkload, judge_objectives
from dovetail.sim.scenario import ScenarioObjective

SEEN = {
    "web": ObservedWorkload(waits=[1, 2, 3, 100], presence=[(9, 10), (10, 10), (5, 10), (0, 0)], evictions=3),
    "jobs": ObservedWorkload(waits=[500], evictions=0),
}


def test_a_pod_that_waits_longer_than_promised_is_counted() -> None:
    (kept,) = judge_objectives(
        [ScenarioObjective(workload="web", pending_within="60s", share=0.75)], SEEN, 1.0
    )
    assert (kept.kept, kept.broken, kept.measured) == (True, 1, "0.7500")

    (broken,) = judge_objectives([ScenarioObjective(workload="web", pending_within="60s")], SEEN, 1.0)
    assert not broken.kept


def test_a_promise_without_a_workload_is_about_all_of_them() -> None:
    (kept,) = judge_objectives([ScenarioObjective(pending_within="60s", share=0.75)], SEEN, 1.0)
    assert (kept.kept, kept.broken) == (False, 2)


@pytest.mark.parametrize(
    ("least", "share", "kept", "below"), [(0.9, 0.6, True, 1), (0.9, 1, False, 1), (1, 0.5, False, 2)]
)
def test_availability_is_judged_at_every_sample_that_wanted_pods(
    least: float, share: float, kept: bool, below: int
) -> None:
    (found,) = judge_objectives([ScenarioObjective(workload="web", available=least, share=share)], SEEN, 1.0)
    assert (found.kept, found.broken) == (kept, below)
    assert found.measured.endswith("0.5000 at worst")


def test_evictions_are_judged_by_the_hour() -> None:
    (fine,) = judge_objectives([ScenarioObjective(evictions_per_hour=3)], SEEN, 1.0)
    (broken,) = judge_objectives([ScenarioObjective(evictions_per_hour=3)], SEEN, 0.5)
    assert (fine.kept, fine.broken) == (True, 0)
    assert (broken.kept, broken.measured) == (False, "6.000 an hour")


def test_several_promises_in_one_objective_are_judged_one_by_one() -> None:
    found = judge_objectives(
        [ScenarioObjective(pending_within="1h", available=0.1, evictions_per_hour=9)], SEEN, 1.0
    )
    assert [each.kept for each in found] == [True, True, True]
