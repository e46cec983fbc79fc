"""Keeps the DriftPaused condition of pools: drift stops where new nodes do not come up, and goes on again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.api import conditions
from dovetail.api.conditions import DRIFT_PAUSED
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.disruption import churn, waves
from dovetail.disruption.candidates import Scene
from dovetail.disruption.waves import Gate
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube, Recorder

__all__ = ["DriftGate"]


class DriftGate:
    """Writes down where the drift of each pool stands; what follows from it is dovetail.disruption's."""

    def __init__(
        self,
        kube: Kube,
        pools: Cache[NodePool],
        clock: Clock,
        recorder: Recorder,
        defaults: Mapping[str, str],
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._recorder = recorder
        self._defaults = defaults

    async def lost(self, names: Iterable[str]) -> None:
        """A replacement of a drifted node of these pools did not come: the others wait."""
        for name in names:
            try:
                # As it is now: what was lost was noted on it a moment ago.
                pool = await self._kube.get(NodePool, name)
            except Gone:
                continue
            if not waves.guarded(churn.with_defaults(pool, self._defaults)):
                continue
            # Cleared first, so that it counts from now even if it was lost before.
            fresh = conditions.clear(pool, DRIFT_PAUSED)
            await self._pause(pool, fresh, "ReplacementLost", "a replacement was lost")

    async def settle(self, scene: Scene) -> None:
        """What the world says of each pool, on the pool."""
        found = waves.gates(scene)
        for name in scene.pools:
            pool = self._pools.get(name)
            if pool is not None:
                await self._settle(pool, found.get(name))

    async def _settle(self, pool: NodePool, gate: Gate | None) -> None:
        if gate is None:
            if conditions.find(pool, DRIFT_PAUSED) is not None:
                await self._write(pool, conditions.clear(pool, DRIFT_PAUSED))
                self._recorder.event(pool, "DriftResumed", "Drift goes on", dedupe=(pool.uid,))
        elif not gate.noted:
            await self._pause(pool, pool, gate.reason, gate.why)

    async def _pause(self, pool: NodePool, fresh: NodePool, reason: str, why: str) -> None:
        await self._write(pool, conditions.set_true(fresh, DRIFT_PAUSED, self._clock.now(), reason, why))
        self._recorder.event(
            pool, "DriftPaused", f"Drift is paused: {why}", warning=True, dedupe=(pool.uid, reason)
        )

    async def _write(self, pool: NodePool, after: NodePool) -> None:
        if after == pool:
            return
        try:
            await self._kube.patch(pool, after, status=True, guarded=True)
        except (Conflict, Gone):
            # The next turn looks again.
            return
