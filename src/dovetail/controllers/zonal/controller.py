"""zonalshift: one reconciler for everything a shift asks for.

    look at ARC → which zones count → close the gates → keep ZoneShifts → mark nodes → guard and edit pools

Each pass looks at the world anew and does a few seconds' work; what is left is done in the next. A process
that dies anywhere leaves objects that say what was done to them, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NoReturn

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import Aws, AwsError
from dovetail.controllers.base import Backoff, Cache, Result, Trigger, after
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.arc import Arc
from dovetail.controllers.zonal.beside import Beside
from dovetail.controllers.zonal.clones import Clones
from dovetail.controllers.zonal.copies import Copies
from dovetail.controllers.zonal.documents import GUARD, Documents, PoolDocument
from dovetail.controllers.zonal.edit import Editing, PoolChange, PoolWish, edited_for
from dovetail.controllers.zonal.gates import Gates
from dovetail.controllers.zonal.hearing import Hearing
from dovetail.controllers.zonal.keeping import Keeping, Kept, Outstanding
from dovetail.controllers.zonal.notices import Notices
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.protect import Change, Protection, zones_protected
from dovetail.controllers.zonal.records import SIGNAL
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.controllers.zonal.store import ClusterStore, Store
from dovetail.controllers.zonal.wishes import gated, node_wish, outstanding, pool_wish
from dovetail.controllers.zonal.writing import Writer
from dovetail.controllers.zonal.zones import Ground, Zones
from dovetail.errors import BadInput, Conflict, DovetailError, Gone, NotAuthorized, Retry
from dovetail.ports import Clock, Recorder
from dovetail.zonal.clone import CLONE_OF
from dovetail.zonal.ledgers import note_owner
from dovetail.zonal.owners import owner_of, owner_of_shift

__all__ = ["ZonalShift"]

SLICE, MOMENT, CONVERGE, OFF = 5.0, 0.2, 30.0, 300.0
RELEASING = 5.0
OUR_NOTES = (labels.ZONE_LEDGER, GUARD)


class ZonalShift:
    """Steps out of impaired zones and back."""

    name = "zonalshift"
    concurrency = 1
    backoff = Backoff(first=1.0, last=120.0)
    singleton = True

    def __init__(
        self,
        kube: Documents,
        aws: Aws,
        clock: Clock,
        recorder: Recorder,
        arc: Arc,
        gates: Gates,
        options: ZonalOptions,
        *,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        seeing: Seeing | None = None,
        store: Store | None = None,
    ) -> None:
        self._kube, self._clock, self._recorder, self._options = kube, clock, recorder, options
        self.arc, self.gates = arc, gates
        self._nodes, self._claims = nodes, claims
        self.writer = Writer(kube)
        self._zones = Zones(kube, aws, options.cluster, nodes, clock)
        self._protection = Protection(
            self.writer,
            nodes,
            clock,
            recorder,
            enforce=options.enforce,
            managed_only=options.managed_only,
            share=options.restore_batch,
            interval=options.restore_interval,
            repair=options.repair,
            owner=options.owner,
        )
        self._editing = Editing(self.writer, clock, recorder, options)
        self._clones = Clones(kube, claims, options, self.writer, clock)
        self._store = store or ClusterStore(kube)
        self._copies = Copies(kube, self._store)
        self._keeping = Keeping(self._store, clock, recorder, options)
        self._beside = Beside(kube, self.writer, self._keeping, self._zones, seeing, clock, recorder, options)
        self._notices = Notices(recorder)
        self._hearing = Hearing(self._store, arc, clock)
        self._seen: tuple[ZoneShift, ...] = ()
        self._wake: Callable[[], None] = lambda: None
        # Until the first pass has looked everywhere, something may have been left by whoever was before.
        self._busy = True

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Node, self._node_changed), Trigger(NodePool, self._pool_changed))

    @property
    def imagined(self) -> tuple[ZoneShift, ...]:
        """What a dry run on the client would have kept."""
        return self._keeping.imagined

    def on_wake(self, wake: Callable[[], None]) -> None:
        """How to be woken by what is no object of the cluster."""
        self._wake = wake

    def change(self, options: ZonalOptions) -> None:
        """Go on by other options; what is in force is looked at again at once."""
        if options.dry_run == "client" and self._options.dry_run != "client":
            # From here on nothing is written; what was begun in earnest is kept in mind.
            self._keeping.imagined = tuple(each for each in self._seen if each.spec.kind != SIGNAL)
        self._options = self._keeping.options = options
        self._editing.options = self._clones.options = options
        self._wake()

    def hint(self) -> None:
        """A message came: look at ARC at once."""
        self.arc.hint()
        self._wake()

    def shift_changed(self, before: ZoneShift | None, now: ZoneShift | None) -> None:
        """Somebody wrote a ZoneShift. Our own words about one need no answer."""
        if before is None or now is None or before.spec != now.spec or before.deleting != now.deleting:
            self._wake()

    def _node_changed(self, before: Node | None, now: Node | None) -> tuple[str, ...]:
        """A node that came, or whose marks someone else changed, matters while a zone is away."""
        if not self._busy or now is None:
            return ()
        return () if before is not None and _marks(before) == _marks(now) else ("",)

    def _pool_changed(self, before: NodePool | None, now: NodePool | None) -> tuple[str, ...]:
        if not self._busy or now is None:
            return ()
        same = before is not None and before.metadata.generation == now.metadata.generation
        return () if same else ("",)

    async def prepare(self) -> None:
        """Close the gates of shifts that are known, before anything is bought; what fails is tried later."""
        try:
            shifts = [each for each in await self._objects() if each.spec.kind != SIGNAL]
            self._hold(shifts)
            await self.arc.look(active=bool(shifts))
            now = self._clock.now()
            wanted = self._keeping.candidates(shifts, (), self.arc, now)
            ground = await self._zones.ground({each.zone_id for each in wanted})
        except DovetailError:
            return
        self._close(self._keeping.decided(shifts, wanted, ground, self.arc, now), ground)

    def _hold(self, shifts: Sequence[ZoneShift]) -> None:
        """Close what was closed by the word of the records, for as long as nothing else can be seen."""
        names = {each.spec.zone_id: each.status.zone_name or each.spec.zone_id for each in shifts}
        ground = Ground(names, {name: zone for zone, name in names.items()}, tuple(names))
        self._close(self._keeping.decided(shifts, (), ground, self.arc, self._clock.now()), ground)

    async def plan(self, zone: str) -> tuple[str, ...]:
        """Every write that stepping out of the zone would take; BadInput for a zone nobody knows."""
        ground = await self._zones.ground({zone})
        if zone not in ground.used:
            listed = ", ".join(ground.used)
            raise BadInput(f"planning to step out of {zone!r}: the cluster has no such zone; it has {listed}")
        kept = self._keeping.imagine(zone, self._clock.now())
        return self._plan([kept], ground, await self._kube.list(PoolDocument))[kept.name]

    async def reconcile(self, key: str) -> Result:
        try:
            objects = await self._objects()
        except (Gone, NotAuthorized, AwsError) as error:
            await self._without_objects(error)
        if not self._options.enabled:
            return await self._switched_off(objects)
        signals = [each for each in objects if each.spec.kind == SIGNAL]
        shifts = [each for each in objects if each.spec.kind != SIGNAL]
        await self._hearing.heard(signals)
        answered = await self.arc.look(active=_live(shifts))
        if answered:
            self._hearing.judge(signals)
        foreign = [each for each in shifts if _owner(each) not in ("", self._options.owner)]
        return await self._pass([each for each in shifts if each not in foreign], signals, foreign)

    async def _without_objects(self, error: DovetailError) -> NoReturn:
        """Nothing can be kept, but nothing need be bought in an impaired zone either."""
        await self.arc.look(active=False)
        now, wanted = self._clock.now(), self._keeping.candidates((), (), self.arc, self._clock.now())
        ground = await self._zones.ground({each.zone_id for each in wanted})
        self._close(self._keeping.decided((), wanted, ground, self.arc, now), ground)
        raise Retry(
            f"following zonal shifts: ZoneShifts cannot be listed ({error}), so nodes and pools are left "
            f"alone; {self._store.advice}",
            within=30.0,
        ) from error

    async def _switched_off(self, objects: Sequence[ZoneShift]) -> Result:
        """Shifts in force when the feature is switched off end as if an operator had cancelled them."""
        shifts = [
            each for each in objects if each.spec.kind != SIGNAL and _owner(each) == self._options.owner
        ]
        if self._options.on_disable == "leave" or not (_live(shifts) or await self._marked()):
            return after(OFF)
        return await self._pass(shifts, (), off=True)

    async def _marked(self) -> bool:
        """Whether anything still carries a note of ours."""
        if any(map(self._noted, self._nodes)):
            return True
        return any(map(self._noted, await self._kube.list(PoolDocument)))

    def _noted(self, obj: Node | PoolDocument) -> bool:
        """Whether a note stands on an object, other than another's; one nobody can read may be ours."""
        texts = [obj.annotations[note] for note in OUR_NOTES if note in obj.annotations]
        return any(note_owner(text) in ("", self._options.owner) for text in texts)

    async def _objects(self) -> tuple[ZoneShift, ...]:
        if self._options.dry_run == "client":
            return self._keeping.imagined
        try:
            self._seen = await self._store.list()
        except (Gone, NotAuthorized):
            if self._options.enabled:
                raise
            return ()
        return self._seen

    async def _pass(
        self,
        shifts: Sequence[ZoneShift],
        signals: Sequence[ZoneShift],
        foreign: Sequence[ZoneShift] = (),
        *,
        off: bool = False,
    ) -> Result:
        now = self._clock.now()
        wanted = self._keeping.candidates(shifts, signals, self.arc, now)
        marked = any(map(self._noted, self._nodes))
        if not wanted and not shifts and not foreign and not marked and not self._busy:
            await self._tell_unregistered()
            return after(self.arc.wait or CONVERGE)
        ground = await self._zones.ground({each.zone_id for each in wanted})
        kept = self._keeping.decided(shifts, wanted, ground, self.arc, now, off=off, foreign=foreign)
        pools = await self._copied(await self._pools(), kept)
        kept = self._keeping.advanced(
            kept, lambda held: self._outstanding(held, ground, pools), self.arc, now
        )
        self._close([*kept, *self._keeping.left_alone(foreign, now)], ground)
        changed = await self._keeping.saved(kept, ground, self.arc, now)
        worked, wait = await self._work(self._keeping.acting(kept), ground, pools)
        await self._beside.settle(kept, ground, pools, self._protection.nodes())
        await self._keeping.told(
            kept, self._troubles(), self._editing.given_up, self._plan(kept, ground, pools)
        )
        self._tell(kept, ground, pools)
        clones = any(CLONE_OF in pool.labels for pool in pools)
        self._busy = any(each.record.phase != "Restored" for each in kept) or marked or clones
        if changed or worked:
            return after(MOMENT)
        look = CONVERGE if off else self.arc.wait or MOMENT
        return after(min(wait, look, self._keeping.wait(kept, now)))

    async def _pools(self) -> list[PoolDocument]:
        """Every pool but stand-ins that another made."""
        listed = await self._kube.list(PoolDocument)
        return [
            each
            for each in listed
            if CLONE_OF not in each.labels or owner_of(each.annotations) == self._options.owner
        ]

    async def _copied(self, pools: Sequence[PoolDocument], kept: Sequence[Kept]) -> Sequence[PoolDocument]:
        if self._options.dry_run:
            return pools
        editing = bool(pool_wish(self._keeping.acting(kept), self._options).zones)
        return await self._copies.completed(pools, editing=editing)

    def _outstanding(
        self, kept: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]
    ) -> Outstanding:
        """What is not yet as these records want it, by zone."""
        acting = self._keeping.acting(kept)
        marks, releases = self._marks_wanted(acting, ground)
        wish = pool_wish(acting, self._options)
        cloned = bool(wish.zones) and self._clones.needed(pools, ground)
        untouched = not self._options.edits_pools or cloned
        edits = [] if untouched else self._editing.wanted(pools, ground, wish)
        open_edits = [each for each in edits if each.pool.uid not in self._editing.given_up]
        left = outstanding(marks, releases, len(open_edits), self._claims)
        done = zones_protected(self._protection.nodes(), ground)
        edited = {each.key: len(edited_for(pools, each.key)) for each in kept}
        return replace(left, marked=done, edited=edited)

    def _marks_wanted(self, acting: Sequence[Kept], ground: Ground) -> tuple[list[Change], list[Change]]:
        return self._protection.wanted(ground, node_wish(acting, self._options))

    def _close(self, kept: Sequence[Kept], ground: Ground) -> None:
        """The gates, in memory: no write can fail between a decision and its effect."""
        acting = self._keeping.acting(kept)
        launches, disruption = gated(acting, self._options)
        names = frozenset(ground.names.get(zone, zone) for zone in disruption)
        opened: dict[str, datetime] = {
            ground.names.get(each.record.shift.zone_id, ""): each.record.ended
            for each in kept
            if each.record.phase == "Restored" and each.record.ended is not None
        }
        fresh = [each for each in acting if each.record.shift.zone_id in launches]
        for each in fresh:
            if not self.gates.launches(each.record.shift.zone_id) and each.record.shift.started is not None:
                waited = (self._clock.now() - each.record.shift.started).total_seconds()
                counts.TO_GATE.observe(max(waited, 0.0))
        self.gates.set(launches, names, opened, ground.names)

    async def _work(
        self, acting: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]
    ) -> tuple[bool, float]:
        """A few seconds of it: nodes first, then pools; on the way back pools first, then nodes."""
        if self._options.dry_run:
            return False, CONVERGE  # what was begun in earnest stands as it is until the dry run is over
        marks, releases = self._marks_wanted(acting, ground)
        done, tried = await self._protection.mark(marks, SLICE)
        # A node that could not be marked is kept by its pool's budget instead.
        self._editing.unmarked = bool(self._protection.failures)
        wait = CONVERGE
        if tried:
            edited, wait = await self._edit(acting, ground, pools)
            done += edited
        if releases:
            done += await self._protection.release(releases, SLICE)
            wait = min(wait, RELEASING)
        return done > 0, wait

    async def _edit(
        self, acting: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]
    ) -> tuple[int, float]:
        wish = pool_wish(acting, self._options)
        ours = any(note in pool.annotations for pool in pools for note in OUR_NOTES)
        clones = any(CLONE_OF in pool.labels for pool in pools)
        if not (self._options.edits_pools and wish.zones) and not ours and not clones:
            return 0, CONVERGE
        if (self._options.edits_pools and wish.zones and self._clones.needed(pools, ground)) or clones:
            await self._clones.settle(pools, ground, wish)
            if not ours and self._clones.needed(pools, ground):
                return 0, CONVERGE
        done, wait = 0, CONVERGE
        for change in self._editing.wanted(pools, ground, wish):
            pause = self._editing.contested(change, wish)
            if pause is None:
                continue
            if pause.total_seconds() > 0:
                wait = min(wait, pause.total_seconds())
            elif await self._written(change, wish):
                done += 1
        return done, wait

    async def _written(self, change: PoolChange, wish: PoolWish) -> bool:
        try:
            await self._copies.before(change)
        except Conflict:
            return False  # looked at again in a moment
        return await self._editing.write(change, wish)

    def _plan(
        self, kept: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]
    ) -> Mapping[str, tuple[str, ...]]:
        """For each dry run, every write it would have made."""
        found: dict[str, tuple[str, ...]] = {}
        for each in kept:
            if not each.dry and not self._options.dry_run:
                continue
            alone = [each]
            marks, _ = self._marks_wanted(alone, ground)
            lines = [str(audit) for mark in marks for audit in mark.audits()]
            wish = pool_wish(alone, self._options)
            if self._options.edits_pools and wish.zones:
                lines += self._clones.planned(pools, ground, wish)
                if not self._clones.needed(pools, ground):
                    lines += [str(change) for change in self._editing.wanted(pools, ground, wish)]
            gates = [
                f"gate {gate} in {zone}" for gate, zones in _gates(alone, self._options) for zone in zones
            ]
            found[each.name] = (*gates, *lines, *self._beside.planned(each))
        return found

    def _troubles(self) -> Mapping[str, str]:
        found = (self._keeping, self._protection, self._editing, self._beside)
        return {name: why for each in found for name, why in each.failures.items()}

    async def _tell_unregistered(self) -> None:
        if self.arc.registered is False:
            self._notices.unregistered(await self._kube.list(PoolDocument), self._options.cluster)

    def _tell(self, kept: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument]) -> None:
        """What pools are told of zones that went and came back."""
        away = frozenset(each.record.shift.zone_id for each in kept if each.record.launches_gated)
        if self._notices.changed(away):
            self._notices.tell(pools, ground, away, gated=not self._options.edits_pools)
        if self.arc.registered is False:
            self._notices.unregistered(pools, self._options.cluster)


def _owner(shift: ZoneShift) -> str:
    return owner_of_shift(shift.annotations, shift.status.phase)


def _live(shifts: Sequence[ZoneShift]) -> bool:
    return any(each.status.phase not in ("Restored", "Refused") for each in shifts)


def _gates(kept: Sequence[Kept], options: ZonalOptions) -> tuple[tuple[str, frozenset[str]], ...]:
    launches, disruption = gated(kept, options)
    return ("launches", launches), ("disruption", disruption)


def _marks(node: Node) -> tuple[object, ...]:
    return (
        node.uid,
        node.labels.get(labels.ZONE),
        node.labels.get(labels.DO_NOT_DISRUPT),
        node.annotations.get(labels.DO_NOT_DISRUPT),
        node.spec.unschedulable,
    )
