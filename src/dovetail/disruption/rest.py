"""Rest: in a world where nothing was found to do, nothing will be for as long as it stays the same.

Between two turns of a calm cluster nothing changes, and to see that costs a comparison of identities.
"""

from __future__ import annotations

from msgspec.structs import fields, replace

from dovetail.api import conditions
from dovetail.api.nodepool import NodePool
from dovetail.disruption import churn, waves
from dovetail.disruption.allowance import allowances
from dovetail.disruption.candidates import Scene
from dovetail.disruption.command import DRIFTED, EMPTY, MULTI
from dovetail.disruption.setbacks import setbacks_of, waits_told
from dovetail.scheduling import nodes as views
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["Rest"]

_COMPARED = tuple(each.name for each in fields(Snapshot) if each.name not in ("nodes", "options"))
_REASONS = tuple(dict.fromkeys(method.reason for method in (EMPTY, DRIFTED, MULTI)))


class Rest:
    """The world in which every method found nothing, for no longer than `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._scene: Scene | None = None
        self._since = 0.0

    def begin(self, scene: Scene, now: float) -> None:
        """Nothing was found in this world."""
        self._scene, self._since = (None if _watched(scene) else scene), now

    def holds(self, scene: Scene, now: float) -> bool:
        """Whether this is still that world, with budgets that allow what they allowed then."""
        before = self._scene
        if before is None or now - self._since >= self._limit:
            return False
        return _same(before, scene) and _left(before) == _left(scene.counted_as(before))


def _watched(scene: Scene) -> bool:
    """Something goes by the clock alone: a rest between moves, or nodes that have to come up first."""
    pools = scene.pools.values()
    if any(churn.knobs(pool).rest or conditions.find(pool, conditions.DRIFT_PAUSED) for pool in pools):
        return True
    if any(_waits(pool, scene) for pool in pools):
        return True
    return any(map(waves.guarded, pools)) and not all(map(views.initialized, scene.snapshot.nodes))


def _waits(pool: NodePool, scene: Scene) -> bool:
    """After a loss: until the wait is over, and its condition gone."""
    waits = waits_told(setbacks_of(pool), scene.snapshot.options.now)
    return bool(waits) or conditions.find(pool, conditions.REPLACEMENTS_LOST) is not None


def _left(scene: Scene) -> list[tuple[int, ...]]:
    found = [allowances(scene, reason) for reason in _REASONS]
    return [tuple(each.left(pool) for each in found) for pool in scene.pools]


def _same(before: Scene, now: Scene) -> bool:
    old, new = before.snapshot, now.snapshot
    if len(old.nodes) != len(new.nodes) or any(a is not b for a, b in zip(old.nodes, new.nodes, strict=True)):
        return False
    if (before.queued, before.buffered, before.shifted) != (now.queued, now.buffered, now.shifted):
        return False
    if replace(old.options, now=new.options.now) != new.options:
        return False
    pairs = ((getattr(old, name), getattr(new, name)) for name in _COMPARED)
    return all(a is b or a == b for a, b in pairs)
