"""Clusters left alone: budgets, PDBs and holds are kept at every instant, and all of them come to rest.

A few seeds here, as many as one likes with `python hack/calm.py --seeds 2000`.
"""

from __future__ import annotations

import pytest

from dovetail.controllers.orchestration import DisruptionQueue
from dovetail.disruption.budgets import Allowance
from support.calm import Cluster, Restless, watch


@pytest.mark.parametrize("seed", range(8))
def test_a_cluster_left_alone_comes_to_rest(seed: int) -> None:
    assert "at rest" in watch(seed).diary[-1]


@pytest.mark.parametrize("seed", [420, 1190], ids=["one for one", "several for several"])
def test_a_scheduler_that_does_not_follow_the_plan_makes_nothing_dearer_and_nothing_restless(
    seed: int,
) -> None:
    assert "at rest" in watch(seed).diary[-1]


def test_a_loop_that_counts_no_budget_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "take", lambda self, pool: True)
    monkeypatch.setattr(Allowance, "count_left", lambda self, pool: 1000)
    with pytest.raises(Restless, match=r"may lose \d+ at once"):
        watch(3)


def test_marks_that_are_left_behind_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: DisruptionQueue, names: object) -> None:
        return None

    monkeypatch.setattr(DisruptionQueue, "release_nodes", nothing)
    with pytest.raises(Restless, match="still marked"):
        watch(3)


def test_the_clusters_are_not_all_alike() -> None:
    made = [Cluster.of(seed) for seed in range(60)]
    assert any(each.drifts for each in made)
    assert any(each.failures for each in made)
    assert any(each.flags for each in made)
    assert any(guarded for each in made for *_, guarded, _ in each.workloads)
    assert any(held for each in made for *_, held in each.workloads)
