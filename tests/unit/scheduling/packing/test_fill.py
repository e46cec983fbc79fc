"""Filling many rows at once against a slow twin that fills one row at a time, pod by pod of the same rule."""

from __future__ import annotations

from dataclasses import replace
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.scheduling.packing.fill import build_weights, fill_nodes
from dovetail.scheduling.packing.greedy import GreedyPacking, pack_together
from dovetail.scheduling.packing.problem import (
    PackingProblem,
    find_column_kinds,
    index_distinct,
    list_distinct_rows,
)
from support.slow_packing import row_objections

MOST = 1 << 30


@st.composite
def problems(draw: st.DrawFn) -> PackingProblem:
    classes, options = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    amount = st.integers(0, 9)

    def numbers(rows: int, columns: int, each: st.SearchStrategy[int]) -> np.ndarray:
        cells = draw(st.lists(each, min_size=rows * columns, max_size=rows * columns))
        return np.array(cells).reshape(rows, columns)

    request = np.hstack([numbers(classes, 2, amount), np.ones((classes, 1))]).astype(float)
    room = np.hstack([numbers(options, 2, st.integers(0, 40)), numbers(options, 1, st.integers(1, 12))])
    limits = draw(st.lists(st.integers(1, 3), max_size=2))
    return PackingProblem(
        request=request,
        count=numbers(classes, 1, st.integers(0, 8)).ravel(),
        room=room.astype(float),
        price=np.ones(options),
        allowed=numbers(classes, options, st.integers(0, 3)) > 0,
        family=numbers(classes, 1, st.integers(-1, len(limits) - 1)).ravel(),
        limit=np.array(limits, np.int64),
    )


def fill_slowly(problem: PackingProblem, option: int, weight: np.ndarray, drive: np.ndarray) -> list[int]:
    """One row: the class with most worth for its share of what is left, and half of what fits of it."""
    left = problem.room[option].copy()
    cap = [
        min(int(n), int(problem.limit[f]) if f >= 0 else MOST)
        for n, f in zip(problem.count, problem.family, strict=True)
    ]
    taken = [0] * problem.classes
    while True:
        best, most = -1, 0.0
        for c, request in enumerate(problem.request):
            if not problem.allowed[c, option] or cap[c] < 1 or (request > left).any():
                continue
            share = float(((weight / np.maximum(left, 1e-9)) @ request[:, None])[0])
            if drive[c] / share > most * (1 + 1e-12):
                best, most = c, float(drive[c] / share)
        if best < 0:
            return taken
        request = problem.request[best]
        fits = min(left[k] / request[k] for k in range(3) if request[k])
        many = max(1, floor(min(fits + 1e-10, cap[best]) / 2))
        taken[best] += many
        left -= many * request
        kin = problem.family[best]
        for c in range(problem.classes):
            if c == best or (kin >= 0 and problem.family[c] == kin):
                cap[c] -= many


@settings(max_examples=150)
@given(problems(), st.integers(0, 1000))
def test_all_rows_together_are_filled_as_each_alone(problem: PackingProblem, seed: int) -> None:
    chance = np.random.default_rng(seed)
    options = np.repeat(np.arange(len(problem.price)), 3)
    weight = chance.uniform(0.1, 3.0, (len(options), 3))
    drive = chance.uniform(0.1, 1.0, (len(options), problem.classes))
    found = fill_nodes(problem, options, weight, drive, problem.count)
    for row, option in enumerate(options.tolist()):
        assert found[row].tolist() == fill_slowly(problem, option, weight[row], drive[row])


def test_one_worth_for_all_rows_is_the_same_as_one_for_each() -> None:
    problem = PackingProblem(
        request=np.array([[2.0, 1.0, 1.0], [1.0, 3.0, 1.0]]),
        count=np.array([9, 9]),
        room=np.array([[20.0, 20.0, 10.0], [7.0, 30.0, 4.0]]),
        price=np.ones(2),
        allowed=np.ones((2, 2), bool),
        family=np.array([-1, -1]),
        limit=np.zeros(0, np.int64),
    )
    options, weight, drive = np.array([0, 1]), np.ones((2, 3)), np.array([1.0, 1.3])
    once = fill_nodes(problem, options, weight, drive, problem.count)
    assert (
        once.tolist() == fill_nodes(problem, options, weight, np.tile(drive, (2, 1)), problem.count).tolist()
    )
    assert (once @ problem.request <= problem.room[options]).all()
    assert once.any()


@given(st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3), min_size=1, max_size=12))
def test_distinct_rows_and_values_are_those_numpy_finds(rows: list[list[int]]) -> None:
    table = np.array(rows, np.int64)
    assert list_distinct_rows(table).tolist() == np.unique(table, axis=0).tolist()
    values, at = index_distinct(table[:, 0])
    known, where = np.unique(table[:, 0], return_inverse=True)
    assert (values.tolist(), at.tolist()) == (known.tolist(), where.tolist())
    flags = table.T > 200
    first, kind = find_column_kinds(flags)
    _, index, inverse = np.unique(np.packbits(flags, axis=0), axis=1, return_index=True, return_inverse=True)
    assert (first.tolist(), kind.tolist()) == (index.tolist(), inverse.ravel().tolist())


@pytest.mark.parametrize("count", [[0, 0], [3, 0]])
def test_what_there_is_none_of_is_not_taken(count: list[int]) -> None:
    problem = PackingProblem(
        request=np.ones((2, 3)),
        count=np.array(count),
        room=np.full((1, 3), 10.0),
        price=np.ones(1),
        allowed=np.ones((2, 1), bool),
        family=np.array([-1, -1]),
        limit=np.zeros(0, np.int64),
    )
    found = fill_nodes(problem, np.zeros(1, np.int64), np.ones((1, 3)), np.ones(2), problem.count)
    assert found.tolist() == [count]


@settings(max_examples=25, deadline=None)
@given(st.lists(problems(), min_size=2, max_size=4))
def test_problems_packed_side_by_side_keep_their_own_pods_and_rules(several: list[PackingProblem]) -> None:
    weights = build_weights(3)[:2]
    packable = [
        replace(each, count=np.where(each.compute_fits().any(axis=1), each.count, 0)) for each in several
    ]
    worth = [each.request.sum(axis=1) for each in packable]

    together = pack_together(
        [GreedyPacking(each, own, weights) for each, own in zip(packable, worth, strict=True)]
    )

    for each, rows in zip(packable, together, strict=True):
        held = sum((row.counts * row.copies for row in rows), np.zeros(each.classes, np.int64))
        assert held.tolist() == each.count.tolist()
        assert row_objections(each, rows) == []
