"""ZoneShifts in manifests: the zones that a plan leaves out for them, and why others do not matter.

A plan treats a ZoneShift as the controller would that finds it now: from the first moment on, and until
nearly everything is undone, nothing is launched in its zone and no node there is disrupted by choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.zoneshift import ZoneShift
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.zonal.model import records
from dovetail.zonal.model.records import SIGNAL
from dovetail.zonal.model.shifts import KINDS, ShiftPolicies, find_impairment

__all__ = ["ShiftedZones", "exclude_offerings", "find_shifted_zones", "index_zones"]

IN_FORCE = ("Applying", "Active", "Restoring")


@dataclass(frozen=True, slots=True)
class ShiftedZones:
    """The zones that are shifted away, names by the name of their ZoneShift, and the sentences about it."""

    by_shift: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.by_shift.values())


def find_shifted_zones(
    shifts: Sequence[ZoneShift],
    zones: Mapping[str, str],
    now: datetime,
    *,
    policies: ShiftPolicies | None = None,
    min_healthy: int = 1,
) -> ShiftedZones:
    """Which of the cluster's zones, names by id, these ZoneShifts shift away."""
    policies = policies or ShiftPolicies()
    why_not = {each.name: _explain_idle(each, now, policies) for each in shifts}
    counted = [each for each in shifts if not why_not[each.name]]
    found = find_impairment(
        [records.build_record(each, now).shift for each in counted],
        policies,
        tuple(zones),
        min_healthy=min_healthy,
        in_force={each.spec.zone_id for each in counted if each.status.phase in IN_FORCE},
    )
    why_not |= {each.name: found.refused.get(each.spec.zone_id, "") for each in counted}
    away = {each.name: zones[each.spec.zone_id] for each in counted if not why_not[each.name]}
    return ShiftedZones(away, tuple(_list_remarks(shifts, away, why_not)))


def _list_remarks(
    shifts: Iterable[ZoneShift], away: Mapping[str, str], why_not: Mapping[str, str]
) -> Iterator[str]:
    for each in shifts:
        if each.name in away:
            yield f"zone {away[each.name]} is left out, as ZoneShift {each.name} shifts away from it"
        else:
            yield f"ZoneShift {each.name} does not matter to a plan: {why_not[each.name]}"


def _explain_idle(shift: ZoneShift, now: datetime, policies: ShiftPolicies) -> str:
    """Why the ZoneShift closes no zone, whichever it names; empty when it does."""
    spec, phase = shift.spec, shift.status.phase
    if spec.kind == SIGNAL:
        return "it is a message about a shift, and ARC is asked about that"
    if spec.dry_run:
        return "it is a dry run"
    if phase in ("Restored", "Refused"):
        return f"its phase is {phase}"
    kind = next((each for each in KINDS if each == spec.kind), None)
    if kind is None:
        return f"its kind {spec.kind} is not known"
    if kind == "LOCAL" and spec.expires is not None and spec.expires <= now:
        return f"it expired at {spec.expires:%Y-%m-%d %H:%M} UTC"
    if not phase and shift.deleting:
        return "it is being deleted"
    if not phase and kind != "LOCAL":
        return "ARC keeps it, and its status does not say that it is in force"
    record, told = records.build_record(shift, now), policies.find_policy(kind)
    if told == "Ignore" or kind != "LOCAL":
        record = structs.replace(record, policy=told)
    if record.policy not in ("Enforce", "Protect"):
        return f"its policy is {record.policy}"
    return "" if record.launches_gated else "it is over but for its last step"


def index_zones(
    types: Iterable[InstanceType], nodes: Iterable[Node], classes: Iterable[EC2NodeClass]
) -> dict[str, str]:
    """The names of the zones that instance types are offered in and nodes are in, by id; else by name."""
    offerings = [offering for each in types for offering in each.offerings]
    inside = [each.labels for each in nodes if labels.ZONE in each.labels]
    ids = {each[labels.ZONE]: each[labels.ZONE_ID] for each in inside if labels.ZONE_ID in each}
    ids |= {each.zone: each.zone_id for one in classes for each in one.status.subnets if each.zone_id}
    for offering in offerings:
        if offering.zone not in ids and labels.ZONE_ID in offering.requirements:
            ids[offering.zone] = min(offering.requirements[labels.ZONE_ID].names, default=offering.zone)
    names = {each.zone for each in offerings} | {each[labels.ZONE] for each in inside}
    return {ids.get(zone, zone): zone for zone in sorted(names)}


def exclude_offerings(each: InstanceType, zones: frozenset[str]) -> InstanceType:
    """The instance type without what is for sale in these zones."""
    if not any(offering.zone in zones and offering.available for offering in each.offerings):
        return each
    offerings = tuple(
        structs.replace(offering, available=offering.available and offering.zone not in zones)
        for offering in each.offerings
    )
    return structs.replace(each, offerings=offerings)
