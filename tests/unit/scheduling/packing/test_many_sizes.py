"""Thousands of pods of thousands of sizes: packed as a few hundred, and still in truth."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.batch import PackingBatch
from dovetail.scheduling.packing.bulk import MOST_SIZES, coarsen_sizes, compute_batch_bound, pack_batch
from dovetail.scheduling.packing.improve import QUICK
from support.slow_packing import objections


def sizes(count: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(4))
    return np.column_stack([rng.integers(100, 4000, count), rng.integers(100, 9000, count), np.ones(count)])


def test_few_sizes_are_left_as_they_are() -> None:
    few = sizes(50).astype(float)

    assert coarsen_sizes(few, up=True) is few


def test_many_sizes_become_few_that_are_never_too_small_or_for_a_bound_too_large() -> None:
    many = sizes(2000).astype(float)
    up, down = coarsen_sizes(many, up=True), coarsen_sizes(many, up=False)

    assert len(np.unique(up, axis=0)) <= MOST_SIZES
    assert (up >= many).all()
    assert (down <= many).all()


def test_a_batch_of_many_sizes_is_packed_within_real_room_and_above_its_bound() -> None:
    groups = 1200
    batch = PackingBatch(
        request=sizes(groups).astype(float),
        count=np.ones(groups, np.int64),
        mask=np.zeros(groups, np.int64),
        takes=np.ones((1, 3), bool),
        open=np.ones((groups, 1), bool),
        room=np.array([[8000.0, 16000.0, 50.0], [16000.0, 32000.0, 50.0], [16000.0, 64000.0, 50.0]]),
        price=np.array([[1.0], [1.95], [2.4]]),
        pinned=np.zeros(groups, bool),
    )
    plan = pack_batch(batch, QUICK)

    assert objections(batch, plan) == []
    assert plan.complete
    assert 0 < compute_batch_bound(batch) <= plan.cost
