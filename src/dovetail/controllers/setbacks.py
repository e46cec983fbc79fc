"""Notes lost replacements on their pools, and keeps the condition that tells of them."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api import conditions
from dovetail.api.conditions import REPLACEMENTS_LOST
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.disruption.command import Command
from dovetail.disruption.setbacks import (
    Setback,
    after_loss,
    setbacks_of,
    waits_told,
    with_setbacks,
    without_reason,
)
from dovetail.errors import DovetailError
from dovetail.ports import Clock, Kube, Recorder

__all__ = ["LostReplacements"]


class LostReplacements:
    """Pools as disruption sees them: with the losses the watch has not told of yet."""

    def __init__(self, kube: Kube, pools: Cache[NodePool], clock: Clock, recorder: Recorder) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._recorder = recorder
        # What was noted last on each pool, until the pool shows it.
        self._noted: dict[str, Mapping[str, Setback]] = {}
        # The same pool gives the same record again, so that what was found out about it still counts.
        self._seen: dict[str, tuple[NodePool, NodePool]] = {}

    def seen(self, pool: NodePool) -> NodePool:
        """The pool with every loss we know of."""
        noted = self._noted.get(pool.name)
        if noted is None:
            return pool
        edited = any(each.generation != pool.metadata.generation for each in noted.values())
        if edited or setbacks_of(pool) == noted:
            del self._noted[pool.name]
            return pool
        before = self._seen.get(pool.name)
        if before is None or before[0] is not pool or setbacks_of(before[1]) != noted:
            self._seen[pool.name] = pool, with_setbacks(pool, noted)
        return self._seen[pool.name][1]

    async def lost(self, command: Command) -> None:
        """A replacement of this command did not come up: its pools wait before that is tried again."""
        reason, now = command.method.reason, self._clock.now()
        for pool in self._of(command):
            known = self.seen(pool)
            found = after_loss(known, reason, now)
            if found == setbacks_of(known):
                continue
            await self._note(pool, found)
            told = f"{reason}: {found[reason]}"
            self._recorder.event(pool, "ReplacementsLost", told, warning=True, dedupe=(pool.uid, reason))

    async def came(self, command: Command) -> None:
        """All replacements of this command are up: what was lost before no longer counts."""
        for pool in self._of(command):
            known = self.seen(pool)
            if command.method.reason in setbacks_of(known):
                await self._note(pool, without_reason(known, command.method.reason))

    async def settle(self) -> None:
        """The condition of each pool says what is waited for now, and goes when nothing is."""
        for pool in tuple(self._pools):
            noted = self._noted.get(pool.name)
            if noted is not None and self.seen(pool) is not pool:
                await self._note(pool, noted)
            else:
                await self._tell(pool, setbacks_of(pool))

    def _of(self, command: Command) -> list[NodePool]:
        names = sorted({candidate.pool.name for candidate in command.candidates})
        return [pool for name in names if (pool := self._pools.get(name)) is not None]

    async def _note(self, pool: NodePool, found: Mapping[str, Setback]) -> None:
        self._noted[pool.name] = found
        try:
            pool = await self._kube.patch(pool, with_setbacks(pool, found))
        except DovetailError:
            # It counts here all the same, and is noted with the next turn.
            return
        await self._tell(pool, found)

    async def _tell(self, pool: NodePool, found: Mapping[str, Setback]) -> None:
        if self._as_told(pool, found) == pool:
            return
        try:
            # As it is now: others write conditions too, and might have this very moment.
            fresh = await self._kube.get(NodePool, pool.name)
            await self._kube.patch(fresh, self._as_told(fresh, found), status=True, guarded=True)
        except DovetailError:
            # The next turn looks again.
            return

    def _as_told(self, pool: NodePool, found: Mapping[str, Setback]) -> NodePool:
        now = self._clock.now()
        told = waits_told(found, now)
        if not told:
            return conditions.clear(pool, REPLACEMENTS_LOST)
        return conditions.set_true(pool, REPLACEMENTS_LOST, now, next(iter(told)), "; ".join(told.values()))
