"""What came of a run: its state made into a Plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dovetail.api.labels import (
    CAPACITY_OVERLAY_APPLIED,
    CAPACITY_TYPE,
    HOSTNAME,
    PRICE_OVERLAY_APPLIED,
    REQUESTED_DRA_DRIVERS,
    RESERVED,
    TRUE,
)
from dovetail.explain import Decision
from dovetail.scheduling.catalog import MinValues, Offering, truncated
from dovetail.scheduling.places import Claim, RunningNode
from dovetail.scheduling.plan import Plan, PlannedNode, reserved_requirements
from dovetail.scheduling.requirements import Requirements, Values
from dovetail.scheduling.resources import Nano, amounts, plus
from dovetail.scheduling.verdicts import Verdict, verdicts

if TYPE_CHECKING:
    from dovetail.scheduling.exact import Run

__all__ = ["plan_of", "planned_node"]

COULD_NOT = (
    "pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, {}"
)


def plan_of(run: Run) -> Plan:
    """The plan a finished run amounts to."""
    planned: list[PlannedNode] = []
    found = verdicts(run)
    for claim in run.claims:
        node, short = planned_node(run, claim)
        if short.met:
            planned.append(node)
        else:
            found |= dict.fromkeys(claim.pods, Verdict(COULD_NOT.format(short)))
    return Plan(
        new_nodes=tuple(planned),
        existing={node.name: tuple(node.pods) for node in run.filled},
        unschedulable={pod: each.error for pod, each in found.items() if not each.deferred},
        deferred={pod: each.error for pod, each in found.items() if each.deferred},
        ignored=run.ignored,
        decisions=tuple(_decisions(run, found)),
        pool_problems=run.problems,
        timed_out=run.timed_out,
    )


def _decisions(run: Run, found: dict[str, Verdict]) -> Iterable[Decision]:
    for pod in run.batch:
        name = pod.full_name
        verdict = found.get(name)
        home = run.homes.get(name)
        if verdict is not None:
            yield Decision(name, None, verdict.rejections, verdict.error)
        elif home is not None:
            place, shape = home
            where = place.name if isinstance(place, RunningNode) else name_of(place)
            yield Decision(name, where, relaxed=shape.gave_up)


def name_of(claim: Claim) -> str:
    """A name no node can have, since node names have no slash."""
    return f"{claim.template.pool}/{claim.index + 1}"


def planned_node(run: Run, claim: Claim) -> tuple[PlannedNode, MinValues]:
    """The node a claim stands for, and whether enough kinds of instance remain after truncation."""
    table, options = claim.template.table, run.options
    requirements = claim.requirements.without(frozenset((HOSTNAME,)))
    held = run.reservations.held(claim.hostname)
    if held:
        requirements = reserved_requirements(requirements, options.reservation_label, held)
    usable = _purchasable(claim, requirements, bool(held))
    ordered = [i for i in table.price_order(usable) if claim.types >> i & 1]
    strict = options.min_values == "Strict"
    types_in_order = [table.types[i] for i in ordered]
    kept, short = truncated(types_in_order, requirements, strict, options.most_types)
    del ordered[len(kept) :]
    types = claim.types if claim.types.bit_count() == len(kept) else sum(1 << i for i in ordered)
    cheapest = _cheapest(claim, usable, ordered[0])
    node = PlannedNode(
        name=name_of(claim),
        pool=claim.template.pool,
        requirements=requirements,
        instance_types=tuple(each.name for each in kept),
        pods=tuple(claim.pods),
        requests=amounts(plus(claim.total, least_overhead(claim))),
        instance_type=kept[0].name,
        zone=cheapest.zone,
        capacity_type=cheapest.capacity_type,
        price=cheapest.price,
        capacity_types=_capacity_types(claim, usable, types),
        reservations=tuple(sorted(held)),
        annotations=_annotations(run, claim, types),
        min_values_relaxed=claim.relaxed,
    )
    return _orderable(node, short, strict)


def _orderable(node: PlannedNode, short: MinValues, strict: bool) -> tuple[PlannedNode, MinValues]:
    """The node as it can be ordered. What the order lists may be fewer values than it asks for."""
    listed = node.ordered.too_few
    if not listed:
        return node, short
    if strict:
        return node, MinValues(needed=short.needed, unsatisfied={**short.unsatisfied, **listed})
    requirements = node.requirements
    for key, count in listed.items():
        requirements = requirements.replacing(key, requirements[key].with_min_values(count))
    return replace(node, requirements=requirements, min_values_relaxed=True), short


def _purchasable(claim: Claim, requirements: Requirements, held: bool) -> Requirements:
    """How the node may be bought: not from a reservation it does not hold, if there is any other way."""
    table = claim.template.table
    if held or not table.reserved:
        return requirements
    other = requirements & Requirements({CAPACITY_TYPE: Values(frozenset((RESERVED,)), open=True)})
    return other if table.fold(table.offered(other)) & claim.types else requirements


def least_overhead(claim: Claim) -> Nano:
    """What daemons take at the very least, whichever instance type it will be."""
    possible = [group.overhead for group in claim.template.daemons if group.types & claim.types]
    return reduce(_smaller, possible) if possible else {}


def _smaller(one: Nano, other: Nano) -> Nano:
    return {name: min(amount, other[name]) for name, amount in one.items() if name in other}


def _cheapest(claim: Claim, requirements: Requirements, index: int) -> Offering:
    deals = claim.template.table.deals_for(requirements)
    return min(
        (deal.offerings[index] for deal in deals if index in deal.offerings), key=lambda each: each.price
    )


def _capacity_types(claim: Claim, requirements: Requirements, types: int) -> tuple[str, ...]:
    """The capacity types in which one of these instance types can be had."""
    table = claim.template.table
    found = {
        deal.capacity_type for deal in table.deals_for(requirements) if table.fold(deal.variants) & types
    }
    return tuple(sorted(found))


def _annotations(run: Run, claim: Claim, types: int) -> dict[str, str]:
    table = claim.template.table
    found: dict[str, str] = {}
    drivers = run.devices.drivers(claim.hostname) if run.devices is not None else ()
    if drivers:
        found[REQUESTED_DRA_DRIVERS] = ",".join(drivers)
    if table.price_overlaid & types:
        found[PRICE_OVERLAY_APPLIED] = TRUE
    if table.capacity_overlaid & types:
        found[CAPACITY_OVERLAY_APPLIED] = TRUE
    return found
