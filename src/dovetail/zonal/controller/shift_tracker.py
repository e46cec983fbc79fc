"""Which shifts there are by ARC, operators and events: begun as records, moved on, and one day forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from dovetail.api.zoneshift import ZoneShift
from dovetail.logs import Changes, build_reference, error
from dovetail.ports import Clock, Recorder
from dovetail.zonal.controller.arc import ArcPoller
from dovetail.zonal.controller.shift_status import OVER, OutstandingWork, ShiftState, ShiftStatusWriter
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model import records
from dovetail.zonal.model.records import KIND, START
from dovetail.zonal.model.shifts import (
    KINDS,
    Kind,
    Shift,
    choose_by_zone,
    explain_foreign_owner,
    find_impairment,
    find_shift_owner,
)
from dovetail.zonal.model.state_machine import (
    ShiftObservation,
    ShiftProgress,
    ShiftRecord,
    advance_record,
    begin_record,
)
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ShiftWriter

__all__ = ["ShiftTracker"]

# A start that only an event tells of is believed this long after it was sent.
BELIEVED = timedelta(minutes=15)
# Seconds between two looks at how far undoing has come.
WAY_BACK = 5.0
REFUSED = error(
    "zonal shift is another's",
    "A zone is shifted away by another process already; once an hour.",
    ("ZoneShift", "zone", "error"),
    ours=True,
)


class ShiftTracker:
    """Turns what ARC and operators say into states of shifts, and moves those on."""

    def __init__(
        self,
        writer: ShiftWriter,
        statuses: ShiftStatusWriter,
        clock: Clock,
        recorder: Recorder,
        options: ZonalOptions,
    ) -> None:
        self._writer, self._statuses, self._recorder, self.options = writer, statuses, recorder, options
        self._changes = Changes(clock.monotonic)

    def list_shifts(
        self, objects: Sequence[ZoneShift], signals: Sequence[ZoneShift], arc: ArcPoller, now: datetime
    ) -> tuple[Shift, ...]:
        """Every shift anyone speaks of: ARC, operators, and, while ARC is silent, events."""
        local = [
            records.build_local_shift(each)
            for each in objects
            if each.spec.kind == "LOCAL" and not each.deleting and each.status.phase != "Restored"
            if each.spec.expires is None or each.spec.expires > now
        ]
        told = arc.last.shifts if arc.last is not None else ()
        believed = (
            self._list_trusted_signals(signals, now) if arc.failing and self.options.trust_events else ()
        )
        return (*told, *local, *believed)

    def _list_trusted_signals(self, signals: Sequence[ZoneShift], now: datetime) -> tuple[Shift, ...]:
        found = []
        for each in signals:
            created = each.metadata.creation_timestamp
            kind = each.annotations.get(KIND, "")
            if each.annotations.get(START) == "true" and created is not None and now - created < BELIEVED:
                named: Kind = next((k for k in KINDS if k == kind), "ZONAL_SHIFT")
                found.append(Shift(each.spec.zone_id, named, started=created))
        return tuple(found)

    def decide_states(
        self,
        objects: Sequence[ZoneShift],
        wanted: Sequence[Shift],
        zone_map: ZoneMap,
        arc: ArcPoller,
        now: datetime,
        *,
        off: bool = False,
        foreign: Sequence[ZoneShift] = (),
    ) -> list[ShiftState]:
        """A record for every shift, and what is seen of it now. Zones of `foreign` ones are left to them."""
        used = [
            each for each in wanted if each.zone_id not in zone_map.names or each.zone_id in zone_map.used
        ]
        in_force = {
            each.spec.zone_id for each in objects if each.status.phase in ("Applying", "Active", "Restoring")
        }
        found = find_impairment(
            used,
            self.options.policies,
            zone_map.used,
            honour_unapplied=self.options.honour_unapplied,
            min_healthy=self.options.min_healthy,
            in_force=in_force,
        )
        applied = [each for each in used if each.applied or self.options.honour_unapplied]
        ours = choose_by_zone(
            each
            for each in applied
            if each.kind != "LOCAL" and self.options.policies.find_policy(each.kind) != "Ignore"
        )
        kept = list[ShiftState]()
        for each in objects:
            try:
                kept.append(self._build_known_state(each, ours, found.refused, arc, now, off=off))
            except Exception as wrong:  # noqa: BLE001 (one shift nobody can make sense of holds up no other)
                self._statuses.note_bad_shift(each, wrong)
        taken = {each.record.shift.zone_id for each in kept if self._has_zone_object(each, ours)}
        taken |= {each.spec.zone_id for each in foreign if each.status.phase not in OVER}
        names = {each.name for each in (*objects, *foreign)}
        for zone, shift in ours.items():
            if zone not in taken and not off:
                kept.append(self._build_new_state(shift, names, found.refused.get(zone, ""), arc, now))
        return kept

    def list_foreign_states(self, foreign: Sequence[ZoneShift], now: datetime) -> list[ShiftState]:
        """Shifts that another keeps: their gates are closed here, too, and nothing is written for them."""
        live = [each for each in foreign if each.status.phase not in OVER]
        for each in live:
            zone, theirs = each.spec.zone_id, find_shift_owner(each.annotations, each.status.phase)
            note = explain_foreign_owner(zone, theirs, self.options.owner)
            if self._changes.has_changed(each.name, note):
                REFUSED({"ZoneShift": build_reference(each.name), "zone": zone, "error": note})
            self._recorder.publish_event(
                each, "ZonalShiftRefused", note, warning=True, dedupe=(each.name, self.options.owner)
            )
        return [
            ShiftState(records.build_record(each, now), each, each, ShiftObservation(now, None))
            for each in live
        ]

    def _has_zone_object(self, each: ShiftState, ours: Mapping[str, Shift]) -> bool:
        """Whether the zone's shift has its object already; one an operator cancelled still is that."""
        if each.obj.spec.kind == "LOCAL":
            return False
        shift = ours.get(each.record.shift.zone_id)
        if each.record.phase != "Restored":
            return True
        same = shift is not None and each.obj.spec.shift_id == shift.shift_id
        return same and each.obj.deleting

    def _build_known_state(
        self,
        obj: ZoneShift,
        ours: Mapping[str, Shift],
        refused: Mapping[str, str],
        arc: ArcPoller,
        now: datetime,
        *,
        off: bool,
    ) -> ShiftState:
        there, obj = obj, self._writer.find_latest(obj)
        record, zone = records.build_record(obj, now), obj.spec.zone_id
        if obj.spec.kind == "LOCAL":
            over = obj.spec.expires is not None and obj.spec.expires <= now
            sight = ShiftObservation(
                now, None if over or obj.deleting else records.build_local_shift(obj), obj.deleting or off
            )
        else:
            shift = ours.get(zone)
            sight = ShiftObservation(_find_poll_time(arc, shift, record.since), shift, obj.deleting or off)
            if shift is not None and record.phase not in OVER:
                record = structs.replace(record, policy=self.options.policies.find_policy(shift.kind))
        refusal = refused.get(zone, "") if sight.shift is not None else ""
        record = _apply_refusal(record, refusal)
        return ShiftState(record, obj, there, sight, dry=self._is_dry_run(obj), refusal=refusal)

    def _build_new_state(
        self, shift: Shift, taken: Collection[str], refusal: str, arc: ArcPoller, now: datetime
    ) -> ShiftState:
        record = _apply_refusal(
            begin_record(shift, self.options.policies.find_policy(shift.kind), now), refusal
        )
        polled = _find_poll_time(arc, shift, now)
        name, again = records.build_name(shift), 0
        while name in taken:  # the same shift, once more after it had ended
            again += 1
            name = records.build_name(shift, str(again))
        dry = bool(self.options.dry_run)
        obj = records.build_object(record, arc.arn, dry_run=dry, name=name, owner=self.options.owner)
        return ShiftState(record, obj, None, ShiftObservation(polled, shift), dry=dry, refusal=refusal)

    def imagine_shift(self, zone: str, now: datetime) -> ShiftState:
        """A shift that nobody has asked for, in full force."""
        shift = Shift(zone, "LOCAL", "imagined")
        record = structs.replace(begin_record(shift, "Enforce", now), phase="Active")
        obj = records.build_object(record, "", dry_run=True, name=records.build_name(shift))
        return ShiftState(record, obj, None, ShiftObservation(None, shift), dry=True)

    def _is_dry_run(self, obj: ZoneShift) -> bool:
        """What was begun in a dry run is one while that lasts, and what is only local for good."""
        return obj.spec.dry_run and (obj.spec.kind == "LOCAL" or bool(self.options.dry_run))

    def advance_states(
        self,
        states: Sequence[ShiftState],
        outstanding: Callable[[Sequence[ShiftState]], OutstandingWork],
        arc: ArcPoller,
        now: datetime,
    ) -> list[ShiftState]:
        """Each record one step further, if it is time."""
        left, moved = outstanding(states), list[ShiftState]()
        for each in states:
            zone = each.record.shift.zone_id
            undoing = each.record.phase == "Restoring"
            progress = ShiftProgress(
                pools=0 if each.dry else left.pools,
                nodes=0 if each.dry else (left.releases if undoing else left.nodes).get(zone, 0),
                drifted=left.drifted,
            )
            try:
                record = advance_record(each.record, each.sight, progress, now, self.options.pace)
            except Exception as wrong:  # noqa: BLE001 (it stays where it is; the others move on)
                self._statuses.note_bad_shift(each.obj, wrong)
                record = each.record
            if record is None:
                moved.append(replace(each, forgotten=True, left=left))
            else:
                moved.append(replace(each, record=record, left=left))
        return moved

    def seconds_until_next(self, states: Sequence[ShiftState], now: datetime) -> float:
        """Seconds until something may move by itself."""
        pace, found = self.options.pace, [30.0]
        for each in states:
            record = each.record
            if record.phase == "Pending":
                found.append((record.since + pace.debounce - now).total_seconds())
            if record.phase == "Restoring" and record.step == "settling":
                found.append(((record.stepped or now) + pace.settle - now).total_seconds())
            elif record.phase == "Restoring":
                found.append(WAY_BACK)
            if record.shift.expires is not None and record.phase in ("Applying", "Active"):
                left = (record.shift.expires - now).total_seconds() + 0.5
                found += [left] if left > 0 else []
        return max(min(found), 0.2)


def _find_poll_time(arc: ArcPoller, shift: Shift | None, since: datetime) -> datetime | None:
    """When ARC said so; None for what only an event tells, and while ARC has said nothing since."""
    if arc.last is None:
        return None
    if shift is not None:
        return arc.last.at if shift in arc.last.shifts else None
    return arc.last.at if arc.last.at >= since else None


def _apply_refusal(record: ShiftRecord, refusal: str) -> ShiftRecord:
    if refusal and record.phase == "Pending":
        return structs.replace(record, phase="Refused")
    if not refusal and record.phase == "Refused":
        return structs.replace(record, phase="Pending")
    return record
