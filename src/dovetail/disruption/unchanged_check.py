"""An unchanged cluster: where nothing was found to disrupt, nothing will be until something changes.

Between two turns of a calm cluster nothing changes, and to see that costs a comparison of identities.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import fields, replace

from dovetail.api import conditions
from dovetail.api.nodepool import NodePool
from dovetail.disruption import policy
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.command import DRIFTED, EMPTY, MULTI
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.replacement_backoff import list_backoffs, read_setbacks
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["UnchangedCheck"]

_COMPARED = tuple(each.name for each in fields(Snapshot) if each.name not in ("nodes", "options"))
_REASONS = tuple(dict.fromkeys(method.reason for method in (EMPTY, DRIFTED, MULTI)))


class UnchangedCheck:
    """The world in which every method found nothing, for no longer than `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._inputs: DisruptionInput | None = None
        self._since = 0.0

    def remember_input(self, inputs: DisruptionInput, now: float) -> None:
        """Nothing was found in this world."""
        self._inputs, self._since = (None if _depends_on_clock(inputs) else inputs), now

    def is_unchanged(self, inputs: DisruptionInput, now: float) -> bool:
        """Whether this is still that world, with budgets that allow what they allowed then."""
        before = self._inputs
        if before is None or now - self._since >= self._limit:
            return False
        if not _is_same_input(before, inputs):
            return False
        counted = inputs.with_facts(dataclasses.replace(inputs.facts, pool_counts=before.pool_counts))
        return _list_left(before) == _list_left(counted)


def _depends_on_clock(inputs: DisruptionInput) -> bool:
    """Something goes by the clock alone: a rest between moves, or nodes that have to come up first."""
    pools = inputs.pools.values()
    if any(
        policy.read_policy(pool).rest or conditions.find_condition(pool, conditions.DRIFT_PAUSED)
        for pool in pools
    ):
        return True
    if any(_is_backing_off(pool, inputs) for pool in pools):
        return True
    return any(map(drift_waves.can_pause, pools)) and not all(
        map(views.is_initialized, inputs.snapshot.nodes)
    )


def _is_backing_off(pool: NodePool, inputs: DisruptionInput) -> bool:
    """After a loss: until the wait is over, and its condition gone."""
    waits = list_backoffs(read_setbacks(pool), inputs.snapshot.options.now)
    return bool(waits) or conditions.find_condition(pool, conditions.REPLACEMENTS_LOST) is not None


def _list_left(inputs: DisruptionInput) -> list[tuple[int, ...]]:
    found = [compute_allowances(inputs, reason) for reason in _REASONS]
    return [tuple(each.count_left(pool) for each in found) for pool in inputs.pools]


def _is_same_input(before: DisruptionInput, now: DisruptionInput) -> bool:
    old, new = before.snapshot, now.snapshot
    if len(old.nodes) != len(new.nodes) or any(a is not b for a, b in zip(old.nodes, new.nodes, strict=True)):
        return False
    if (before.queued, before.buffered, before.excluded_zones) != (
        now.queued,
        now.buffered,
        now.excluded_zones,
    ):
        return False
    if replace(old.options, now=new.options.now) != new.options:
        return False
    pairs = ((getattr(old, name), getattr(new, name)) for name in _COMPARED)
    return all(a is b or a == b for a, b in pairs)
