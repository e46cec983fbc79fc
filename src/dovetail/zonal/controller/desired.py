"""What records in force ask of gates, nodes and pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api.nodeclaim import NodeClaim
from dovetail.zonal.controller.node_protection import DesiredMarks, NodeChange, is_half_released
from dovetail.zonal.controller.pool_edits import DesiredPoolEdits
from dovetail.zonal.controller.shift_tracker import OutstandingWork, ShiftState
from dovetail.zonal.model.state_machine import STEPS, Step
from dovetail.zonal.options import ZonalOptions

__all__ = ["build_desired_marks", "build_desired_pool_edits", "count_outstanding", "list_gated_zones"]


def list_gated_zones(
    states: Sequence[ShiftState], options: ZonalOptions
) -> tuple[frozenset[str], frozenset[str]]:
    """Zone ids in which nothing is bought, and in which nothing is taken away by choice."""
    launches = (
        each.record.shift.zone_id
        for each in states
        if each.record.launches_gated and not (options.restore_fast and _has_reached_step(each, "nodes"))
    )
    disruption = (each.record.shift.zone_id for each in states if each.record.disruption_gated)
    return frozenset(launches) if options.gates else frozenset(), frozenset(disruption)


def build_desired_marks(states: Sequence[ShiftState], options: ZonalOptions) -> DesiredMarks:
    protect: dict[str, frozenset[str]] = {}
    hold: set[str] = set()
    sweep: dict[str, str] = {}
    for each in states:
        zone = each.record.shift.zone_id
        if options.protect and each.record.edits:
            protect[zone] = protect.get(zone, frozenset()) | {each.key}
        if each.record.phase == "Pending" or _is_before_step(each, "nodes"):
            hold.add(each.key)
        if options.sweep_legacy and each.record.policy == "Enforce" and _has_reached_step(each, "nodes"):
            sweep[zone] = each.key
    in_force = {each.record.shift.zone_id for each in states if each.record.edits}
    return DesiredMarks(
        protect, frozenset(hold), {zone: key for zone, key in sweep.items() if zone not in in_force}
    )


def build_desired_pool_edits(states: Sequence[ShiftState], options: ZonalOptions) -> DesiredPoolEdits:
    editing = [each for each in states if options.edits_pools and each.record.edits]
    guarding = [each for each in states if each in editing or _is_before_step(each, "nodes")]
    return DesiredPoolEdits(
        zones=frozenset(each.record.shift.zone_id for each in editing),
        shifts=tuple(sorted(each.key for each in editing)),
        guard=tuple(sorted(each.key for each in guarding)),
    )


def count_outstanding(
    marks: Sequence[NodeChange], releases: Sequence[NodeChange], edits: int, claims: Iterable[NodeClaim]
) -> OutstandingWork:
    """What these writes are, by zone, and the claims whose drift an edit made."""
    return OutstandingWork(
        nodes=_count_by_zone(marks),
        releases=_count_by_zone([each for each in releases if not is_half_released(each)]),
        pools=edits,
        drifted=sum(_is_drifted_by_edit(claim) for claim in claims),
    )


def _count_by_zone(changes: Sequence[NodeChange]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in changes:
        found[each.zone_id] = found.get(each.zone_id, 0) + 1
    return found


def _is_drifted_by_edit(claim: NodeClaim) -> bool:
    found = claim.status.find_condition("Drifted")
    return found is not None and found.status == "True" and found.reason == "RequirementsDrifted"


def _is_before_step(each: ShiftState, step: Step) -> bool:
    """On the way back, and not yet at this step."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) < STEPS.index(step)


def _has_reached_step(each: ShiftState, step: Step) -> bool:
    """On the way back, and at this step or beyond it."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) >= STEPS.index(step)
