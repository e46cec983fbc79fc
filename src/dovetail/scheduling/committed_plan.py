"""Buying on commitments: fill what is paid for, close it, and buy the rest at list prices.

    solve     with all that open commitments would pay for at a sunk price
    keep      nodes that they really pay for, in the order in which they would be applied
    close     what has no room for the others, and solve for their pods again

So there is one solve more than commitments are closed. Nodes that a commitment pays for are ordered on
demand, as types that it pays for; a launch would prefer spot otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.scheduling import verify
from dovetail.scheduling.commitments import DUST, Ledger, UsageKind
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType, Offering, check_min_values
from dovetail.scheduling.model.plan import Plan, PlannedNode, describe_purchase
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.postprocess import apply_plan
from dovetail.scheduling.solve import compute_price_floor
from dovetail.scheduling.sunk_prices import (
    CommitmentBook,
    find_offering_usage,
    index_offerings,
    sink_prices,
)

__all__ = ["fill_commitments", "find_planned_offering", "pin_to_commitment"]

FindPlan = Callable[[Snapshot], Plan]


def fill_commitments(snapshot: Snapshot, find_plan: FindPlan, cache: DecisionCache | None = None) -> Plan:
    """A plan that buys on the snapshot's open commitments while they have room."""
    cache = DecisionCache() if cache is None else cache
    filling = _Filling(snapshot, cache)
    plan = filling.fill(find_plan)
    if verify.verify_plan(snapshot, plan, cache):
        return find_plan(snapshot)
    if not filling.proven_pods or plan.left_out:
        return plan
    # By list prices, which the plan's nodes have too.
    floor = min(compute_price_floor(snapshot, cache), plan.price)
    return replace(plan, bound=floor, bound_as_asked=floor, proven_pods=filling.proven_pods)


class _Filling:
    """One batch that is planned, part by part, until no open commitment is asked for more than it has."""

    def __init__(self, snapshot: Snapshot, cache: DecisionCache) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._types = index_offerings(snapshot)
        self._book = cache.get_part(CommitmentBook)
        self._usage = dict(self._book.count_usage(snapshot, snapshot.commitments))
        self._ledger = self._book.ledger
        self._parts: list[Plan] = []
        # How many pods the first solve could prove something of.
        self.proven_pods = 0

    def fill(self, find_plan: FindPlan) -> Plan:
        opened, world = self._snapshot.open_commitments, self._snapshot
        while True:
            sunk = sink_prices(world, opened, self._cache)
            plan = find_plan(sunk)
            self.proven_pods = self.proven_pods if self._parts else plan.proven_pods
            paid = [(node, kind) for node in plan.new_nodes if (kind := self._find_sunk(sunk, node))]
            kept, refused = self._keep_paid(paid)
            if not refused:
                return self._merge(replace(plan, new_nodes=self._settle_nodes(plan.new_nodes, opened, kept)))
            closed = {name for kind in refused for name in self._ledger.find_payers(kind)}
            nodes = self._settle_nodes((node for node, _ in paid if node.name in kept), opened, kept)
            part = self._rename(replace(plan, new_nodes=nodes))
            self._parts.append(part)
            world = self._take_part(sunk, part)
            opened = tuple(name for name in opened if name not in closed)

    def _find_sunk(self, sunk: Snapshot, node: PlannedNode) -> UsageKind | None:
        """What a planned node is to commitments, if it is to be bought at a sunk price."""
        if node.capacity_type != labels.ON_DEMAND:
            return None
        each = self._types[node.pool].get(node.instance_type)
        offering = find_planned_offering(each, node)
        kind = find_offering_usage(each, offering) if each is not None and offering is not None else None
        # A node at its list price is none of theirs: its commitment is closed.
        return kind if kind is not None and offering is not None and node.price < offering.price else None

    def _keep_paid(self, paid: Sequence[tuple[PlannedNode, UsageKind]]) -> tuple[set[str], set[UsageKind]]:
        """The names of the nodes that commitments pay for in full, and the kinds of which some are not."""
        by_kind: dict[UsageKind, list[str]] = {}
        for node, kind in paid:
            by_kind.setdefault(kind, []).append(node.name)
        kept: set[str] = set()
        refused: set[UsageKind] = set()
        for kind in sorted(by_kind, key=self._order_kind):
            names = by_kind[kind]
            fits = self._count_fitting(kind, len(names))
            kept.update(names[:fits])
            self._usage[kind] = self._usage.get(kind, 0.0) + fits
            if fits < len(names):
                refused.add(kind)
        return kept, refused

    def _order_kind(self, kind: UsageKind) -> tuple[float, float, UsageKind]:
        """As commitments are applied: what is saved most by its percentage, then what uses up less."""
        alone = self._ledger.apply_kinds({kind: 1.0})
        used = sum(each.used for each in alone.uses)
        return used / kind.price, used, kind

    def _count_fitting(self, kind: UsageKind, most: int) -> int:
        """How many more of a kind commitments pay for in full, beside all that runs and is kept."""
        before, already = self._ledger.apply_kinds(self._usage).saved, self._usage.get(kind, 0.0)

        def fits(count: int) -> bool:
            after = self._ledger.apply_kinds({**self._usage, kind: already + count}).saved
            return after - before >= count * kind.price - DUST * max(1.0, count)

        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return low

    def _settle_nodes(
        self, nodes: Iterable[PlannedNode], opened: tuple[str, ...], kept: set[str]
    ) -> tuple[PlannedNode, ...]:
        """The nodes at list prices, and those that are paid for as they are to be ordered."""
        payers = Ledger(each for each in self._snapshot.commitments if each.name in opened)
        return tuple(
            pin_to_commitment(node, self._types[node.pool], payers) if node.name in kept else node
            for node in nodes
        )

    def _rename(self, plan: Plan) -> Plan:
        """The part with names that no other part has."""
        at = sum(len(part.new_nodes) for part in self._parts)
        names = {node.name: f"{node.pool}/{at + number + 1}" for number, node in enumerate(plan.new_nodes)}
        placed = {pod for node in plan.new_nodes for pod in node.pods}
        placed |= {pod for pods in plan.existing.values() for pod in pods}
        return replace(
            plan,
            new_nodes=tuple(replace(node, name=names[node.name]) for node in plan.new_nodes),
            decisions=tuple(
                replace(each, place=names.get(each.place or "", each.place))
                for each in plan.decisions
                if each.pod in placed
            ),
        )

    def _take_part(self, world: Snapshot, part: Plan) -> Snapshot:
        """The world with a part of the plan in it; its nodes take no more pods."""
        names = {node.name for node in part.new_nodes}
        placed = {pod for node in part.new_nodes for pod in node.pods}
        placed |= {pod for pods in part.existing.values() for pod in pods}
        applied = apply_plan(world, part)
        return replace(
            applied,
            catalogs=self._snapshot.catalogs,
            nodes=tuple(_fill_up(state) if _read_node(state) in names else state for state in applied.nodes),
            pods=tuple(pod for pod in world.pods if pod.full_name not in placed),
            moving=tuple(pod for pod in world.moving if pod.full_name not in placed),
            virtual=tuple(pod for pod in world.virtual if pod.full_name not in placed),
        )

    def _merge(self, last: Plan) -> Plan:
        """All parts as one plan. No bound of a part is one of the whole, nor is one by sunk prices."""
        last = self._rename_last(last)
        unproven = {"bound": 0.0, "bound_as_asked": 0.0, "proven_pods": 0}
        if not self._parts:
            return replace(last, **unproven)
        parts = (*self._parts, last)
        existing: dict[str, tuple[str, ...]] = {}
        for part in parts:
            for name, pods in part.existing.items():
                existing[name] = existing.get(name, ()) + tuple(pods)
        return replace(
            last,
            new_nodes=tuple(node for part in parts for node in part.new_nodes),
            existing=existing,
            ignored={**self._parts[0].ignored, **last.ignored},
            decisions=tuple(each for part in parts for each in part.decisions),
            pool_problems={**self._parts[0].pool_problems, **last.pool_problems},
            timed_out=any(part.timed_out for part in parts),
            zones=self._parts[0].zones,
            **unproven,
        )

    def _rename_last(self, last: Plan) -> Plan:
        if not self._parts:
            return last
        renamed = self._rename(last)
        told = {each.pod for each in renamed.decisions}
        return replace(
            renamed,
            decisions=(*renamed.decisions, *(each for each in last.decisions if each.pod not in told)),
        )


