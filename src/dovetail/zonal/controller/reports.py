"""What losing a zone would mean, worked out once for each shift: for people to know, and to buy room by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.zoneshift import ZoneShift
from dovetail.errors import BadInput, DovetailError
from dovetail.history.record import RecordDraft, RecordKind
from dovetail.ports import Clock, DecisionSink, Recorder
from dovetail.scheduling.zone_bound import ZoneBoundPod
from dovetail.zonal import shift_metrics
from dovetail.zonal.controller.node_protection import count_protected_by_zone
from dovetail.zonal.controller.pool_edits import count_edited_by_zone
from dovetail.zonal.controller.rehearsal import ClusterView
from dovetail.zonal.controller.shift_status import ShiftState
from dovetail.zonal.controller.writes import PoolDocument
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model.balance import ZoneBalance, measure_balance
from dovetail.zonal.model.ledgers import parse_pool_ledger
from dovetail.zonal.model.pools import FROZEN, KEYS, ImpairedZones, admits_zone, is_confined
from dovetail.zonal.model.rehearsal import Rehearsal

if TYPE_CHECKING:
    from prometheus_client import Gauge


__all__ = [
    "Addresses",
    "ImpactAdvice",
    "ShiftGauges",
    "ShiftRecords",
    "SkewReport",
    "ZoneEvents",
    "ZonePendingPods",
]

# Free addresses by the name of the zone; empty where nobody can say.
Addresses = Callable[[], Awaitable[Mapping[str, int]]]


class ImpactAdvice:
    """The capacity pre-flight. It advises, and nothing waits for it."""

    def __init__(self, seeing: ClusterView | None, recorder: Recorder) -> None:
        self._view, self._recorder = seeing, recorder
        self.found: dict[str, Rehearsal] = {}

    async def describe_impact(
        self, shift: ZoneShift, zone: str, addresses: Addresses
    ) -> Mapping[str, str] | None:
        """What to note on the shift; None when it is noted already, or cannot be said."""
        if self._view is None or not zone or shift.name in self.found:
            return None
        free = await addresses()
        try:
            found = await self._view.rehearse_zone(zone, free)
        except DovetailError:
            return None  # advice, and no more: what must be done is done without it
        self.found[shift.name] = found
        shift_metrics.set_readiness(zone, found.readiness)
        note = (
            f"if {zone} is lost, {found.pods} pods need {found.new_nodes} nodes in other zones at "
            f"${found.price:.2f} an hour, and {len(found.homeless)} are unschedulable"
        )
        self._recorder.publish_event(shift, "ZonalShiftImpact", note, dedupe=(shift.name,))
        return _build_note(found, {name: count for name, count in free.items() if name != zone})


def _build_note(found: Rehearsal, free: Mapping[str, int]) -> dict[str, str]:
    told = {
        "pods": str(found.pods),
        "podsWithoutHome": str(len(found.homeless)),
        "podsOnZonalVolumes": str(found.count_by_reason("volume")),
        "nodesNeeded": str(found.new_nodes),
        "pricePerHour": f"{found.price:.2f}",
        "readiness": f"{found.readiness:.2f}",
        "poolsAtLimit": ",".join(found.limited),
        "freeAddresses": ",".join(f"{zone}={count}" for zone, count in sorted(free.items())),
    }
    return {name: text for name, text in told.items() if text}


LOOK_EVERY = 30.0
DAY = 86_400.0


class ZonePendingPods:
    """Says WaitingForZone on a workload when its first pod waits, and no more until the shift is over."""

    def __init__(self, seeing: ClusterView | None, clock: Clock, recorder: Recorder) -> None:
        self._view, self._clock, self._recorder = seeing, clock, recorder
        self._due = float("-inf")
        self._zones: Mapping[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    async def report_pods(self, zones: Mapping[str, str]) -> None:
        """Look who waits for these zones, names by id; from time to time, and at once when they change."""
        if self._view is None or (not zones and not self._zones):
            return
        now = self._clock.monotonic()
        if zones == self._zones and now < self._due:
            return
        try:
            found = await self._view.find_pending_for_zones(zones)
        except DovetailError:
            return  # looked at again in the next pass
        self._due = now + LOOK_EVERY
        self._set_gauges(found, zones)
        for each in found:
            self._report_pod(each)

    def _set_gauges(self, found: tuple[ZoneBoundPod, ...], zones: Mapping[str, str]) -> None:
        waiting = Counter(each.zone for each in found)
        for name in {*zones.values(), *self._zones.values()}:
            shift_metrics.PENDING_FOR_ZONE.labels(name).set(waiting[name])
        self._told = {(uid, zone) for uid, zone in self._told if zone in zones.values()}
        self._zones = dict(zones)

    def _report_pod(self, each: ZoneBoundPod) -> None:
        assert self._view is not None
        workload = self._view.find_owner(each.pod)
        key = (workload.uid or workload.full_name, each.zone)
        if key in self._told:
            return
        self._told.add(key)
        note = f"pod {each.pod.name}: {each}"
        self._recorder.publish_event(workload, "WaitingForZone", note, warning=True, dedupe=key, window=DAY)


# Later than this nobody wants to hear of it; a process that starts then says nothing.
FRESH = timedelta(minutes=10)


class SkewReport:
    """Says it when a shift is over."""

    def __init__(self, seeing: ClusterView | None, clock: Clock, recorder: Recorder, *, wanted: bool) -> None:
        self._view, self._clock, self._recorder, self._wanted = seeing, clock, recorder, wanted
        self._told: set[str] = set()

    async def report_skew(self, acting: Sequence[ShiftState]) -> None:
        if not self._wanted or self._view is None:
            return
        for each in acting:
            ended, now = each.record.ended, self._clock.now()
            fresh = each.record.phase == "Restored" and ended is not None and now - ended < FRESH
            if not fresh or each.name in self._told:
                continue
            try:
                found = measure_balance(await self._view.take_snapshot())
            except DovetailError:
                continue  # told in the next pass
            self._told.add(each.name)
            _set_skew_gauges(found)
            note = f"zones differ by {found.skew} nodes: {found}"
            self._recorder.publish_event(each.obj, "ZonalShiftSkew", note, dedupe=(each.name,))


def _set_skew_gauges(found: ZoneBalance) -> None:
    for of, shares in (("nodes", found.nodes), ("pods", found.pods), ("dollars", found.dollars)):
        for zone, value in shares.items():
            shift_metrics.SKEW.labels(zone, of).set(value)


OVER = ("Restored", "Refused")


class _ZeroingGauge:
    """A gauge of which only what was last put there is more than zero."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        for key in self._shown - values.keys():
            self._gauge.labels(*key).set(0)
        for key, value in values.items():
            self._gauge.labels(*key).set(value)
        self._shown |= values.keys()


