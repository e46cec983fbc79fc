"""What ARC says about a cluster, and which zones that makes impaired.

Kinds differ in what their end looks like. A manual shift ends at its expiry, or when it is cancelled; the
expiry of a practice run or an experiment is always a minute ahead and proves nothing; an autoshift has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

__all__ = [
    "CONTROLLER",
    "KINDS",
    "OWNER",
    "PRECEDENCE",
    "STAND_ALONE",
    "ArcPoll",
    "Impairment",
    "Kind",
    "Owner",
    "Policy",
    "Shift",
    "ShiftPolicies",
    "build_owner_note",
    "choose_by_zone",
    "explain_foreign_owner",
    "find_impairment",
    "find_owner",
    "find_shift_owner",
    "has_ended_silently",
    "parse_poll",
]

Kind = Literal["ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "PRACTICE_RUN", "FIS_EXPERIMENT", "OBSERVED", "LOCAL"]
Policy = Literal["Enforce", "Protect", "Observe", "Ignore"]
KINDS: tuple[Kind, ...] = (
    *("ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "PRACTICE_RUN", "FIS_EXPERIMENT", "OBSERVED", "LOCAL"),
)
# Who wins where ARC allows one: a person first, then AWS, then experiments, then rehearsals.
PRECEDENCE: Mapping[Kind, int] = {
    "LOCAL": 0,
    "ZONAL_SHIFT": 1,
    "ZONAL_AUTOSHIFT": 2,
    "FIS_EXPERIMENT": 3,
    "PRACTICE_RUN": 4,
    "OBSERVED": 5,
}
HOLD_MANUAL = timedelta(minutes=5)
HOLD_REHEARSED = timedelta(minutes=60)


class Shift(Struct, frozen=True):
    """One shift away from one zone."""

    zone_id: str
    kind: Kind
    shift_id: str = ""
    applied: bool = True
    started: datetime | None = None
    expires: datetime | None = None
    comment: str = ""

    @property
    def key(self) -> str:
        """The same for the same shift, however it was learned of. A kind may change in place."""
        return f"{self.zone_id}/{self.shift_id or self.kind.lower()}"


class ShiftPolicies(Struct, frozen=True):
    """What to do about each kind."""

    manual: Policy = "Enforce"
    autoshift: Policy = "Enforce"
    fis: Policy = "Enforce"
    practice: Policy = "Enforce"
    observer: Policy = "Observe"

    def find_policy(self, kind: Kind) -> Policy:
        return {
            "ZONAL_SHIFT": self.manual,
            "LOCAL": self.manual,
            "ZONAL_AUTOSHIFT": self.autoshift,
            "FIS_EXPERIMENT": self.fis,
            "PRACTICE_RUN": self.practice,
            "OBSERVED": self.observer,
        }[kind]


class ArcPoll(Struct, frozen=True):
    """One successful look at ARC: everything it says about the cluster at that moment."""

    at: datetime
    shifts: tuple[Shift, ...] = ()


class Impairment(Struct, frozen=True):
    """Zones that count, each with the shift that weighs most there, and shifts that had to be refused."""

    shifts: Mapping[str, Shift]
    refused: Mapping[str, str]

    def list_zones(self, policies: ShiftPolicies, *acting: Policy) -> tuple[str, ...]:
        """The zone ids whose policy is one of these."""
        return tuple(
            sorted(zone for zone, each in self.shifts.items() if policies.find_policy(each.kind) in acting)
        )


def parse_poll(answer: Mapping[str, Any], at: datetime) -> ArcPoll:
    """GetManagedResource as a Poll. Both lists are read: autoshifts stand in one of their own."""
    listed = [
        Shift(
            zone_id=str(each.get("awayFrom", "")),
            kind=_parse_kind(str(each.get("shiftType") or "ZONAL_SHIFT")),
            shift_id=str(each.get("zonalShiftId", "")),
            applied=each.get("appliedStatus") == "APPLIED",
            started=each.get("startTime"),
            expires=each.get("expiryTime"),
            comment=str(each.get("comment", "")),
        )
        for each in answer.get("zonalShifts") or ()
    ]
    listed += [
        Shift(
            zone_id=str(each.get("awayFrom", "")),
            kind="ZONAL_AUTOSHIFT",
            applied=each.get("appliedStatus") == "APPLIED",
            started=each.get("startTime"),
        )
        for each in answer.get("autoshifts") or ()
    ]
    return ArcPoll(at, tuple(_deduplicate_shifts(listed)))


def _parse_kind(text: str) -> Kind:
    return next((kind for kind in KINDS if kind == text), "ZONAL_SHIFT")


def _deduplicate_shifts(shifts: Iterable[Shift]) -> list[Shift]:
    """An autoshift may stand in both lists; one of each zone and kind is enough."""
    found: dict[tuple[str, Kind], Shift] = {}
    for shift in shifts:
        known = found.get((shift.zone_id, shift.kind))
        if known is None or (shift.applied and not known.applied):
            found[shift.zone_id, shift.kind] = shift
    return list(found.values())


def find_impairment(
    shifts: Sequence[Shift],
    policies: ShiftPolicies,
    eligible: Sequence[str],
    *,
    honour_unapplied: bool = False,
    min_healthy: int = 1,
    in_force: Collection[str] = (),
) -> Impairment:
    """Which zones to shift away from. Never so many that fewer than `min_healthy` are left.

    Zones that are shifted away already come first, then those whose shift began first.
    """
    counted = [
        shift
        for shift in shifts
        if (shift.applied or honour_unapplied) and policies.find_policy(shift.kind) != "Ignore"
    ]
    heaviest = choose_by_zone(counted)
    refused = {
        zone: f"the zone {zone} is not known here" for zone in heaviest if zone and zone not in eligible
    }
    room = len(eligible) - min_healthy
    kept: dict[str, Shift] = {}
    order = sorted(
        heaviest.items(), key=lambda item: (item[0] not in in_force, _start_time(item[1]), item[0])
    )
    for zone, shift in order:
        if zone in refused:
            continue
        if policies.find_policy(shift.kind) == "Observe":
            kept[zone] = shift
        elif room > 0:
            kept[zone], room = shift, room - 1
        else:
            refused[zone] = f"shifting away from {zone} too would leave fewer than {min_healthy} zones"
    return Impairment(kept, refused)


def choose_by_zone(shifts: Iterable[Shift]) -> dict[str, Shift]:
    """For each zone the shift that weighs most there."""
    heaviest: dict[str, Shift] = {}
    for shift in sorted(shifts, key=_weigh_shift):
        heaviest.setdefault(shift.zone_id, shift)
    return heaviest


def _weigh_shift(shift: Shift) -> tuple[bool, int, float]:
    return not shift.applied, PRECEDENCE[shift.kind], _start_time(shift)


def _start_time(shift: Shift) -> float:
    return shift.started.timestamp() if shift.started is not None else 0.0


def has_ended_silently(shift: Shift, now: datetime) -> bool:
    """While ARC does not answer: may this shift be taken to be over? Only time that is meant counts."""
    if shift.kind in ("ZONAL_SHIFT", "LOCAL"):
        return shift.expires is not None and now > shift.expires + HOLD_MANUAL
    if shift.kind in ("PRACTICE_RUN", "FIS_EXPERIMENT"):
        return shift.started is not None and now > shift.started + HOLD_REHEARSED
    return False


Owner = Literal["controller", "zonal-shift"]
CONTROLLER: Owner = "controller"
STAND_ALONE: Owner = "zonal-shift"
OWNER = "zonalshift.dovetail.sh/owner"
OWNER_NAMES: Mapping[str, str] = {
    CONTROLLER: "the controller (ENABLE_ZONAL_SHIFT)",
    STAND_ALONE: "`dovetail zonal-shift run` or its function",
}


def find_shift_owner(annotations: Mapping[str, str], phase: str) -> str:
    """Who keeps a ZoneShift: empty for one that nobody has begun. Before owners were noted, it was us."""
    return annotations.get(OWNER, "") or (CONTROLLER if phase else "")


def find_owner(annotations: Mapping[str, str]) -> str:
    """Who made an object of ours that is no ZoneShift: a stand-in, or a buffer."""
    return annotations.get(OWNER, CONTROLLER)


def build_owner_note(owner: Owner) -> dict[str, str]:
    """What such an object carries."""
    return {} if owner == CONTROLLER else {OWNER: owner}


def explain_foreign_owner(zone: str, theirs: str, ours: Owner) -> str:
    """Why a shift is left alone, and what a person does about it."""
    return (
        f"shifting away from {zone} is left to {OWNER_NAMES.get(theirs, theirs)}, which has begun it: "
        "two would undo "
        f"each other's work; switch off one of them, that or {OWNER_NAMES[ours]}"
    )