def pin_to_commitment(node: PlannedNode, types: Mapping[str, InstanceType], payers: Ledger) -> PlannedNode:
    """The node as an order that commitments pay for: on demand, of types and in zones that they pay for.

    `types` have list prices. A node whose minValues do not allow it is ordered as it was planned.
    """
    expected = types[node.instance_type]
    offering = find_planned_offering(expected, node)
    assert offering is not None, "its price was found by it"
    sold = _list_sold_zones(expected, node.requirements, payers)
    zones = frozenset(zone for zone, paid in sold.items() if paid)
    requirements = node.requirements
    if len(zones) < len(sold):
        requirements = requirements.replace_key(labels.ZONE, requirements[labels.ZONE] & Values(zones))
    names = tuple(
        name
        for name in node.instance_types
        if (there := _list_sold_zones(types[name], requirements, payers)) and all(there.values())
    )
    capacity_type = Values(
        frozenset((labels.ON_DEMAND,)), min_values=requirements[labels.CAPACITY_TYPE].min_values
    )
    pinned = replace(
        node,
        requirements=requirements.replace_key(labels.CAPACITY_TYPE, capacity_type),
        instance_types=names,
        capacity_types=(labels.ON_DEMAND,),
        **describe_purchase(offering),
    )
    if node.requirements.has_min_values and (
        pinned.ordered.too_few
        or not check_min_values([types[name] for name in names], pinned.requirements).met
    ):
        return replace(node, **describe_purchase(offering))
    return pinned


def _list_sold_zones(each: InstanceType, wanted: Requirements, payers: Ledger) -> dict[str, bool]:
    """The zones in which the type can be had on demand, and whether a commitment would pay for it there."""
    zones = wanted[labels.ZONE]
    found: dict[str, bool] = {}
    for offering in each.offerings:
        if offering.available and offering.capacity_type == labels.ON_DEMAND and offering.zone in zones:
            kind = find_offering_usage(each, offering)
            found[offering.zone] = kind is not None and bool(payers.find_payers(kind))
    return found


def find_planned_offering(each: InstanceType | None, node: PlannedNode) -> Offering | None:
    """The offering of its instance type that a planned node is expected to be bought by."""
    wanted, sold = (node.zone, node.capacity_type), each.offerings if each is not None else ()
    return next((offer for offer in sold if (offer.zone, offer.capacity_type) == wanted), None)


def _fill_up(state: StateNode) -> StateNode:
    """The node without room for any more pods."""
    assert state.node is not None
    status = replace(state.node.status, allocatable={})
    return replace(state, node=replace(state.node, status=status))


def _read_node(state: StateNode) -> str:
    return state.node.name if state.node is not None else ""