class ShiftGauges:
    """Everything about shifts that goes up and down."""

    def __init__(self) -> None:
        self._active, self._phase = _ZeroingGauge(shift_metrics.ACTIVE), _ZeroingGauge(shift_metrics.PHASE)
        self._duration, self._upstream = (
            _ZeroingGauge(shift_metrics.DURATION),
            _ZeroingGauge(shift_metrics.UPSTREAM_DURATION),
        )
        self._nodes, self._pools = _ZeroingGauge(shift_metrics.NODES), _ZeroingGauge(shift_metrics.POOLS)

    def set_all(
        self,
        states: Sequence[ShiftState],
        zone_map: ZoneMap,
        pools: Sequence[PoolDocument],
        nodes: Iterable[Node],
        now: datetime,
    ) -> None:
        names = zone_map.names
        live = [each for each in states if each.record.phase not in OVER]
        self._active.show(
            {
                (
                    _zone_name(each, names),
                    each.record.shift.zone_id,
                    each.record.shift.kind,
                    each.record.policy,
                ): 1
                for each in live
            }
        )
        # Of several shifts of a zone the one that is not over counts, or else the last.
        phases = {each.record.shift.zone_id: each.record.phase for each in (*states, *live)}
        self._phase.show(dict.fromkeys(phases.items(), 1))
        lasted = {each.name: max((now - each.record.since).total_seconds(), 0.0) for each in live}
        self._duration.show({(_zone_name(e, names), e.record.shift.kind): lasted[e.name] for e in live})
        self._upstream.show({(_zone_name(each, names),): lasted[each.name] for each in live})
        marked, edited = count_protected_by_zone(nodes, zone_map), count_edited_by_zone(pools, zone_map)
        self._nodes.show({(names.get(zone, zone),): count for zone, count in marked.items()})
        self._pools.show({(names.get(zone, zone),): count for zone, count in edited.items()})


def _zone_name(each: ShiftState, names: Mapping[str, str]) -> str:
    return names.get(each.record.shift.zone_id, each.record.shift.zone_id)


HOUR = 3600.0


