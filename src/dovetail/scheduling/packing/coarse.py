"""Fewer sizes when there are too many: pods of nearly one size are packed as if they were of one.

Ten thousand pods of ten thousand sizes are as many classes as pods, and nothing is decided together any
more. Sizes then count as the largest of their kind, so that whatever is packed fits; for a bound, which must
not promise too much, as the smallest.
"""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.problem import Bools, Floats, Ints

__all__ = ["MOST_SIZES", "coarse", "kept_where"]

MOST_SIZES = 400
_STEPS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


def coarse(request: Floats, up: bool) -> Floats:
    """The requests with at most about MOST_SIZES different rows; themselves when they are few enough."""
    if len(request) <= MOST_SIZES or len(np.unique(request, axis=0)) <= MOST_SIZES:
        return request
    kinds = _kinds(request)
    order = np.argsort(kinds, kind="stable")
    starts = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    extreme = np.maximum if up else np.minimum
    return np.asarray(extreme.reduceat(request[order], starts, axis=0)[kinds])


def _kinds(request: Floats) -> Ints:
    """Rows whose amounts differ by no more than a step are of one kind; the finest step that will do."""
    logs = np.log(np.maximum(request, 1e-9))
    kinds = np.zeros(len(request), np.int64)
    for step in _STEPS:
        _, kinds = np.unique(np.ceil(logs / np.log1p(step)), axis=0, return_inverse=True)
        if int(kinds.max()) < MOST_SIZES:
            break
    return np.asarray(kinds.ravel(), np.int64)


def kept_where(same: Bools, sizes: Floats, request: Floats) -> Floats:
    """The coarse sizes, but each row's own request where the coarse one would change where it can go."""
    return np.where(same[:, None], sizes, request)
