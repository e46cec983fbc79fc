"""How many nodes each pool has, and how many of them are down or on their way out."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from dovetail.api import conditions
from dovetail.scheduling import nodes as views
from dovetail.scheduling.snapshot import Snapshot, StateNode

__all__ = ["Standing", "count"]


class Standing(NamedTuple):
    """Nodes by pool: all that count, and those of them that are down."""

    totals: dict[str, int]
    consumed: dict[str, int]


def count(snapshot: Snapshot, queued: AbstractSet[str]) -> Standing:
    """`queued` are the keys of nodes already being disrupted."""
    found = Standing({}, {})
    for state in snapshot.nodes:
        if _counts(state):
            pool = views.pool(state)
            found.totals[pool] = found.totals.get(pool, 0) + 1
            found.consumed[pool] = found.consumed.get(pool, 0) + _is_down(state, queued)
    return found


def _counts(state: StateNode) -> bool:
    if state.claim is None or state.node is None or not views.initialized(state):
        return False
    return not conditions.is_true(state.claim, conditions.INSTANCE_TERMINATING)


def _is_down(state: StateNode, queued: AbstractSet[str]) -> bool:
    assert state.node is not None
    ready = state.node.status.condition("Ready")
    unready = ready is None or ready.status != "True"
    return unready or views.deleting(state) or views.provider_id(state) in queued
