"""What records in force ask of gates, nodes and pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.zonal.edit import PoolWish
from dovetail.controllers.zonal.keeping import Kept, Outstanding
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.protect import Change, Wish, half_released
from dovetail.zonal.machine import STEPS, Step

__all__ = ["gated", "node_wish", "outstanding", "pool_wish"]


def gated(kept: Sequence[Kept], options: ZonalOptions) -> tuple[frozenset[str], frozenset[str]]:
    """Zone ids in which nothing is bought, and in which nothing is taken away by choice."""
    launches = (
        each.record.shift.zone_id
        for each in kept
        if each.record.launches_gated and not (options.restore_fast and _reached(each, "nodes"))
    )
    disruption = (each.record.shift.zone_id for each in kept if each.record.disruption_gated)
    return frozenset(launches) if options.gates else frozenset(), frozenset(disruption)


def node_wish(kept: Sequence[Kept], options: ZonalOptions) -> Wish:
    protect: dict[str, frozenset[str]] = {}
    hold: set[str] = set()
    sweep: dict[str, str] = {}
    for each in kept:
        zone = each.record.shift.zone_id
        if options.protect and each.record.edits:
            protect[zone] = protect.get(zone, frozenset()) | {each.key}
        if each.record.phase == "Pending" or _before(each, "nodes"):
            hold.add(each.key)
        if options.sweep_legacy and each.record.policy == "Enforce" and _reached(each, "nodes"):
            sweep[zone] = each.key
    in_force = {each.record.shift.zone_id for each in kept if each.record.edits}
    return Wish(protect, frozenset(hold), {zone: key for zone, key in sweep.items() if zone not in in_force})


def pool_wish(kept: Sequence[Kept], options: ZonalOptions) -> PoolWish:
    editing = [each for each in kept if options.edits_pools and each.record.edits]
    guarding = [each for each in kept if each in editing or _before(each, "nodes")]
    return PoolWish(
        zones=frozenset(each.record.shift.zone_id for each in editing),
        shifts=tuple(sorted(each.key for each in editing)),
        guard=tuple(sorted(each.key for each in guarding)),
    )


def outstanding(
    marks: Sequence[Change], releases: Sequence[Change], edits: int, claims: Iterable[NodeClaim]
) -> Outstanding:
    """What these writes are, by zone, and the claims whose drift an edit made."""
    return Outstanding(
        nodes=_by_zone(marks),
        releases=_by_zone([each for each in releases if not half_released(each)]),
        pools=edits,
        drifted=sum(_drifted(claim) for claim in claims),
    )


def _by_zone(changes: Sequence[Change]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in changes:
        found[each.zone_id] = found.get(each.zone_id, 0) + 1
    return found


def _drifted(claim: NodeClaim) -> bool:
    found = claim.status.condition("Drifted")
    return found is not None and found.status == "True" and found.reason == "RequirementsDrifted"


def _before(each: Kept, step: Step) -> bool:
    """On the way back, and not yet at this step."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) < STEPS.index(step)


def _reached(each: Kept, step: Step) -> bool:
    """On the way back, and at this step or beyond it."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) >= STEPS.index(step)
