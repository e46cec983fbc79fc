"""ZoneShift objects and the records the machine moves: one written as the other, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import cast

from msgspec.structs import replace

from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.zoneshift import RESTORE_FINALIZER, ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.zonal.model.shifts import CONTROLLER, OWNER, Kind, Owner, Policy, Shift
from dovetail.zonal.model.state_machine import EndReason, Phase, ShiftRecord, Step

__all__ = [
    "KIND",
    "SIGNAL",
    "START",
    "build_local_shift",
    "build_name",
    "build_object",
    "build_record",
    "build_shift_key",
    "set_condition",
    "update_object",
]

SIGNAL = "SIGNAL"
# Annotations on a ZoneShift that is a message: whether a shift starts, and of which kind.
START, KIND = "zonalshift.dovetail.sh/starts", "zonalshift.dovetail.sh/kind"


def build_name(shift: Shift, again: str = "") -> str:
    """The name of the object for a shift, the same however often it is seen."""
    told = "/".join(
        (shift.key, shift.started.isoformat() if shift.started and not shift.shift_id else "", again)
    )
    return f"{shift.zone_id}-{hashlib.sha256(told.encode()).hexdigest()[:6]}"


def build_shift_key(obj: ZoneShift) -> str:
    """How ledgers on nodes and pools call the shift; it stays when the kind changes in place."""
    zone = obj.spec.zone_id
    return f"{zone}/{obj.name.removeprefix(zone + '-')}"


def build_local_shift(obj: ZoneShift) -> Shift:
    """The shift that is an operator's own wish."""
    return Shift(
        zone_id=obj.spec.zone_id,
        kind="LOCAL",
        shift_id=obj.name,
        started=obj.metadata.creation_timestamp,
        expires=obj.spec.expires,
        comment=obj.spec.comment,
    )


def build_object(
    record: ShiftRecord, arn: str, *, dry_run: bool, name: str, owner: Owner = CONTROLLER
) -> ZoneShift:
    """The object for a shift that was not known before."""
    shift = record.shift
    return ZoneShift(
        metadata=ObjectMeta(name=name, finalizers=(RESTORE_FINALIZER,), annotations={OWNER: owner}),
        spec=ZoneShiftSpec(
            zone_id=shift.zone_id,
            kind=shift.kind,
            shift_id=shift.shift_id,
            cluster_arn=arn,
            policy=record.policy,
            dry_run=dry_run,
            comment=shift.comment[:128],
        ),
    )


def build_record(obj: ZoneShift, now: datetime) -> ShiftRecord:
    """What an object says about its shift."""
    status, spec = obj.status, obj.spec
    since = status.started_at or obj.metadata.creation_timestamp or now
    local = spec.kind == "LOCAL"
    shift = Shift(
        zone_id=spec.zone_id,
        kind=cast(Kind, spec.kind),
        shift_id=obj.name if local else spec.shift_id,
        started=since,
        expires=spec.expires if local else status.expiry_time,
        comment=spec.comment,
    )
    return ShiftRecord(
        shift=shift,
        policy=cast(Policy, spec.policy),
        since=since,
        phase=cast(Phase, status.phase or "Pending"),
        confirmed=status.last_confirmed_at,
        gone=status.gone_at,
        ended=status.ended_at,
        reason=cast(EndReason, status.end_reason),
        step=cast(Step, status.step or "pools"),
        stepped=status.stepped_at,
    )


def update_object(
    obj: ZoneShift, record: ShiftRecord, status: ZoneShiftStatus, *, dry_run: bool = False
) -> ZoneShift:
    """The object after the record has moved. `status` brings what the machine does not know of."""
    spec = obj.spec
    if spec.kind != "LOCAL":
        spec = replace(
            spec,
            kind=record.shift.kind,
            shift_id=record.shift.shift_id or spec.shift_id,
            policy=record.policy,
            comment=record.shift.comment[:128],
            dry_run=dry_run,
        )
    done = replace(
        status,
        phase=record.phase,
        started_at=_truncate_seconds(record.since),
        expiry_time=_truncate_seconds(record.shift.expires),
        last_confirmed_at=_truncate_seconds(record.confirmed),
        gone_at=_truncate_seconds(record.gone),
        ended_at=_truncate_seconds(record.ended),
        end_reason=record.reason,
        step=record.step if record.phase == "Restoring" else "",
        stepped_at=_truncate_seconds(record.stepped),
    )
    return replace(obj, spec=spec, status=done)


def _truncate_seconds(moment: datetime | None) -> datetime | None:
    """As the API keeps it: to the second."""
    return None if moment is None else moment.astimezone(UTC).replace(microsecond=0)


def set_condition(
    conditions: Iterable[Condition], kind: str, status: str, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with this one as it is now; its time is that of its last change."""
    listed = tuple(conditions)
    before = next((each for each in listed if each.type == kind), None)
    since = (
        before.last_transition_time
        if before is not None and before.status == status
        else _truncate_seconds(now)
    )
    made = Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)
    if before == made:
        return listed
    return (*(each for each in listed if each.type != kind), made)
