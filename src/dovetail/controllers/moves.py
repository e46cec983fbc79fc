"""What a pool asks of disruption beyond its spec, and how many of its nodes went lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.disruption import churn
from dovetail.disruption.command import Command
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["Moves"]


class Moves:
    """Pools as disruption sees them: with the knobs settings turn for all, and the moves just made.

    What was done is noted on the pool itself, for the next process to find; until the note has come back
    with the watch, it is remembered here.
    """

    def __init__(self, kube: Kube, pools: Cache[NodePool], clock: Clock, defaults: Mapping[str, str]) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._defaults = defaults
        self._made: dict[str, dict[datetime, int]] = {}
        # The same pool gives the same record again, so that what was found out about it still counts.
        self._seen: dict[str, tuple[NodePool, str, NodePool]] = {}

    def seen(self, pool: NodePool) -> NodePool:
        """The pool with everything it did not say itself."""
        note = self._note(pool)
        before = self._seen.get(pool.name)
        if before is not None and before[0] is pool and before[1] == note:
            return before[2]
        known = churn.with_defaults(pool, self._defaults)
        if note and note != known.annotations.get(labels.RECENT):
            known = _noted(known, note)
        self._seen[pool.name] = pool, note, known
        return known

    def _note(self, pool: NodePool) -> str:
        rate = churn.knobs(churn.with_defaults(pool, self._defaults)).rate
        made = self._made.get(pool.name)
        if rate is None or not made:
            return ""
        return churn.noted({**churn.recent(pool), **made}, self._clock.now(), rate.per)

    def expect(self, command: Command) -> None:
        """These nodes are about to go: they count from now on."""
        now = self._clock.now()
        for name, count in Counter(c.pool.name for c in command.candidates).items():
            made = self._made.setdefault(name, {})
            made[now] = made.get(now, 0) + count

    async def note(self, command: Command) -> None:
        """Write it on the pools that have a rate to keep, and forget what no longer counts."""
        now = self._clock.now()
        for name in {candidate.pool.name for candidate in command.candidates}:
            pool = self._pools.get(name)
            rate = churn.knobs(churn.with_defaults(pool, self._defaults)).rate if pool else None
            if pool is None or rate is None:
                self._made.pop(name, None)
                continue
            made = self._made.get(name, {})
            self._made[name] = {at: count for at, count in made.items() if now - at < rate.per}
            try:
                await self._kube.patch(pool, _noted(pool, self._note(pool)))
            except (Conflict, Gone):
                # It is remembered here, and written with the next one.
                continue


def _noted(pool: NodePool, note: str) -> NodePool:
    annotations = {**pool.annotations, labels.RECENT: note}
    return replace(pool, metadata=replace(pool.metadata, annotations=annotations))
