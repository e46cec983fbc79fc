"""The states of shifts, and ZoneShift objects written as those move on: phase, steps, conditions and plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from dovetail.api.meta import Condition
from dovetail.api.zoneshift import (
    RESTORE_FINALIZER,
    ShiftCount,
    ShiftSteps,
    ShiftSummary,
    ZoneShift,
    ZoneShiftStatus,
)
from dovetail.ports import Clock, Recorder
from dovetail.zonal import shift_metrics
from dovetail.zonal.controller.arc import ArcPoller
from dovetail.zonal.controller.writes import note_bad_object
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model import records
from dovetail.zonal.model.shifts import OWNER
from dovetail.zonal.model.state_machine import ShiftObservation, ShiftRecord
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ShiftWriter

__all__ = ["OVER", "OutstandingWork", "ShiftState", "ShiftStatusWriter"]

OVER = ("Restored", "Refused")


@dataclass(frozen=True, slots=True)
class OutstandingWork:
    """What is still to be done: marks and releases by zone id, pools in all, claims that count as drifted.

    `marked` and `edited` are what was done: nodes by zone id, and pools by the key of a shift.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    marked: Mapping[str, int] = field(default_factory=dict)
    edited: Mapping[str, int] = field(default_factory=dict)
    releases: Mapping[str, int] = field(default_factory=dict)
    pools: int = 0
    drifted: int = 0


@dataclass(frozen=True, slots=True)
class ShiftState:
    """A record and its object. `before` is it as the server has it; None when it is yet to be made."""

    record: ShiftRecord
    obj: ZoneShift
    before: ZoneShift | None
    sight: ShiftObservation
    dry: bool = False
    refusal: str = ""
    left: OutstandingWork = field(default_factory=OutstandingWork)
    forgotten: bool = False

    @property
    def name(self) -> str:
        return self.obj.name

    @property
    def key(self) -> str:
        return records.build_shift_key(self.obj)


