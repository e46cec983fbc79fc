"""ZoneShift: a zone that is shifted away, and how far that has come (dovetail.sh/v1alpha1)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from dovetail.api.meta import Condition, Kind, Object, Record

__all__ = [
    "RESTORE_FINALIZER",
    "ShiftCount",
    "ShiftNodeCount",
    "ShiftSteps",
    "ShiftSummary",
    "ZoneShift",
    "ZoneShiftSpec",
    "ZoneShiftStatus",
]

# Deleting a ZoneShift is an operator's cancel: the object stays until everything is as it was.
RESTORE_FINALIZER = "dovetail.sh/zone-restore"


class ZoneShiftSpec(Record, frozen=True):
    """Which zone, by whose wish, and what to do about it."""

    zone_id: str = ""
    kind: str = "LOCAL"
    shift_id: str = ""
    cluster_arn: str = ""
    policy: str = "Enforce"
    dry_run: bool = False
    # Of LOCAL shifts alone: ARC says when the others end.
    expires: datetime | None = None
    comment: str = ""


class ShiftCount(Record, frozen=True):
    """How many there are to do, and how many are done."""

    desired: int = 0
    done: int = 0


class ShiftSteps(Record, frozen=True):
    """How far each step has come."""

    gate: str = ""
    disruption: str = ""
    nodes: ShiftCount = ShiftCount()
    node_pools: ShiftCount = ShiftCount()


class ShiftNodeCount(Record, frozen=True):
    """How many nodes carry a note of the shift."""

    count: int = 0


class ShiftSummary(Record, frozen=True):
    """What the shift changed, in sum: pools and stand-ins by name, nodes by number."""

    node_pools: tuple[str, ...] = ()
    nodes: ShiftNodeCount = ShiftNodeCount()
    clones: tuple[str, ...] = ()


class ZoneShiftStatus(Record, frozen=True):
    """Where the shift stands. What was done to an object stands on that object; here is only the sum."""

    phase: str = ""
    zone_name: str = ""
    started_at: datetime | None = None
    expiry_time: datetime | None = None
    last_confirmed_at: datetime | None = None
    gone_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: str = ""
    step: str = ""
    stepped_at: datetime | None = None
    steps: ShiftSteps = ShiftSteps()
    ledger: ShiftSummary = ShiftSummary()
    impact: Mapping[str, str] = {}
    plan: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ZoneShift(Object, frozen=True):
    """One shift away from one zone."""

    KIND: ClassVar[Kind] = Kind("dovetail.sh", "v1alpha1", "ZoneShift", "zoneshifts", namespaced=False)

    spec: ZoneShiftSpec = ZoneShiftSpec()
    status: ZoneShiftStatus = ZoneShiftStatus()
