"""Which zone each pod goes to."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.zone_assignment import (
    ZoneAffinity,
    ZoneSpread,
    assign_zones,
    level_zones,
    share_by_weight,
)

NOBODY = np.zeros(8, bool)


def everywhere(groups: int, zones: int = 3) -> np.ndarray:
    return np.ones((groups, zones), bool)


def test_water_rises_in_the_lowest_zones_first() -> None:
    have = np.array([5, 0, 2])
    poured = level_zones(6, have, np.ones(3, bool), np.zeros(3))

    assert poured.tolist() == [0, 4, 2]
    assert poured.sum() == 6


def test_odd_pods_go_to_the_zone_with_least_on_it() -> None:
    poured = level_zones(4, np.zeros(3, np.int64), np.ones(3, bool), np.array([3.0, 1.0, 2.0]))

    assert poured.tolist() == [1, 2, 1]


def test_closed_zones_get_nothing() -> None:
    assert level_zones(4, np.zeros(3, np.int64), np.array([True, False, True]), np.zeros(3)).tolist() == [
        2,
        0,
        2,
    ]


def test_sharing_by_weight_gives_out_everything_once() -> None:
    assert share_by_weight(10, np.array([1.0, 1.0, 2.0])).tolist() == [3, 2, 5]
    assert share_by_weight(7, np.array([0.0, 1.0, 0.0])).tolist() == [0, 7, 0]


def test_all_members_of_a_spread_are_dealt_evenly_whoever_carries_it() -> None:
    count = np.array([5, 4, 3])
    spread = ZoneSpread(members=(0, 1), skew=1, before=(0, 0, 0), zones=(True, True, True), owners=(2,))
    dealt, failed = assign_zones(count, np.ones(3), everywhere(3), [spread], [], NOBODY[:3])

    assert not failed
    assert dealt.sum(axis=1).tolist() == [5, 4, 3]
    counted = dealt[:2].sum(axis=0)
    assert counted.max() - counted.min() <= 1


def test_pods_that_run_already_count_in_the_balance() -> None:
    spread = ZoneSpread(members=(0,), skew=1, before=(4, 0, 0), zones=(True, True, True))
    dealt, failed = assign_zones(np.array([8]), np.ones(1), everywhere(1), [spread], [], NOBODY[:1])

    assert not failed
    assert dealt[0].tolist() == [0, 4, 4]


def test_a_spread_that_cannot_be_kept_fails_as_a_whole() -> None:
    spread = ZoneSpread(members=(0,), skew=1, before=(9, 0, 0), zones=(True, True, True), owners=(0, 1))
    _, failed = assign_zones(np.array([2, 1]), np.ones(2), everywhere(2), [spread], [], NOBODY[:2])

    assert failed == {0, 1}


def test_what_belongs_together_shares_a_zone_where_its_company_is() -> None:
    company = ZoneAffinity(members=(0, 1), zones=(False, True, False))
    dealt, failed = assign_zones(np.array([3, 2]), np.ones(2), everywhere(2), [], [company], NOBODY[:2])

    assert not failed
    assert dealt.tolist() == [[0, 3, 0], [0, 2, 0]]


def test_sets_go_to_the_emptiest_zone_largest_first() -> None:
    sets = [ZoneAffinity(members=(0,)), ZoneAffinity(members=(1,)), ZoneAffinity(members=(2,))]
    dealt, _ = assign_zones(np.array([2, 9, 4]), np.ones(3), everywhere(3), [], sets, NOBODY[:3])

    assert sorted(dealt.sum(axis=0).tolist()) == [2, 4, 9]


def test_a_group_without_any_open_zone_fails_alone() -> None:
    open_ = everywhere(2)
    open_[1] = False
    dealt, failed = assign_zones(np.array([2, 2]), np.ones(2), open_, [], [], NOBODY[:2])

    assert failed == {1}
    assert dealt[0].sum() == 2


def test_free_pods_follow_the_pods_that_are_bound_to_zones() -> None:
    open_ = np.array([[True, False, False], [True, True, True]])
    spread = ZoneSpread(members=(0,), skew=99, before=(0, 0, 0), zones=(True, False, False))
    dealt, _ = assign_zones(np.array([6, 6]), np.ones(2), open_, [spread], [], NOBODY[:2])

    assert dealt[1].tolist() == [6, 0, 0]


def test_room_on_running_nodes_draws_free_pods() -> None:
    dealt, _ = assign_zones(
        np.array([6]), np.ones(1), everywhere(1), [], [], NOBODY[:1], np.array([0.0, 0.0, 6.0])
    )

    assert dealt[0].tolist() == [0, 0, 6]
