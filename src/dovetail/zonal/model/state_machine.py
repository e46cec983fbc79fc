"""One shift from its first sight to the last trace removed.

    Pending ── settled for a moment ──► Applying ── every step done ──► Active
                                            ▲                             │
                                  the zone is impaired again      seen gone twice, held long enough
                                            │                             ▼
                                        Restoring ◄───────────────────────┘
                                            │ every step undone
                                            ▼
                                        Restored ── a week ──► forgotten

Only polls of ARC end a shift; events make polls happen sooner. While ARC is silent nothing is undone, unless
the time that a person set is well over. The clock moves timers and never decides who is impaired.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dovetail.zonal.model.shifts import Kind, Policy, Shift, has_ended_silently

__all__ = [
    "STEPS",
    "Phase",
    "ShiftObservation",
    "ShiftProgress",
    "ShiftRecord",
    "ShiftTiming",
    "Step",
    "advance_record",
    "begin_record",
]

Phase = Literal["Pending", "Applying", "Active", "Restoring", "Restored", "Refused"]
EndReason = Literal["", "Cancelled", "Expired", "Completed", "Superseded", "Operator"]
# The way back, in order: what one step needs the step before has done.
Step = Literal["pools", "guard", "nodes", "settling", "lifted"]
STEPS: tuple[Step, ...] = ("pools", "guard", "nodes", "settling", "lifted")


class ShiftTiming(Struct, frozen=True):
    """How fast things may go."""

    debounce: timedelta = timedelta(seconds=2)
    min_hold: timedelta = timedelta(minutes=5)
    confirm: timedelta = timedelta(seconds=10)
    settle: timedelta = timedelta(minutes=10)
    guard: timedelta = timedelta(minutes=6)
    keep: timedelta = timedelta(days=7)


class ShiftObservation(Struct, frozen=True):
    """What is known now: the last poll that succeeded, and the shift it shows for the zone, if any."""

    polled_at: datetime | None
    shift: Shift | None
    # An operator wants it over, whatever ARC says.
    cancelled: bool = False


class ShiftProgress(Struct, frozen=True):
    """How much is still to be done: to be applied while going in, to be undone on the way back."""

    pools: int = 0
    nodes: int = 0
    # Claims that still count as drifted by our edit; the guard stays until there are none.
    drifted: int = 0


class ShiftRecord(Struct, frozen=True):
    """A shift as we keep it."""

    shift: Shift
    policy: Policy
    since: datetime
    phase: Phase = "Pending"
    confirmed: datetime | None = None
    # When a poll first showed the zone no longer impaired.
    gone: datetime | None = None
    ended: datetime | None = None
    reason: EndReason = ""
    step: Step = "pools"
    # When the step of the way back began; before that, when everything was first applied.
    stepped: datetime | None = None

    @property
    def launches_gated(self) -> bool:
        """No node is bought in the zone, from the first moment to the last step of the way back."""
        return self.policy in ("Enforce", "Protect") and self._in_force

    @property
    def disruption_gated(self) -> bool:
        return self.policy in ("Enforce", "Protect") and self._in_force

    @property
    def edits(self) -> bool:
        """Nodes are marked and pools edited; with other policies they are let be."""
        return self.policy == "Enforce" and self.phase in ("Applying", "Active")

    @property
    def _in_force(self) -> bool:
        return self.phase in ("Pending", "Applying", "Active") or (
            self.phase == "Restoring" and self.step != "lifted"
        )


def begin_record(shift: Shift, policy: Policy, now: datetime) -> ShiftRecord:
    """A shift that was not known before."""
    return ShiftRecord(shift=shift, policy=policy, since=now)


def advance_record(
    record: ShiftRecord,
    observation: ShiftObservation,
    progress: ShiftProgress,
    now: datetime,
    pace: ShiftTiming,
) -> ShiftRecord | None:
    """The record after a look at the world; None when nothing needs to be remembered any more."""
    record = _note_poll(record, observation)
    over = _find_end_reason(record, observation, now, pace)
    match record.phase:
        case "Pending":
            if over:
                return _enter_phase(record, "Restored", now, over)
            return _enter_phase(record, "Applying", now) if now - record.since >= pace.debounce else record
        case "Applying" | "Active":
            if over:
                return _enter_phase(record, "Restoring", now, over)
            done = record.policy != "Enforce" or not (progress.pools or progress.nodes)
            if not done:
                return replace(record, phase="Applying")
            return replace(record, phase="Active", stepped=record.stepped or now)
        case "Restoring":
            # An old look cannot bring back what ended while ARC was silent.
            anew = observation.polled_at is not None and (
                not record.stepped or observation.polled_at > record.stepped
            )
            if observation.shift is not None and not observation.cancelled and record.gone is None and anew:
                return _enter_phase(record, "Applying", now)  # objects say how far undoing had come
            return _advance_restore(record, progress, now, pace)
        case "Restored":
            return None if record.ended is not None and now - record.ended >= pace.keep else record
        case "Refused":
            return record if observation.shift is not None else None


def _note_poll(record: ShiftRecord, observation: ShiftObservation) -> ShiftRecord:
    """What the last poll says about it. A kind, an expiry or a comment may have changed in place."""
    if observation.polled_at is None or (
        record.confirmed is not None and observation.polled_at < record.confirmed
    ):
        return record
    if observation.shift is not None:
        return replace(record, shift=observation.shift, confirmed=observation.polled_at, gone=None)
    gone = record.gone if record.gone is not None else observation.polled_at
    return replace(record, gone=gone, confirmed=record.confirmed)


def _find_end_reason(
    record: ShiftRecord, observation: ShiftObservation, now: datetime, pace: ShiftTiming
) -> EndReason:
    """Why the shift is over; empty while it is not, or while that is not certain."""
    if observation.cancelled:
        return "Operator"
    if record.gone is not None and observation.polled_at is not None:
        if record.confirmed is None:
            return "Cancelled"  # only an event spoke of it, and the first poll does not
        certain = observation.polled_at - record.gone >= pace.confirm
        held = now - record.since >= pace.min_hold
        return _choose_end_reason(record.shift, now) if certain and held else ""
    silent = observation.polled_at is None or (
        record.confirmed is not None and observation.polled_at == record.confirmed
    )
    if silent and record.gone is None and _is_stale(record, now) and has_ended_silently(record.shift, now):
        return "Expired"
    return ""


def _is_stale(record: ShiftRecord, now: datetime) -> bool:
    """ARC has been silent for longer than polls are apart."""
    return record.confirmed is None or now - record.confirmed > timedelta(minutes=2)


def _choose_end_reason(shift: Shift, now: datetime) -> EndReason:
    kind: Kind = shift.kind
    if kind in ("ZONAL_AUTOSHIFT", "FIS_EXPERIMENT", "PRACTICE_RUN", "OBSERVED"):
        return "Completed"
    return "Expired" if shift.expires is not None and shift.expires <= now else "Cancelled"


def _advance_restore(
    record: ShiftRecord, progress: ShiftProgress, now: datetime, pace: ShiftTiming
) -> ShiftRecord:
    waited = now - (record.stepped or now)
    match record.step:
        case "pools":
            done = not progress.pools
        case "guard":
            # Drift conditions are refreshed within minutes; after that the guard would only be in the way.
            done = not progress.drifted or waited >= pace.guard
        case "nodes":
            done = not progress.nodes
        case "settling":
            done = waited >= pace.settle
        case "lifted":
            return _enter_phase(record, "Restored", now, record.reason)
    if not done:
        return record
    following = STEPS[STEPS.index(record.step) + 1]
    return replace(record, step=following, stepped=now)


def _enter_phase(record: ShiftRecord, phase: Phase, now: datetime, reason: EndReason = "") -> ShiftRecord:
    if phase == "Restoring":
        return replace(record, phase=phase, reason=reason, step="pools", stepped=now)
    if phase == "Restored":
        return replace(record, phase=phase, reason=reason, ended=now)
    # Whatever was begun on the way back is begun anew from where objects stand.
    return replace(record, phase=phase, reason="", step="pools", ended=None)
