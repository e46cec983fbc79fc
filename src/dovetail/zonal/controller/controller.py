"""zonalshift: one reconciler for everything a shift asks for.

    look at ARC → which zones count → close the gates → keep ZoneShifts → mark nodes → guard and edit pools

Each pass looks at the world anew and does a few seconds' work; what is left is done in the next. A process
that dies anywhere leaves objects that say what was done to them, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import AwsError
from dovetail.controllers.base import Backoff, Cache, Result, Trigger, requeue_after
from dovetail.errors import BadInput, DovetailError, Gone, NotAuthorized, Retry
from dovetail.ports import Clock, DecisionSink, Recorder
from dovetail.zonal import shift_metrics
from dovetail.zonal.controller.arc import ArcPoller, SignalReader
from dovetail.zonal.controller.cluster_edits import CONVERGE, ClusterEdits, list_gated_zones
from dovetail.zonal.controller.extras import ShiftExtras
from dovetail.zonal.controller.rehearsal import ClusterView
from dovetail.zonal.controller.reports import ShiftRecords, ZoneEvents
from dovetail.zonal.controller.shift_status import ShiftState, ShiftStatusWriter
from dovetail.zonal.controller.shift_tracker import ShiftTracker
from dovetail.zonal.controller.writes import JsonPatchKube, PoolDocument
from dovetail.zonal.controller.zone_map import ZoneDiscovery, ZoneMap
from dovetail.zonal.model.clone import CLONE_OF
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.records import SIGNAL
from dovetail.zonal.model.shifts import find_shift_owner
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ShiftStore, ShiftWriter

__all__ = ["ShiftedCluster", "ZonalShiftController"]

MOMENT, OFF = 0.2, 300.0


@dataclass(frozen=True, slots=True)
class ShiftedCluster:
    """The cluster as the controller knows it; only an autoscaler has a view of all of it."""

    gates: ZoneGates
    nodes: Cache[Node]
    claims: Cache[NodeClaim]
    view: ClusterView | None = None
    history: DecisionSink | None = None


class ZonalShiftController:
    """Shifts away from impaired zones and back."""

    name = "zonalshift"
    concurrency = 1
    backoff = Backoff(first=1.0, last=120.0)
    singleton = True

    def __init__(
        self,
        kube: JsonPatchKube,
        cluster: ShiftedCluster,
        arc: ArcPoller,
        store: ShiftStore,
        options: ZonalOptions,
        *,
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        self._kube, self._clock, self._recorder, self._options = kube, clock, recorder, options
        self.arc, self.gates = arc, cluster.gates
        self._zones = ZoneDiscovery(kube, arc.aws, options.cluster, cluster.nodes, clock)
        self._edits = ClusterEdits(
            kube, cluster.nodes, cluster.claims, store, options, clock=clock, recorder=recorder
        )
        self.writer = self._edits.writer
        self._store = store
        shift_writer = ShiftWriter(store)
        self._statuses = ShiftStatusWriter(shift_writer, clock, recorder, options)
        self._tracker = ShiftTracker(shift_writer, self._statuses, clock, recorder, options)
        self._extras = ShiftExtras(
            self.writer, self._statuses, self._zones, cluster.view, clock=clock, recorder=recorder
        )
        self._notices = ZoneEvents(recorder)
        self._records = ShiftRecords(cluster.history)
        self._signal_reader = SignalReader(store, arc, clock)
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
        return self._statuses.imagined

    def on_wake(self, wake: Callable[[], None]) -> None:
        """How to be woken by what is no object of the cluster."""
        self._wake = wake

    def change_options(self, options: ZonalOptions) -> None:
        """Go on by other options; what is in force is looked at again at once."""
        if options.dry_run == "client" and self._options.dry_run != "client":
            # From here on nothing is written; what was begun in earnest is kept in mind.
            self._statuses.imagined = tuple(each for each in self._seen if each.spec.kind != SIGNAL)
        self._options = self._tracker.options = self._statuses.options = options
        self._edits.change_options(options)
        self._extras.change_options(options)
        self.arc.change_pace(calm=options.poll, active=options.poll_active, observer=options.observer)
        self._wake()

    def poll_now(self) -> None:
        """A message came: look at ARC at once."""
        self.arc.poll_now()
        self._wake()

    def shift_changed(self, before: ZoneShift | None, now: ZoneShift | None) -> None:
        """Somebody wrote a ZoneShift. Our own words about one need no answer."""
        if before is None or now is None or before.spec != now.spec or before.deleting != now.deleting:
            self._wake()

    def _node_changed(self, before: Node | None, now: Node | None) -> tuple[str, ...]:
        """A node that came, or whose marks someone else changed, matters while a zone is away."""
        if not self._busy or now is None:
            return ()
        return () if before is not None and _read_marks(before) == _read_marks(now) else ("",)

    def _pool_changed(self, before: NodePool | None, now: NodePool | None) -> tuple[str, ...]:
        if not self._busy or now is None:
            return ()
        same = before is not None and before.metadata.generation == now.metadata.generation
        return () if same else ("",)

    async def prepare(self) -> None:
        """Close the gates of shifts that are known, before anything is bought; what fails is tried later."""
        try:
            shifts = [each for each in await self._list_objects() if each.spec.kind != SIGNAL]
            self._close_known_gates(shifts)
            await self.arc.poll_if_due(active=bool(shifts))
            now = self._clock.now()
            wanted = self._tracker.list_shifts(shifts, (), self.arc, now)
            zone_map = await self._zones.discover_zones({each.zone_id for each in wanted})
        except DovetailError:
            return
        self._close_gates(self._tracker.decide_states(shifts, wanted, zone_map, self.arc, now), zone_map)

    def _close_known_gates(self, shifts: Sequence[ZoneShift]) -> None:
        """Close what was closed by the word of the records, for as long as nothing else can be seen."""
        names = {each.spec.zone_id: each.status.zone_name or each.spec.zone_id for each in shifts}
        zone_map = ZoneMap(names, {name: zone for zone, name in names.items()}, tuple(names))
        self._close_gates(
            self._tracker.decide_states(shifts, (), zone_map, self.arc, self._clock.now()), zone_map
        )

    async def plan_shift(self, zone: str) -> tuple[str, ...]:
        """Every write that shifting away from the zone would take; BadInput for a zone nobody knows."""
        zone_map = await self._zones.discover_zones({zone})
        if zone not in zone_map.used:
            listed = ", ".join(zone_map.used)
            raise BadInput(
                f"planning to shift away from {zone!r}: the cluster has no such zone; it has {listed}"
            )
        kept = self._tracker.imagine_shift(zone, self._clock.now())
        return self._describe_plan([kept], zone_map, await self._kube.list(PoolDocument))[kept.name]

    async def reconcile(self, key: str) -> Result:
        try:
            objects = await self._list_objects()
        except (Gone, NotAuthorized, AwsError) as error:
            await self._run_without_objects(error)
        if not self._options.enabled:
            return await self._run_switched_off(objects)
        signals = [each for each in objects if each.spec.kind == SIGNAL]
        shifts = [each for each in objects if each.spec.kind != SIGNAL]
        await self._signal_reader.read_signals(signals)
        answered = await self.arc.poll_if_due(active=_has_live_shift(shifts))
        if answered:
            self._signal_reader.count_stale(signals)
        foreign = [each for each in shifts if _find_owner(each) not in ("", self._options.owner)]
        return await self._run_pass([each for each in shifts if each not in foreign], signals, foreign)

    async def _run_without_objects(self, error: DovetailError) -> NoReturn:
        """Nothing can be kept, but nothing need be bought in an impaired zone either."""
        await self.arc.poll_if_due(active=False)
        now, wanted = self._clock.now(), self._tracker.list_shifts((), (), self.arc, self._clock.now())
        zone_map = await self._zones.discover_zones({each.zone_id for each in wanted})
        self._close_gates(self._tracker.decide_states((), wanted, zone_map, self.arc, now), zone_map)
        raise Retry(
            f"following zonal shifts: ZoneShifts cannot be listed ({error}), so nodes and pools are left "
            f"alone; {self._store.advice}",
            within=30.0,
        ) from error

    async def _run_switched_off(self, objects: Sequence[ZoneShift]) -> Result:
        """Shifts in force when the feature is switched off end as if an operator had cancelled them."""
        shifts = [
            each for each in objects if each.spec.kind != SIGNAL and _find_owner(each) == self._options.owner
        ]
        if self._options.on_disable == "leave" or not (
            _has_live_shift(shifts) or await self._edits.has_marks()
        ):
            return requeue_after(OFF)
        return await self._run_pass(shifts, (), off=True)

    async def _list_objects(self) -> tuple[ZoneShift, ...]:
        if self._options.dry_run == "client":
            return self._statuses.imagined
        try:
            self._seen = await self._store.list()
        except (Gone, NotAuthorized):
            if self._options.enabled:
                raise
            return ()
        return self._seen

    async def _run_pass(
        self,
        shifts: Sequence[ZoneShift],
        signals: Sequence[ZoneShift],
        foreign: Sequence[ZoneShift] = (),
        *,
        off: bool = False,
    ) -> Result:
        now = self._clock.now()
        wanted = self._tracker.list_shifts(shifts, signals, self.arc, now)
        marked = self._edits.has_node_marks()
        if not wanted and not shifts and not foreign and not marked and not self._busy:
            await self._tell_unregistered()
            return requeue_after(self.arc.wait or CONVERGE)
        zone_map = await self._zones.discover_zones({each.zone_id for each in wanted})
        kept = self._tracker.decide_states(shifts, wanted, zone_map, self.arc, now, off=off, foreign=foreign)
        pools = await self._edits.restore_ledgers(
            await self._edits.list_pools(), self._statuses.list_acting(kept)
        )
        kept = self._tracker.advance_states(
            kept,
            lambda held: self._edits.count_outstanding(
                held, self._statuses.list_acting(held), zone_map, pools
            ),
            self.arc,
            now,
        )
        self._close_gates([*kept, *self._tracker.list_foreign_states(foreign, now)], zone_map)
        changed = await self._statuses.save_states(kept, zone_map, self.arc, now)
        worked, wait = await self._edits.write_changes(self._statuses.list_acting(kept), zone_map, pools)
        await self._extras.settle_all(kept, zone_map, pools, self._edits.list_nodes())
        await self._statuses.save_reports(
            kept,
            self._list_failures(),
            self._edits.given_up,
            self._describe_plan(kept, zone_map, pools),
        )
        self._report_zones(kept, zone_map, pools)
        clones = any(CLONE_OF in pool.labels for pool in pools)
        self._busy = any(each.record.phase != "Restored" for each in kept) or marked or clones
        if changed or worked:
            return requeue_after(MOMENT)
        look = CONVERGE if off else self.arc.wait or MOMENT
        return requeue_after(min(wait, look, self._tracker.seconds_until_next(kept, now)))

    def _close_gates(self, states: Sequence[ShiftState], zone_map: ZoneMap) -> None:
        """The gates, in memory: no write can fail between a decision and its effect."""
        acting = self._statuses.list_acting(states)
        launches, disruption = list_gated_zones(acting, self._options)
        names = frozenset(zone_map.names.get(zone, zone) for zone in disruption)
        opened: dict[str, datetime] = {
            zone_map.names.get(each.record.shift.zone_id, ""): each.record.ended
            for each in states
            if each.record.phase == "Restored" and each.record.ended is not None
        }
        fresh = [each for each in acting if each.record.shift.zone_id in launches]
        for each in fresh:
            if (
                not self.gates.is_launch_closed(each.record.shift.zone_id)
                and each.record.shift.started is not None
            ):
                waited = (self._clock.now() - each.record.shift.started).total_seconds()
                shift_metrics.TO_GATE.observe(max(waited, 0.0))
        self.gates.set_closed(launches, names, opened, zone_map.names)
        self._records.note_zones(states, zone_map)

    def _describe_plan(
        self, states: Sequence[ShiftState], zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> Mapping[str, tuple[str, ...]]:
        """For each dry run, every write it would have made."""
        return {
            each.name: (
                *self._edits.describe_plan(each, zone_map, pools),
                *self._extras.describe_plan(each),
            )
            for each in states
            if each.dry or self._options.dry_run
        }

    def _list_failures(self) -> Mapping[str, str]:
        found = (self._statuses, self._edits, self._extras)
        return {name: why for each in found for name, why in each.failures.items()}

    async def _tell_unregistered(self) -> None:
        if self.arc.registered is False:
            self._notices.report_unregistered(await self._kube.list(PoolDocument), self._options.cluster)

    def _report_zones(
        self, states: Sequence[ShiftState], zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> None:
        """What pools are told of zones that went and came back."""
        away = frozenset(each.record.shift.zone_id for each in states if each.record.launches_gated)
        if self._notices.has_changed(away):
            self._notices.report_zones(pools, zone_map, away, gated=not self._options.edits_pools)
        if self.arc.registered is False:
            self._notices.report_unregistered(pools, self._options.cluster)


def _find_owner(shift: ZoneShift) -> str:
    return find_shift_owner(shift.annotations, shift.status.phase)


def _has_live_shift(shifts: Sequence[ZoneShift]) -> bool:
    return any(each.status.phase not in ("Restored", "Refused") for each in shifts)


def _read_marks(node: Node) -> tuple[object, ...]:
    return (
        node.uid,
        node.labels.get(labels.ZONE),
        node.labels.get(labels.DO_NOT_DISRUPT),
        node.annotations.get(labels.DO_NOT_DISRUPT),
        node.spec.unschedulable,
    )