class ShiftStatusWriter:
    """Writes each ZoneShift as its record is now, and what is to be told on it."""

    def __init__(self, writer: ShiftWriter, clock: Clock, recorder: Recorder, options: ZonalOptions) -> None:
        self._writer, self._clock, self._recorder, self.options = writer, clock, recorder, options
        # Shifts nobody can make sense of, and why.
        self.failures: dict[str, str] = {}
        # What a dry run on the client would have kept.
        self.imagined: tuple[ZoneShift, ...] = ()
        # What losing the zone would mean, by the name of its shift.
        self.impacts: dict[str, Mapping[str, str]] = {}
        # What was changed for it, by the same name.
        self.sums: dict[str, ShiftSummary] = {}

    def list_acting(self, states: Sequence[ShiftState]) -> list[ShiftState]:
        """Those that are more than a dry run, and can be followed."""
        return [each for each in states if not each.dry and f"ZoneShift/{each.name}" not in self.failures]

    async def save_states(
        self, states: Sequence[ShiftState], zone_map: ZoneMap, arc: ArcPoller, now: datetime
    ) -> bool:
        """Every object as its record is now; whether any phase or step moved."""
        moved = False
        after: list[ZoneShift] = []
        for each in states:
            if each.forgotten:
                if self.options.dry_run != "client" and each.before is not None:
                    await self._writer.remove_shift(each.before)
                moved = True
                continue
            before = each.obj.status
            try:
                status = self._build_status(each, before, zone_map, arc, now)
                obj = self._add_owner_note(
                    records.update_object(each.obj, each.record, status, dry_run=each.dry)
                )
            except Exception as wrong:  # noqa: BLE001 (it is not written; the others are)
                self.note_bad_shift(each.obj, wrong)
                continue
            self.failures.pop(f"ZoneShift/{each.name}", None)
            moved = moved or (obj.status.phase, obj.status.step) != (before.phase, before.step)
            self._report_phase(each, before.phase, obj, zone_map)
            after.append(obj)
            if self.options.dry_run != "client":
                await self._writer.save_shift(
                    each.before, obj if each.before is None else _set_finalizers(obj, each)
                )
        if self.options.dry_run == "client":
            self.imagined = tuple(after)
        return moved

    def note_bad_shift(self, shift: ZoneShift, wrong: Exception) -> None:
        """Set a ZoneShift aside that cannot be followed, and tell why."""
        note_bad_object(self.failures, f"ZoneShift/{shift.name}", wrong)
        note = f"it cannot be followed: {self.failures[f'ZoneShift/{shift.name}']}"
        self._recorder.publish_event(
            shift, "ZonalShiftRefused", note, warning=True, dedupe=(shift.name, note)
        )

    def _add_owner_note(self, obj: ZoneShift) -> ZoneShift:
        """With the note that it is ours, from the first write on."""
        if OWNER in obj.annotations:
            return obj
        annotations = {**obj.annotations, OWNER: self.options.owner}
        return structs.replace(obj, metadata=structs.replace(obj.metadata, annotations=annotations))

    def _build_status(
        self, each: ShiftState, before: ZoneShiftStatus, zone_map: ZoneMap, arc: ArcPoller, now: datetime
    ) -> ZoneShiftStatus:
        record, zone = each.record, each.record.shift.zone_id
        gate = "Done" if record.launches_gated and not each.dry else ""
        left = each.left
        steps = ShiftSteps(
            gate=gate,
            disruption="Done" if record.disruption_gated and not each.dry else "",
            nodes=_count_steps(before.steps.nodes, left.marked.get(zone, 0), left.nodes.get(zone, 0)),
            node_pools=_count_steps(before.steps.node_pools, left.edited.get(each.key, 0), left.pools),
        )
        conditions = self._set_confirmed(before.conditions, each, arc, now)
        return structs.replace(
            before, zone_name=zone_map.names.get(zone, ""), steps=steps, conditions=conditions
        )

    def _set_confirmed(
        self, conditions: tuple[Condition, ...], each: ShiftState, arc: ArcPoller, now: datetime
    ) -> tuple[Condition, ...]:
        if each.refusal:
            word = "UnknownZone" if "not known" in each.refusal else "TooFewZones"
            return records.set_condition(conditions, "Confirmed", "False", word, each.refusal, now)
        if each.record.confirmed is None:
            why = arc.failing or "no poll has shown it yet"
            return records.set_condition(conditions, "Confirmed", "Unknown", "Provisional", why, now)
        return records.set_condition(conditions, "Confirmed", "True", "Polled", "", now)

    def _report_phase(self, each: ShiftState, before: str, obj: ZoneShift, zone_map: ZoneMap) -> None:
        phase, zone = obj.status.phase, obj.spec.zone_id
        if phase == before:
            return
        name = zone_map.names.get(zone, zone)
        shift_metrics.PHASE.labels(zone, before).set(0)
        shift_metrics.PHASE.labels(zone, phase).set(1)
        record = each.record
        live = phase in ("Pending", "Applying", "Active", "Restoring")
        shift_metrics.ACTIVE.labels(name, zone, record.shift.kind, record.policy).set(1 if live else 0)
        now = self._clock.now()
        # What is marked later, such as a node that joins, does not make the first protection longer.
        if phase == "Active" and each.obj.status.stepped_at is None:
            shift_metrics.TO_PROTECT.observe(max((now - record.since).total_seconds(), 0.0))
        if phase == "Restored" and record.gone is not None:
            shift_metrics.TO_RESTORE.observe(max((now - record.gone).total_seconds(), 0.0))
        if phase == "Refused":
            shift_metrics.REFUSED.labels(zone).inc()
            self._recorder.publish_event(
                obj, "ZonalShiftRefused", each.refusal, warning=True, dedupe=(obj.name,)
            )

    async def save_reports(
        self,
        states: Sequence[ShiftState],
        troubles: Mapping[str, str],
        contested: frozenset[str],
        plan: Mapping[str, tuple[str, ...]],
    ) -> None:
        """What went wrong, what others undo, and what a dry run would do: on the objects."""
        now = self._clock.now()
        for each in states:
            if each.forgotten or each.record.phase in OVER:
                continue
            if self.options.dry_run == "client":
                self._imagine_plan(each.name, plan.get(each.name, ()))
                continue
            known = self._writer.find_known(each.name)
            if known is None:
                continue
            listed = _set_trouble_conditions(known.status.conditions, troubles, contested, now)
            status = structs.replace(known.status, conditions=listed)
            if each.name in self.impacts:
                status = structs.replace(status, impact=self.impacts[each.name])
            if each.name in self.sums:
                status = structs.replace(status, ledger=self.sums[each.name])
            if each.name in plan:
                status = structs.replace(status, plan=plan[each.name][:1000])
            if status != known.status:
                await self._writer.save_status(each.name, status)

    def _imagine_plan(self, name: str, plan: tuple[str, ...]) -> None:
        self.imagined = tuple(
            structs.replace(each, status=structs.replace(each.status, plan=plan))
            if each.name == name
            else each
            for each in self.imagined
        )


def _count_steps(before: ShiftCount, done: int, left: int) -> ShiftCount:
    """How many there were at most, and how many of them are not left: also where none was seen waiting."""
    desired = max(before.desired, done + left)
    return ShiftCount(desired=desired, done=max(desired - left, 0))


def _set_finalizers(obj: ZoneShift, each: ShiftState) -> ZoneShift:
    """Ours stays until everything is undone, and while ARC still shows a shift an operator cancelled."""
    over = each.record.phase in OVER
    still = obj.spec.kind != "LOCAL" and each.sight.shift is not None and obj.deleting
    wanted = () if over and obj.deleting and not still else (RESTORE_FINALIZER,)
    if obj.deleting and RESTORE_FINALIZER not in obj.metadata.finalizers:
        return obj
    others = tuple(one for one in obj.metadata.finalizers if one != RESTORE_FINALIZER)
    return structs.replace(obj, metadata=structs.replace(obj.metadata, finalizers=(*others, *wanted)))


def _set_trouble_conditions(
    conditions: tuple[Condition, ...], troubles: Mapping[str, str], contested: frozenset[str], now: datetime
) -> tuple[Condition, ...]:
    listed = conditions
    if troubles:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(troubles.items())[:5])
        listed = records.set_condition(listed, "Degraded", "True", "WriteRefused", told[:1024], now)
    elif any(each.type == "Degraded" for each in listed):
        listed = records.set_condition(listed, "Degraded", "False", "Recovered", "", now)
    if contested:
        told = f"{len(contested)} pools are put back by someone else as often as they are edited"
        listed = records.set_condition(listed, "Contested", "True", "PutBack", told, now)
    elif any(each.type == "Contested" for each in listed):
        listed = records.set_condition(listed, "Contested", "False", "Settled", "", now)
    return listed