class ZoneEvents:
    """Tells a pool once when a zone of its own goes, and once when it comes back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._before: frozenset[str] = frozenset()

    def has_changed(self, excluded_zones: frozenset[str]) -> bool:
        return excluded_zones != self._before

    def report_zones(
        self,
        pools: Sequence[PoolDocument],
        zone_map: ZoneMap,
        excluded_zones: frozenset[str],
        *,
        gated: bool = True,
    ) -> None:
        """`gated` where pools are not edited: those that are hear of their only zone when that is done."""
        if not all(zone_map.list_reached(*pool.class_name) for pool in pools):
            return  # a class that has not found its subnets yet may have one there: told when it has
        for zone in sorted(excluded_zones ^ self._before):
            for pool in pools:
                if zone in zone_map.names and _is_affected(pool, zone_map, zone):
                    self._report_zone(pool, zone_map.names[zone], zone, shifted=zone in excluded_zones)
                    if gated:
                        self._report_confined(pool, zone_map, excluded_zones)
        self._before = excluded_zones

    def _report_confined(self, pool: PoolDocument, zone_map: ZoneMap, excluded_zones: frozenset[str]) -> None:
        """A pool to which no other zone is left launches nothing, however that is brought about."""
        reached = [each for each in zone_map.list_reached(*pool.class_name) if each in zone_map.names]
        ids = [each for each in reached if each in excluded_zones]
        names = zone_map.names
        zones = ImpairedZones(
            tuple(names[each] for each in ids),
            tuple(ids),
            tuple(names[each] for each in reached),
            tuple(reached),
        )
        if ids and is_confined(_list_own_entries(pool), zones):
            self._recorder.publish_event(
                pool, "OnlyZoneImpaired", FROZEN, warning=True, dedupe=(pool.uid, FROZEN)
            )

    def _report_zone(self, pool: PoolDocument, name: str, zone: str, *, shifted: bool) -> None:
        about, dedupe = f"zone {name} ({zone})", (pool.uid, zone)
        if shifted:
            note = f"{about} is shifted away"
            self._recorder.publish_event(pool, "ZonalShiftActive", note, warning=True, dedupe=dedupe)
        else:
            self._recorder.publish_event(pool, "ZonalShiftCleared", f"{about} is back", dedupe=dedupe)

    def report_unregistered(self, pools: Sequence[PoolDocument], cluster: str) -> None:
        note = (
            f"ARC does not know the cluster {cluster}, so its shifts are not followed; enable zonal shift on "
            "the cluster (zonalShiftConfig.enabled=true), or use `dovetail zonal-shift start --local`"
        )
        for pool in pools:
            self._recorder.publish_event(
                pool, "ZonalShiftUnregistered", note, warning=True, dedupe=(pool.uid,), window=HOUR
            )


def _is_affected(pool: PoolDocument, zone_map: ZoneMap, zone: str) -> bool:
    """Whether the pool's class has a subnet there, and the pool lets its nodes be there."""
    return zone in zone_map.list_reached(*pool.class_name) and admits_zone(
        _list_own_entries(pool), zone_map.names[zone], zone
    )


def _list_own_entries(pool: PoolDocument) -> list[Mapping[str, Any]]:
    """What the pool itself says of zones; entries of ours do not count. Of a note nobody can read, all do."""
    try:
        ledger = parse_pool_ledger(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
    except BadInput:
        ledger = None
    entries = pool.requirements if ledger is None else ledger.base
    return [each for each in entries if each["key"] in KEYS]


BEGAN, ENDED = frozenset((RecordKind.SHIFT_BEGAN,)), frozenset((RecordKind.SHIFT_ENDED,))


class ShiftRecords:
    """Notes which zones are shifted away, and that they are back; nothing where no history is kept."""

    def __init__(self, history: DecisionSink | None) -> None:
        self._history = history
        # None until it is known what the records of the terms before say.
        self._away: frozenset[str] | None = None

    def note_zones(self, states: Iterable[ShiftState], zone_map: ZoneMap) -> None:
        """Compare the zones that nothing is bought in with those of the last pass."""
        if self._history is None or not self._history.recording:
            return
        away = {
            zone_map.names.get(each.record.shift.zone_id, each.record.shift.zone_id): each
            for each in states
            if each.record.launches_gated and not each.dry
        }
        before = self._read_away() if self._away is None else self._away
        for zone in sorted(away.keys() - before):
            shift = away[zone].record.shift
            told = f"nothing is bought there: {shift.comment or away[zone].name}"
            self._history.note_decision(RecordDraft(RecordKind.SHIFT_BEGAN, f"zone/{zone}", shift.kind, told))
        for zone in sorted(before - away.keys()):
            draft = RecordDraft(RecordKind.SHIFT_ENDED, f"zone/{zone}", "", "nodes are bought there again")
            self._history.note_decision(draft, parent=self._history.find_cause(zone, BEGAN))
        self._away = frozenset(away)

    def _read_away(self) -> frozenset[str]:
        assert self._history is not None
        found: set[str] = set()
        for record in self._history.list_records(BEGAN | ENDED):
            zone = record.subject.removeprefix("zone/")
            (found.add if record.kind is RecordKind.SHIFT_BEGAN else found.discard)(zone)
        return frozenset(found)
