"""What came of a run: its state made into a Plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

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
from dovetail.scheduling.model.instance_type_table import build_mask
from dovetail.scheduling.model.instance_types import MinValues, Offering, check_min_values
from dovetail.scheduling.model.plan import Plan, PlannedNode, describe_purchase, pin_to_reservations
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano, add_resources, convert_to_quantities
from dovetail.scheduling.sequential.nodes import ExistingNode, NewNode
from dovetail.scheduling.sequential.pod_errors import PodError, collect_pod_errors
from dovetail.scheduling.sequential.scheduler import SequentialScheduler

__all__ = ["build_plan"]

_PLACEHOLDER = frozenset((HOSTNAME,))
COULD_NOT = (
    "pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, {}"
)


def build_plan(run: SequentialScheduler) -> Plan:
    """The plan a finished run amounts to."""
    planned: list[PlannedNode] = []
    found = collect_pod_errors(run)
    offers = _NodeOffers(run)
    for claim in run.new_nodes:
        node, short = offers.build_planned_node(claim)
        if short.met:
            planned.append(node)
        else:
            found |= dict.fromkeys(claim.pods, PodError(COULD_NOT.format(short)))
    return Plan(
        new_nodes=tuple(planned),
        existing={node.name: tuple(node.pods) for node in run.filled},
        unschedulable={pod: each.error for pod, each in found.items() if not each.deferred},
        deferred={pod: each.error for pod, each in found.items() if each.deferred},
        ignored=run.ignored,
        decisions=tuple(_list_decisions(run, found)),
        pool_problems=run.problems,
        timed_out=run.timed_out,
    )


def _list_decisions(run: SequentialScheduler, found: dict[str, PodError]) -> Iterable[Decision]:
    names = {claim.index: name_new_node(claim) for claim in run.new_nodes}
    for pod in run.batch:
        name = pod.full_name
        verdict = found.get(name)
        home = run.placements.get(name)
        if verdict is not None:
            yield Decision(name, None, verdict.rejections, verdict.error)
        elif home is not None:
            place, shape = home
            where = place.name if isinstance(place, ExistingNode) else names[place.index]
            yield Decision(name, where, relaxed=shape.gave_up)


def name_new_node(claim: NewNode) -> str:
    """A name no node can have, since node names have no slash."""
    return f"{claim.template.pool}/{claim.index + 1}"


class _NodeOffer(NamedTuple):
    """What can be ordered for a node: the types it may become, cheapest first, and how they are bought."""

    types: int
    ordered: tuple[int, ...]
    names: tuple[str, ...]
    cheapest: Offering
    capacity_types: tuple[str, ...]


class _NodeOffers:
    """The nodes of a run as they can be ordered. Nodes of the same types are offered alike, so look once."""

    def __init__(self, run: SequentialScheduler) -> None:
        self.run = run
        self._known: dict[tuple[object, ...], _NodeOffer] = {}

    def build_planned_node(self, claim: NewNode) -> tuple[PlannedNode, MinValues]:
        """The node a claim stands for, and whether enough kinds of instance remain after truncation."""
        run, table, options = self.run, claim.template.table, self.run.options
        requirements = claim.requirements.drop_keys(_PLACEHOLDER)
        held = run.reservations.list_held(claim.hostname)
        if held:
            requirements = pin_to_reservations(requirements, options.reservation_label, held)
        usable = _exclude_unheld_reservations(claim, requirements, bool(held))
        offer = self._find_offer(claim, usable)
        strict = options.min_values == "Strict"
        short = MinValues(needed=0)
        if strict and requirements.has_min_values:
            short = check_min_values([table.types[i] for i in offer.ordered], requirements)
        node = PlannedNode(
            name=name_new_node(claim),
            pool=claim.template.pool,
            requirements=requirements,
            instance_types=offer.names,
            pods=tuple(claim.pods),
            requests=convert_to_quantities(add_resources(claim.total, find_least_overhead(claim))),
            instance_type=offer.names[0],
            **describe_purchase(offer.cheapest),
            capacity_types=offer.capacity_types,
            reservations=tuple(sorted(held)),
            annotations=_build_annotations(run, claim, offer.types),
            min_values_relaxed=claim.relaxed,
        )
        return _make_orderable(node, short, strict)

    def _find_offer(self, claim: NewNode, usable: Requirements) -> _NodeOffer:
        table = claim.template.table
        key = (id(table), table.build_offer_key(usable), claim.types)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compute_offer(claim, usable)
        return known

    def _compute_offer(self, claim: NewNode, usable: Requirements) -> _NodeOffer:
        table, most = claim.template.table, self.run.options.most_types
        found = table.sort_by_price(usable, claim.types)
        ordered = tuple(found.types[:most].tolist())
        types = claim.types if len(found.types) <= most else build_mask(ordered, len(table.types))
        return _NodeOffer(
            types,
            ordered,
            tuple(found.names[:most].tolist()),
            _find_cheapest_offering(claim, usable, ordered[0]),
            _list_capacity_types(claim, usable, types),
        )


def _make_orderable(node: PlannedNode, short: MinValues, strict: bool) -> tuple[PlannedNode, MinValues]:
    """The node as it can be ordered. What the order lists may be fewer values than it asks for."""
    listed = node.ordered.too_few if node.requirements.has_min_values else {}
    if not listed:
        return node, short
    if strict:
        return node, MinValues(needed=short.needed, unsatisfied={**short.unsatisfied, **listed})
    requirements = node.requirements
    for key, count in listed.items():
        requirements = requirements.replace_key(key, requirements[key].with_min_values(count))
    return replace(node, requirements=requirements, min_values_relaxed=True), short


def _exclude_unheld_reservations(claim: NewNode, requirements: Requirements, held: bool) -> Requirements:
    """How the node may be bought: not from a reservation it does not hold, if there is any other way."""
    table = claim.template.table
    if held or not table.reserved:
        return requirements
    other = requirements & Requirements({CAPACITY_TYPE: Values(frozenset((RESERVED,)), open=True)})
    return other if table.fold_variants(table.find_offered(other)) & claim.types else requirements


def find_least_overhead(claim: NewNode) -> Nano:
    """What daemons take at the very least, whichever instance type it will be."""
    possible = [group.overhead for group in claim.template.daemons if group.types & claim.types]
    return reduce(_find_smaller, possible) if possible else {}


def _find_smaller(one: Nano, other: Nano) -> Nano:
    return {name: min(amount, other[name]) for name, amount in one.items() if name in other}


def _find_cheapest_offering(claim: NewNode, requirements: Requirements, index: int) -> Offering:
    deals = claim.template.table.list_offering_groups(requirements)
    return min(
        (deal.offerings[index] for deal in deals if index in deal.offerings), key=lambda each: each.price
    )


def _list_capacity_types(claim: NewNode, requirements: Requirements, types: int) -> tuple[str, ...]:
    """The capacity types in which one of these instance types can be had."""
    table = claim.template.table
    found = {
        deal.capacity_type
        for deal in table.list_offering_groups(requirements)
        if table.fold_variants(deal.variants) & types
    }
    return tuple(sorted(found))


def _build_annotations(run: SequentialScheduler, claim: NewNode, types: int) -> dict[str, str]:
    table = claim.template.table
    found: dict[str, str] = {}
    drivers = run.devices.list_drivers(claim.hostname) if run.devices is not None else ()
    if drivers:
        found[REQUESTED_DRA_DRIVERS] = ",".join(drivers)
    if table.price_overlaid & types:
        found[PRICE_OVERLAY_APPLIED] = TRUE
    if table.capacity_overlaid & types:
        found[CAPACITY_OVERLAY_APPLIED] = TRUE
    return found
