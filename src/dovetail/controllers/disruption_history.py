"""What a pool asks of disruption beyond its spec, and how many of its nodes went lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DRIFT_PAUSED, REPLACEMENTS_LOST
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.disruption import policy
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.methods.drift_waves import DriftStatus
from dovetail.disruption.replacement_backoff import (
    ReplacementSetback,
    add_loss,
    drop_reason,
    list_backoffs,
    read_setbacks,
    write_setbacks,
)
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.history.record import RecordDraft, RecordKind
from dovetail.ports import Clock, DecisionSink, Kube, Recorder

__all__ = ["DisruptionHistory", "DriftPausedConditions", "LostReplacements"]

PAUSED = frozenset((RecordKind.DRIFT_PAUSED,))
MOST_TRIES = 5


class DisruptionHistory:
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

    def add_history(self, pool: NodePool) -> NodePool:
        """The pool with everything it did not say itself."""
        note = self._build_note(pool)
        before = self._seen.get(pool.name)
        if before is not None and before[0] is pool and before[1] == note:
            return before[2]
        known = policy.add_default_annotations(pool, self._defaults)
        if note and note != known.annotations.get(labels.RECENT):
            known = _annotate_recent(known, note)
        self._seen[pool.name] = pool, note, known
        return known

    def _build_note(self, pool: NodePool) -> str:
        rate = policy.read_policy(policy.add_default_annotations(pool, self._defaults)).rate
        made = self._made.get(pool.name)
        if rate is None or not made:
            return ""
        return policy.format_moves({**policy.read_recent_moves(pool), **made}, self._clock.now(), rate.per)

    def expect_command(self, command: Command) -> None:
        """These nodes are about to go: they count from now on."""
        now = self._clock.now()
        for name, count in Counter(c.pool.name for c in command.candidates).items():
            made = self._made.setdefault(name, {})
            made[now] = made.get(now, 0) + count

    async def record_command(self, command: Command) -> None:
        """Write it on the pools that have a rate to keep, and forget what no longer counts."""
        now = self._clock.now()
        for name in {candidate.pool.name for candidate in command.candidates}:
            pool = self._pools.get(name)
            rate = (
                policy.read_policy(policy.add_default_annotations(pool, self._defaults)).rate
                if pool
                else None
            )
            if pool is None or rate is None:
                self._made.pop(name, None)
                continue
            made = self._made.get(name, {})
            self._made[name] = {at: count for at, count in made.items() if now - at < rate.per}
            try:
                await self._kube.patch(pool, _annotate_recent(pool, self._build_note(pool)))
            except (Conflict, Gone):
                # It is remembered here, and written with the next one.
                continue


def _annotate_recent(pool: NodePool, note: str) -> NodePool:
    annotations = {**pool.annotations, labels.RECENT: note}
    return replace(pool, metadata=replace(pool.metadata, annotations=annotations))


class DriftPausedConditions:
    """Writes down where the drift of each pool stands; what follows from it is dovetail.disruption's."""

    def __init__(
        self,
        kube: Kube,
        pools: Cache[NodePool],
        clock: Clock,
        recorder: Recorder,
        history: DecisionSink,
        defaults: Mapping[str, str],
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._recorder = recorder
        self._history = history
        self._defaults = defaults

    async def pause_pools(self, names: Iterable[str]) -> None:
        """A replacement of a drifted node of these pools did not come: the others wait."""
        for name in names:
            # Nobody sees the loss a second time, whatever others write at the same moment.
            for _ in range(MOST_TRIES):
                if await self._pause_after_loss(name):
                    break

    async def _pause_after_loss(self, name: str) -> bool:
        """Whether there is nothing left to write."""
        try:
            # As it is now: what was lost was noted on it a moment ago.
            pool = await self._kube.get(NodePool, name)
        except Gone:
            return True
        if not drift_waves.can_pause(policy.add_default_annotations(pool, self._defaults)):
            return True
        # Cleared first, so that it counts from now even if it was lost before.
        fresh = conditions.clear_condition(pool, DRIFT_PAUSED)
        return await self._pause_pool(pool, fresh, "ReplacementLost", "a replacement was lost")

    async def settle_pools(self, inputs: DisruptionInput) -> None:
        """What the world says of each pool, on the pool."""
        found = drift_waves.list_drift_statuses(inputs)
        for name in inputs.pools:
            pool = self._pools.get(name)
            if pool is not None:
                await self._settle_pool(pool, found.get(name))

    async def _settle_pool(self, pool: NodePool, gate: DriftStatus | None) -> None:
        if gate is None:
            if conditions.find_condition(pool, DRIFT_PAUSED) is not None:
                written = await self._write_condition(pool, conditions.clear_condition(pool, DRIFT_PAUSED))
                if written:
                    self._note_drift(RecordKind.DRIFT_RESUMED, pool, "DriftResumed", "drift goes on")
                self._recorder.publish_event(pool, "DriftResumed", "Drift goes on", dedupe=(pool.uid,))
        elif not gate.noted:
            await self._pause_pool(pool, pool, gate.reason, gate.why)

    async def _pause_pool(self, pool: NodePool, fresh: NodePool, reason: str, why: str) -> bool:
        paused = conditions.set_true(fresh, DRIFT_PAUSED, self._clock.now(), reason, why)
        written = await self._write_condition(pool, paused)
        if written:
            self._note_drift(RecordKind.DRIFT_PAUSED, pool, reason, why)
        self._recorder.publish_event(
            pool, "DriftPaused", f"Drift is paused: {why}", warning=True, dedupe=(pool.uid, reason)
        )
        return written

    def _note_drift(self, kind: RecordKind, pool: NodePool, reason: str, why: str) -> None:
        """Pauses and ends of pauses are links of one chain."""
        draft = RecordDraft(kind, f"pool/{pool.name}", reason, why, pool.name)
        # Records are found by the names of nodes and pods, not of pools; of these there are few.
        pauses = self._history.list_records(PAUSED) if kind is RecordKind.DRIFT_RESUMED else ()
        causes = [each.id for each in pauses if each.subject == draft.subject]
        self._history.note_decision(draft, parent=causes[-1] if causes else "")

    async def _write_condition(self, pool: NodePool, after: NodePool) -> bool:
        """Whether it was written: it said otherwise before, and nobody else wrote meanwhile."""
        if after == pool:
            return False
        try:
            await self._kube.patch(pool, after, status=True, guarded=True)
        except (Conflict, Gone):
            # The next turn looks again.
            return False
        return True


class LostReplacements:
    """Pools as disruption sees them: with the losses the watch has not told of yet."""

    def __init__(self, kube: Kube, pools: Cache[NodePool], clock: Clock, recorder: Recorder) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._recorder = recorder
        # What was noted last on each pool, until the pool shows it.
        self._noted: dict[str, Mapping[str, ReplacementSetback]] = {}
        # The same pool gives the same record again, so that what was found out about it still counts.
        self._seen: dict[str, tuple[NodePool, NodePool]] = {}

    def add_losses(self, pool: NodePool) -> NodePool:
        """The pool with every loss we know of."""
        noted = self._noted.get(pool.name)
        if noted is None:
            return pool
        edited = any(each.generation != pool.metadata.generation for each in noted.values())
        if edited or read_setbacks(pool) == noted:
            del self._noted[pool.name]
            return pool
        before = self._seen.get(pool.name)
        if before is None or before[0] is not pool or read_setbacks(before[1]) != noted:
            self._seen[pool.name] = pool, write_setbacks(pool, noted)
        return self._seen[pool.name][1]

    async def record_loss(self, command: Command) -> None:
        """A replacement of this command did not come up: its pools wait before that is tried again."""
        reason, now = command.method.reason, self._clock.now()
        for pool in self._list_pools(command):
            known = self.add_losses(pool)
            found = add_loss(known, reason, now)
            if found == read_setbacks(known):
                continue
            await self._write_losses(pool, found)
            told = f"{reason}: {found[reason]}"
            self._recorder.publish_event(
                pool, "ReplacementsLost", told, warning=True, dedupe=(pool.uid, reason)
            )

    async def forget_losses(self, command: Command) -> None:
        """All replacements of this command are up: what was lost before no longer counts."""
        for pool in self._list_pools(command):
            known = self.add_losses(pool)
            if command.method.reason in read_setbacks(known):
                await self._write_losses(pool, drop_reason(known, command.method.reason))

    async def settle_pools(self) -> None:
        """The condition of each pool says what is waited for now, and goes when nothing is."""
        for pool in tuple(self._pools):
            noted = self._noted.get(pool.name)
            if noted is not None and self.add_losses(pool) is not pool:
                await self._write_losses(pool, noted)
            else:
                await self._write_condition(pool, read_setbacks(pool))

    def _list_pools(self, command: Command) -> list[NodePool]:
        names = sorted({candidate.pool.name for candidate in command.candidates})
        return [pool for name in names if (pool := self._pools.get(name)) is not None]

    async def _write_losses(self, pool: NodePool, found: Mapping[str, ReplacementSetback]) -> None:
        self._noted[pool.name] = found
        try:
            pool = await self._kube.patch(pool, write_setbacks(pool, found))
        except DovetailError:
            # It counts here all the same, and is noted with the next turn.
            return
        await self._write_condition(pool, found)

    async def _write_condition(self, pool: NodePool, found: Mapping[str, ReplacementSetback]) -> None:
        if self._set_condition(pool, found) == pool:
            return
        try:
            # As it is now: others write conditions too, and might have this very moment.
            fresh = await self._kube.get(NodePool, pool.name)
            await self._kube.patch(fresh, self._set_condition(fresh, found), status=True, guarded=True)
        except DovetailError:
            # The next turn looks again.
            return

    def _set_condition(self, pool: NodePool, found: Mapping[str, ReplacementSetback]) -> NodePool:
        now = self._clock.now()
        told = list_backoffs(found, now)
        if not told:
            return conditions.clear_condition(pool, REPLACEMENTS_LOST)
        return conditions.set_true(pool, REPLACEMENTS_LOST, now, next(iter(told)), "; ".join(told.values()))
