"""A whole batch: zones, hosts, running nodes and new ones, judged by the slow twin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.scheduling.packing.batch import ExistingCapacity, PackingBatch
from dovetail.scheduling.packing.bulk import compute_batch_bound, pack_batch
from dovetail.scheduling.packing.host_rules import HostRule
from dovetail.scheduling.packing.improve import QUICK, Effort
from dovetail.scheduling.packing.zone_assignment import ZoneAffinity, ZoneSpread
from support.slow_packing import objections

SHORT = Effort(rounds=6, dives=2, repacks=2)


def batch(requests: list[list[float]], counts: list[int], zones: int = 2) -> PackingBatch:
    """Groups that may use any of three options, at the same price in every zone."""
    room = np.array([[4.0, 4.0, 50.0], [8.0, 8.0, 50.0], [16.0, 16.0, 50.0]])
    price = np.repeat(np.array([[1.0], [1.9], [3.7]]), zones, axis=1)
    groups = len(counts)
    return PackingBatch(
        request=np.array([[*each, 1.0] for each in requests]),
        count=np.array(counts, np.int64),
        mask=np.zeros(groups, np.int64),
        takes=np.ones((1, 3), bool),
        open=np.ones((groups, zones), bool),
        room=room,
        price=price,
        pinned=np.zeros(groups, bool),
    )


def spread(members: tuple[int, ...], zones: int = 2, skew: int = 1) -> ZoneSpread:
    return ZoneSpread(members, skew, (0,) * zones, (True,) * zones, members)


@pytest.mark.parametrize("effort", [QUICK, SHORT], ids=["first", "improved"])
def test_plain_pods_are_all_placed_on_nodes_of_no_particular_zone(effort: Effort) -> None:
    given = batch([[1, 1], [2, 1], [1, 3]], [7, 5, 4])
    plan = pack_batch(given, effort)

    assert objections(given, plan) == []
    assert plan.complete
    assert {node.zone for node in plan.new} == {-1}
    assert compute_batch_bound(given) <= plan.cost + 1e-9


@pytest.mark.parametrize("effort", [QUICK, SHORT], ids=["first", "improved"])
def test_spread_pods_are_even_over_zones_that_nodes_name(effort: Effort) -> None:
    given = replace(batch([[1, 1], [2, 1]], [9, 6]), spreads=(spread((0, 1)),), pinned=np.array([True, True]))
    plan = pack_batch(given, effort)

    assert objections(given, plan) == []
    assert plan.complete


def test_a_set_that_belongs_together_is_in_one_zone() -> None:
    given = replace(
        batch([[1, 1], [2, 1], [1, 1]], [4, 3, 5]),
        together=(ZoneAffinity((0, 1)),),
        pinned=np.array([True, True, False]),
    )
    plan = pack_batch(given, SHORT)

    assert objections(given, plan) == []
    assert len({node.zone for node in plan.new if set(node.pods) & {0, 1}}) == 1


def test_pods_that_may_not_share_a_host_get_hosts_of_their_own() -> None:
    alone = HostRule(frozenset({0, 1}), frozenset({0, 1}), 1, True)
    given = replace(batch([[1, 1], [1, 2], [1, 1]], [4, 3, 20]), hosts=(alone,))
    plan = pack_batch(given, SHORT)

    assert objections(given, plan) == []
    assert plan.complete
    assert sum(1 for node in plan.new if set(node.pods) & {0, 1}) == 7


def test_many_services_of_one_shape_share_hosts_but_no_two_pods_of_one() -> None:
    services = tuple(HostRule(frozenset({g}), frozenset({g}), 1) for g in range(4))
    given = replace(batch([[1, 1]] * 4, [5, 3, 2, 2]), hosts=services)
    plan = pack_batch(given, SHORT)

    assert objections(given, plan) == []
    assert plan.complete
    assert len(plan.new) >= 5


def test_a_rule_about_other_pods_is_kept_whichever_of_them_comes_first() -> None:
    crossed = HostRule(frozenset({0}), frozenset({1}), 1)
    given = replace(batch([[1, 1], [1, 1]], [4, 10]), hosts=(crossed,))
    plan = pack_batch(given, SHORT)

    assert objections(given, plan) == []
    assert plan.complete


def test_room_on_running_nodes_is_used_before_anything_is_bought() -> None:
    running = ExistingCapacity(
        room=np.array([[8.0, 8.0, 10.0], [2.0, 2.0, 10.0]]),
        zone=np.array([0, 1]),
        kind=np.zeros(1, np.int64),
        takes=np.array([[True, True]]),
    )
    given = replace(batch([[1, 1]], [9]), running=running)
    plan = pack_batch(given, QUICK)

    assert objections(given, plan) == []
    assert plan.new == []
    assert sum(plan.running[0].values()) == 8


def test_a_running_host_that_is_taken_lets_no_more_of_its_kind_in() -> None:
    one = HostRule(frozenset({0}), frozenset({0}), 1, True)
    running = ExistingCapacity(
        room=np.array([[8.0, 8.0, 10.0], [8.0, 8.0, 10.0]]),
        zone=np.array([0, 0]),
        kind=np.zeros(1, np.int64),
        takes=np.ones((1, 2), bool),
        counted={0: [(0, 1)]},
    )
    given = replace(batch([[1, 1]], [3]), running=running, hosts=(one,))
    plan = pack_batch(given, QUICK)

    assert objections(given, plan) == []
    assert set(plan.running) == {1}
    assert len(plan.new) == 2


def test_pods_no_option_takes_are_left_and_say_so() -> None:
    plan = pack_batch(batch([[1, 1], [99, 1]], [2, 3]), QUICK)

    assert plan.left.tolist() == [0, 3]
    assert not plan.complete


def test_the_same_batch_gives_the_same_plan_twice() -> None:
    given = replace(batch([[1, 1], [2, 1]], [9, 6]), spreads=(spread((0, 1)),), pinned=np.array([True, True]))

    assert pack_batch(given, SHORT).new == pack_batch(given, SHORT).new
