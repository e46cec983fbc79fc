"""A purchase of another autoscaler beside our plan for the same pods: what differs, and why first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.history.difference import (
    CENT_TENTH,
    Difference,
    DifferenceKind,
    DifferenceReason,
    NodeShape,
    describe_shapes,
    format_price,
    group_shapes,
    list_ways,
    name_planned,
)
from dovetail.history.situation_before import find_created
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan

__all__ = ["BoughtNode", "compare_with_plan", "describe_claim"]


@dataclass(slots=True)
class BoughtNode:
    """A NodeClaim of a purchase: what came of it, and how long it was there."""

    name: str
    created: datetime
    pool: str = ""
    instance_type: str = ""
    capacity_type: str = ""
    price: float = 0.0
    estimated: bool = False
    allowed_types: frozenset[str] | None = None
    allowed_ways: frozenset[str] | None = None
    pods: set[str] = field(default_factory=set)
    launched: bool = False
    gone: datetime | None = None


def describe_claim(claim: NodeClaim) -> BoughtNode:
    """What an order says of itself: its NodePool, and the types and capacity types it allows."""
    types = ways = None
    for each in claim.spec.requirements or ():
        if each.operator == "In" and each.key == labels.INSTANCE_TYPE:
            types = frozenset(each.values)
        if each.operator == "In" and each.key == labels.CAPACITY_TYPE:
            ways = frozenset(each.values)
    return BoughtNode(
        claim.name,
        find_created(claim),
        claim.labels.get(labels.NODEPOOL, ""),
        allowed_types=types,
        allowed_ways=ways,
    )


def compare_with_plan(
    at: datetime,
    nodes: tuple[BoughtNode, ...],
    plan: Plan,
    pods: int,
    types: Mapping[str, InstanceType],
) -> Difference | None:
    """The difference between a purchase and a plan; None when both cost the same."""
    theirs = group_shapes((node.instance_type, node.capacity_type, node.price) for node in nodes)
    ours = name_planned(plan.new_nodes)
    their_price = sum(shape.count * shape.price for shape in theirs)
    our_price = sum(shape.count * shape.price for shape in ours)
    if abs(their_price - our_price) < CENT_TENTH:
        return None
    reason, why = _find_reason(nodes, theirs, plan, ours, types)
    guessed = [any(n.estimated for n in nodes), any(n.price_estimated for n in plan.new_nodes)]
    return Difference(
        kind=DifferenceKind.BOUGHT,
        at=at,
        reason=reason,
        why=why,
        their_reason=_describe_orders(nodes),
        our_reason=_describe_plan(plan, pods),
        theirs=f"{describe_shapes(theirs)} for {pods} pods, {format_price(their_price, guessed[0])}",
        ours=f"{describe_shapes(ours)}, {format_price(our_price, guessed[1])}",
        pool=", ".join(sorted({node.pool for node in nodes})),
        about=tuple(sorted(node.name for node in nodes)),
        pods=pods,
        their_price=their_price,
        our_price=our_price,
        rate=their_price - our_price,
        estimated=any(guessed),
    )


def _describe_orders(nodes: tuple[BoughtNode, ...]) -> str:
    """What their orders say: how many types each allows, in which ways, and for how many pods."""
    told = []
    for node in nodes[:3]:
        types = f"{len(node.allowed_types)} types" if node.allowed_types else "any type of the pool"
        ways = " or ".join(sorted(node.allowed_ways)) if node.allowed_ways else "any capacity type"
        told.append(f"{node.name} for {len(node.pods)} pods: {types}, {ways}")
    more = f"; and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return "; ".join(told) + more


def _describe_plan(plan: Plan, pods: int) -> str:
    """What our plan says of the same pods."""
    here = sum(len(each) for each in plan.existing.values())
    new = [f"{each.pool} for {len(each.pods)} pods: {each.instance_type}" for each in plan.new_nodes[:3]]
    more = f"; and {len(plan.new_nodes) - 3} more" if len(plan.new_nodes) > 3 else ""
    kept = f"{here} of {pods} pods fit on nodes that are there" if here else ""
    return "; ".join(each for each in (kept, "; ".join(new) + more) if each)


def _find_reason(
    nodes: tuple[BoughtNode, ...],
    theirs: tuple[NodeShape, ...],
    plan: Plan,
    ours: tuple[NodeShape, ...],
    types: Mapping[str, InstanceType],
) -> tuple[DifferenceReason, str]:
    """Where the two part first: ways of buying, architectures, packing, types, or only what was launched."""
    if plan.left_out:
        return DifferenceReason.RULE, f"{len(plan.left_out)} of the pods have no place in our plan"
    ways = list_ways(theirs), list_ways(ours)
    if ours and bool(ways[0]["spot"]) != bool(ways[1]["spot"]):
        said = "spot" if ways[1]["spot"] else "on-demand"
        return DifferenceReason.SPOT, f"here {said} capacity is bought, which the NodePool allows too"
    ordered = frozenset(
        name for node in nodes for name in (node.allowed_types or frozenset((node.instance_type,)))
    )
    new = _list_architectures(types, (each.instance_type for each in ours))
    new -= _list_architectures(types, ordered)
    if new:
        return (
            DifferenceReason.TYPES,
            f"the NodePool allows {', '.join(sorted(new))}, and their orders do not",
        )
    if not ours:
        return DifferenceReason.PACKING, "the pods fit on nodes that are there or on their way"
    if not _same_groups(nodes, plan):
        return DifferenceReason.PACKING, "the same pods are packed onto other nodes"
    other = sorted({shape.instance_type for shape in ours} - ordered)
    if other:
        names = ", ".join(other[:3])
        return DifferenceReason.TYPES, f"their orders do not allow {names}, which the NodePool does"
    return DifferenceReason.LAUNCH, "both orders allow the same types, and a dearer one was launched"


def _list_architectures(types: Mapping[str, InstanceType], names: Iterable[str]) -> frozenset[str]:
    """The architectures of instance types; nothing of those that nobody knows."""
    known = (types[name].requirements[labels.ARCH] for name in names if name in types)
    return frozenset(each for values in known if not values.open for each in values.names)


def _same_groups(nodes: tuple[BoughtNode, ...], plan: Plan) -> bool:
    """Whether both put the same numbers of pods together."""
    return sorted(len(node.pods) for node in nodes) == sorted(len(node.pods) for node in plan.new_nodes)
