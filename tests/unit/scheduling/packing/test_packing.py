"""Greedy, improver and bound against the slow twin that tries everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.scheduling.packing.bound import compute_certified_bound, round_rooms
from dovetail.scheduling.packing.columns import start_columns
from dovetail.scheduling.packing.dive import repack_nodes
from dovetail.scheduling.packing.fill import build_weights, fill_nodes, tilt_worths
from dovetail.scheduling.packing.greedy import pack_greedily
from dovetail.scheduling.packing.improve import QUICK, THOROUGH, Effort, pack_problem, split_components
from dovetail.scheduling.packing.lp import compute_worths
from dovetail.scheduling.packing.problem import (
    PackingProblem,
    RemainingPods,
    can_share_out,
    find_undominated,
    sum_cost,
)
from support.slow_packing import cheapest, problem, row_objections

SMALL = problem([[2, 2], [1, 3], [3, 1]], [3, 2, 2], [[4, 4], [8, 8], [6, 3]], [1.0, 1.8, 1.1])
PAIRS = problem([[3, 1], [1, 3]], [2, 2], [[4, 4]], [1.0])
SEATED = problem(
    [[1, 1], [1, 2], [2, 1]], [3, 2, 2], [[2, 2], [6, 6]], [1.0, 2.5], family=[0, 0, -1], limit=[1]
)
TWINS = problem(
    [[1, 1], [2, 1]],
    [4, 2],
    [[3, 3], [6, 6]],
    [1.0, 1.7],
    twins=[(2, 1, 1), ()],
    per_twin=[1, 1 << 30],
)
MASKED = problem(
    [[1, 1], [1, 1], [2, 2]],
    [3, 3, 1],
    [[2, 2], [4, 4]],
    [1.0, 1.5],
    allowed=[[True, False], [True, True], [False, True]],
)
ALL = {"small": SMALL, "pairs": PAIRS, "seated": SEATED, "twins": TWINS, "masked": MASKED}


@pytest.mark.parametrize("name", ALL)
def test_the_first_plan_is_complete_and_keeps_every_rule(name: str) -> None:
    packed = pack_problem(ALL[name], QUICK)

    assert row_objections(ALL[name], packed.rows) == []
    assert packed.cost == pytest.approx(sum_cost(ALL[name], packed.rows))


@pytest.mark.parametrize("name", ALL)
def test_the_improved_plan_is_within_a_tenth_of_the_best_there_is(name: str) -> None:
    packed = pack_problem(ALL[name], THOROUGH)

    assert row_objections(ALL[name], packed.rows) == []
    assert packed.cost <= 1.1 * cheapest(ALL[name])
    assert packed.cost <= pack_problem(ALL[name], QUICK).cost + 1e-9


@pytest.mark.parametrize("name", ALL)
def test_the_bound_is_under_the_optimum_and_above_nothing(name: str) -> None:
    bound = compute_certified_bound(ALL[name])

    assert 0 < bound <= cheapest(ALL[name]) + 1e-9


def test_the_bound_takes_running_nodes_for_nothing() -> None:
    room = np.array([[4.0, 4.0, 10.0]])
    allowed = np.ones((2, 1), bool)

    assert compute_certified_bound(PAIRS) == pytest.approx(2.0, rel=1e-6)
    assert compute_certified_bound(PAIRS, room, allowed) <= 1.0 + 1e-9


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(st.tuples(st.integers(4, 14), st.integers(4, 14), st.integers(1, 9)), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_the_bound_of_pods_that_are_all_alike_is_what_they_cost(
    pods: int, request: tuple[int, int], options: list[tuple[int, int, int]], limit: int
) -> None:
    alike = problem(
        [request],
        [pods],
        [each[:2] for each in options],
        [float(each[2]) for each in options],
        family=[0 if limit else -1],
        limit=[limit] if limit else [],
    )

    assert compute_certified_bound(alike) == pytest.approx(cheapest(alike))


def test_the_bound_adds_up_pods_that_share_no_option() -> None:
    allowed = [[True, False], [False, True]]
    both = problem([[1, 1], [1, 1]], [3, 3], [[2, 2], [2, 2]], [1.0, 7.0], allowed)

    assert compute_certified_bound(both) == pytest.approx(2 * 1.0 + 2 * 7.0)


def test_the_bound_knows_that_whole_pods_leave_some_room_empty() -> None:
    # Requests of 6 and 4 add up to 10 in a node of 11, and to 4 or 6 in one of 7.
    pair = problem([[6, 1], [4, 1]], [10, 10], [[11, 99], [7, 99]], [1.0, 0.6])

    assert compute_certified_bound(pair) == pytest.approx(10.0, rel=1e-4)


@pytest.mark.parametrize("amounts", [[2], [3, 5], [4, 6, 9], [7]])
def test_what_requests_can_add_up_to_is_the_same_counted_one_by_one(amounts: list[int]) -> None:
    sums = {0}
    for most in range(1, 60):
        sums |= {most} if any(most - each in sums for each in amounts) else set()
    tight = problem(
        [[each, 1] for each in amounts], [1] * len(amounts), [[n, 99] for n in range(60)], [1.0] * 60
    )

    rounded = round_rooms(tight)[:, 0]

    assert rounded.tolist() == [max(each for each in sums if each <= n) for n in range(60)]


def test_the_bound_of_no_pods_is_nothing() -> None:
    assert compute_certified_bound(problem([[1, 1]], [0], [[4, 4]], [1.0])) == 0.0


def test_a_pod_worth_counts_the_seat_it_needs() -> None:
    alone = problem([[1, 1]], [4], [[8, 8]], [2.0], family=[0], limit=[1])
    shared = problem([[1, 1]], [4], [[8, 8]], [2.0])

    assert compute_worths(alone)[0] == pytest.approx(2.0)
    assert compute_worths(shared)[0] == pytest.approx(0.25)


def test_a_fill_never_takes_more_than_there_is_or_than_fits() -> None:
    options = np.array([0, 1, 2])
    counts = fill_nodes(
        SMALL, options, build_weights(3)[:3], tilt_worths(SMALL, compute_worths(SMALL)), SMALL.count
    )

    assert (counts <= SMALL.count).all()
    assert (counts @ SMALL.request <= SMALL.room[options]).all()
    assert counts.any(axis=1).all()


def test_pods_that_want_no_devices_do_not_mind_nodes_without_any() -> None:
    devices = problem([[1, 1, 0], [1, 1, 1]], [3, 2], [[4, 4, 0], [4, 4, 2]], [1.0, 5.0])
    packed = pack_problem(devices, THOROUGH)

    assert row_objections(devices, packed.rows) == []
    assert packed.cost == pytest.approx(cheapest(devices))


def test_a_fill_takes_one_of_a_family_and_no_relative_of_it() -> None:
    counts = fill_nodes(
        SEATED, np.array([1]), build_weights(3)[:1], tilt_worths(SEATED, compute_worths(SEATED)), SEATED.count
    )

    assert counts[0, :2].sum() == 1


def test_beaten_options_are_dropped_and_equal_ones_kept_once() -> None:
    room = np.array([[4.0, 4.0], [4.0, 4.0], [2.0, 2.0], [8.0, 8.0]])
    kept = find_undominated(room, np.array([1.0, 1.0, 1.5, 3.0]))

    assert kept.tolist() == [0, 3]


def test_problems_that_share_no_option_are_cut_apart() -> None:
    apart = problem(
        [[1, 1], [1, 1], [1, 1]],
        [2, 2, 2],
        [[4, 4], [4, 4]],
        [1.0, 2.0],
        allowed=[[True, False], [False, True], [True, False]],
    )
    parts = split_components(apart)

    assert [part.classes.tolist() for part in parts] == [[0, 2], [1]]
    assert row_objections(apart, pack_problem(apart, THOROUGH).rows) == []


def test_twins_are_shared_out_only_if_no_host_needs_the_same_service_twice() -> None:
    assert can_share_out((2, 1, 1), 1, np.array([3, 1]))
    assert not can_share_out((3, 1), 1, np.array([2, 2]))
    assert can_share_out((3, 1), 2, np.array([2, 2]))


def test_stock_gives_as_many_copies_as_twins_allow() -> None:
    stock = RemainingPods(TWINS)

    assert stock.count_copies(np.array([2, 1])) == 2
    stock.take_pods(np.array([3, 0]))
    assert stock.compute_cap()[0] == 1
    assert stock.left.tolist() == [1, 2]


def test_host_rules_alone_ask_for_a_number_of_nodes() -> None:
    seated = problem([[1, 1]] * 3, [5, 2, 50], [[9, 9]], [1.0], family=[0, 0, -1], limit=[3])
    shared = problem([[1, 1]] * 2, [9, 50], [[9, 9]], [1.0], twins=[[7, 2], []], per_twin=[2, 0])
    both = problem(
        [[1, 1]] * 2, [4, 9], [[9, 9]], [1.0], family=[0, -1], limit=[1], twins=[[], [9]], per_twin=[0, 3]
    )

    assert RemainingPods(seated).count_nodes_needed() == 3  # 7 pods by threes
    assert RemainingPods(shared).count_nodes_needed() == 4  # 7 pods of one service by twos
    assert RemainingPods(both).count_nodes_needed() == 4
    assert RemainingPods(SMALL).count_nodes_needed() == 0
    left = RemainingPods(seated)
    left.take_pods(np.array([1, 2, 0]))
    assert left.count_nodes_needed() == 2


def test_repacking_never_makes_a_plan_dearer() -> None:
    worth = compute_worths(SMALL)
    rows = pack_greedily(SMALL, worth, build_weights(3)[:1])
    rng = np.random.Generator(np.random.PCG64(3))
    columns = start_columns(SMALL, rows, build_weights(3), worth)
    better = repack_nodes(columns, rows, worth, 30, rng, 0.0)

    assert sum_cost(SMALL, better) <= sum_cost(SMALL, rows) + 1e-9
    assert row_objections(SMALL, better) == []


def test_the_same_problem_gives_the_same_plan_and_another_seed_no_invalid_one() -> None:
    def shown(given: PackingProblem, effort: Effort) -> list[tuple[int, tuple[int, ...], int]]:
        return [(r.option, tuple(r.counts.tolist()), r.copies) for r in pack_problem(given, effort).rows]

    assert shown(SMALL, THOROUGH) == shown(SMALL, THOROUGH)
    for seed in range(5):
        rows = pack_problem(SMALL, Effort(seed=seed)).rows
        packed = np.sum([row.counts * row.copies for row in rows], axis=0)
        assert packed.tolist() == SMALL.count.tolist()


def test_stopping_at_once_still_gives_a_complete_plan() -> None:
    packed = pack_problem(SMALL, THOROUGH, should_stop=lambda: True)

    assert row_objections(SMALL, packed.rows) == []


def test_a_pod_too_large_for_everything_is_said_to_fit_nowhere() -> None:
    with pytest.raises(ValueError, match="fits none"):
        pack_greedily(problem([[9, 9]], [1], [[4, 4]], [1.0]), np.ones(1), build_weights(3)[:1])


def test_at_equal_prices_for_equal_room_fewer_nodes_win() -> None:
    linear = problem([[1, 1]], [16], [[2, 2], [4, 4], [16, 16]], [1.0, 2.0, 8.0])
    packed = pack_problem(linear, THOROUGH)

    assert packed.cost == pytest.approx(8.0)
    assert sum(row.copies for row in packed.rows) == 1
