"""Who steps out of zones: each owner acts upon its own shifts and notes, and leaves those of others alone.

The controller may do it itself, or a process beside it (`dovetail zonal-shift run`, or its function). What
one of them did, only that one undoes: a controller whose zonal shift is off is no judge of another's shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

__all__ = [
    "CONTROLLER",
    "OWNER",
    "STAND_ALONE",
    "Owner",
    "foreign_advice",
    "noted",
    "owner_of",
    "owner_of_shift",
]

Owner = Literal["controller", "zonal-shift"]
CONTROLLER: Owner = "controller"
STAND_ALONE: Owner = "zonal-shift"
OWNER = "zonalshift.dovetail.sh/owner"
NAMES: Mapping[str, str] = {
    CONTROLLER: "the controller (ENABLE_ZONAL_SHIFT)",
    STAND_ALONE: "`dovetail zonal-shift run` or its function",
}


def owner_of_shift(annotations: Mapping[str, str], phase: str) -> str:
    """Who keeps a ZoneShift: empty for one that nobody has begun. Before owners were noted, it was us."""
    return annotations.get(OWNER, "") or (CONTROLLER if phase else "")


def owner_of(annotations: Mapping[str, str]) -> str:
    """Who made an object of ours that is no ZoneShift: a stand-in, or a buffer."""
    return annotations.get(OWNER, CONTROLLER)


def noted(owner: Owner) -> dict[str, str]:
    """What such an object carries."""
    return {} if owner == CONTROLLER else {OWNER: owner}


def foreign_advice(zone: str, theirs: str, ours: Owner) -> str:
    """Why a shift is left alone, and what a person does about it."""
    return (
        f"stepping out of {zone} is left to {NAMES.get(theirs, theirs)}, which has begun it: two would undo "
        f"each other's work; switch off one of them, that or {NAMES[ours]}"
    )
