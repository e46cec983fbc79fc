"""Buying on commitments: fill what is paid for, close it, and buy the rest at list prices.

    solve     with all that open commitments would pay for at a sunk price
    keep      nodes that they really pay for, those first that save most
    close     what has no room for the others, and solve for their pods again

So there is one solve more than commitments are closed. Nodes that a commitment pays for are ordered on
demand, as types that it pays for; a launch would prefer spot otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.scheduling import verify
from dovetail.scheduling.commitments import DUST, UsageKind
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType, Offering, check_min_values
from dovetail.scheduling.model.plan import Plan, PlannedNode, describe_purchase
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.postprocess import apply_plan
from dovetail.scheduling.solve import FindPlan, count_zones, prove_floor
from dovetail.scheduling.sunk_prices import (
    CommitmentBook,
    PaidZones,
    find_offering_usage,
    find_paid_zones,
    index_offerings,
    round_to_uses,
    sink_fitting,
)

__all__ = ["fill_commitments", "find_planned_offering", "pin_to_commitment"]

# Up to so many pods are all planned at first; of more, as many as commitments may pay for and some.
_FEW = 200
_MARGIN = 1.1
_MOST = 0.7  # of the pods, from which on planning some of them first is not worth it


def fill_commitments(
    snapshot: Snapshot,
    find_plan: FindPlan,
    cache: DecisionCache | None = None,
    *,
    find_part: FindPlan | None = None,
) -> Plan:
    """A plan that buys on the snapshot's open commitments while they have room.

    `find_part` plans its parts where these need not be verified one by one. A plan that breaks a rule as a
    whole is not used: then all is bought at list prices.
    """
    cache = DecisionCache() if cache is None else cache
    filling = _Filling(snapshot, cache)
    plan = filling.fill(find_part or find_plan)
    unseen = find_part is not None or filling.in_parts
    if unseen and verify.verify_plan(snapshot, plan, cache):
        return find_plan(snapshot)
    if not filling.proving or plan.left_out:
        return plan
    # By list prices, which the plan's nodes have too.
    floor, pods = prove_floor(snapshot, cache)
    return replace(plan, bound=floor, bound_as_asked=floor, proven_pods=pods)


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
        self._pinned: dict[object, PlannedNode] = {}
        self._placed: set[str] = set()

    @property
    def proving(self) -> bool:
        """Whether whoever solves looks for a bound, too."""
        return any(part.proven_pods for part in self._parts)

    @property
    def in_parts(self) -> bool:
        """Whether no single solve has looked at the whole plan."""
        return len(self._parts) > 1

    def fill(self, find_plan: FindPlan) -> Plan:
        """Solve, keep and close, no more often than there are commitments to close, and once for the rest."""
        opened = self._snapshot.open_commitments
        most, world = len(opened), self._choose_first_pods()
        everyone = world is self._snapshot
        for solves in range(most + 1):
            opened = opened if solves < most else ()
            sunk = self._sink_fitting(world, opened)
            plan = find_plan(sunk)
            paid = [(node, kind) for node in plan.new_nodes if (kind := self._find_sunk(node))]
            kept, refused = self._keep_paid(paid)
            if not refused and (everyone or self._parts):
                self._parts.append(
                    self._rename(plan, self._settle_nodes(sunk, plan.new_nodes, kept), all_pods=True)
                )
                break
            closed = {name for kind in refused for name in self._ledger.find_payers(kind)}
            nodes = self._settle_nodes(sunk, (node for node, _ in paid if node.name in kept), kept)
            self._parts.append(self._rename(plan, nodes))
            world = self._take_part(sunk, self._parts[-1])
            opened = tuple(name for name in opened if name not in closed)
        return self._merge()

    def _count_left(self) -> dict[str, float]:
        """How many units of each commitment nothing uses that runs or is kept."""
        return {each.name: each.left for each in self._ledger.apply_kinds(self._usage).uses}

    def _sink_fitting(self, world: Snapshot, opened: Sequence[str]) -> Snapshot:
        """The world in which what fits into what is left of open commitments is all but free."""
        uses, left = self._book.find_market(self._snapshot).uses, self._count_left()
        fitting = {name: round_to_uses(left[name], uses[name]) for name in opened}
        return sink_fitting(world, fitting, self._cache)

    def _choose_first_pods(self) -> Snapshot:
        """The snapshot with about as many of its pods as open commitments can pay for, where it has many."""
        snapshot = self._snapshot
        if len(snapshot.pods) <= _FEW:
            return snapshot
        market, left = self._book.find_market(snapshot), self._count_left()
        room = _MARGIN * sum(left[name] * market.values[name] for name in snapshot.open_commitments)
        count, known = 0, dict[int, float]()
        for pod in snapshot.pods:
            cost = known.get(id(pod.spec))
            if cost is None:
                asked = pod.spec.nano_requests
                cost = max((asked.get(name, 0) * rate for name, rate in market.rates.items()), default=0.0)
                known[id(pod.spec)] = cost
            room -= cost
            count += 1
            if room < 0:
                break
        if count >= _MOST * len(snapshot.pods):
            return snapshot
        return replace(snapshot, pods=snapshot.pods[:count], moving=(), virtual=())

    def _find_sunk(self, node: PlannedNode) -> UsageKind | None:
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
        """What saves most by its percentage comes first; of equals the large, as small ones fill the rest."""
        alone = self._ledger.apply_kinds({kind: 1.0})
        used = sum(each.used for each in alone.uses)
        return used / kind.price, -used, kind

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
        self, sunk: Snapshot, nodes: Iterable[PlannedNode], kept: set[str]
    ) -> tuple[PlannedNode, ...]:
        """The nodes at list prices, and those that are paid for as they are to be ordered."""
        return tuple(self._pin_node(sunk, node) if node.name in kept else node for node in nodes)

    def _pin_node(self, sunk: Snapshot, node: PlannedNode) -> PlannedNode:
        """The order of a node that is paid for; those of one batch are mostly alike."""
        key = id(node.instance_types), node.pool, node.zone, str(node.requirements)
        like = self._pinned.get(key)
        if like is None:
            paid = find_paid_zones(sunk, node.pool, self._cache)
            like = self._pinned[key] = pin_to_commitment(node, self._types[node.pool], paid)
        offering = find_planned_offering(self._types[node.pool][node.instance_type], node)
        assert offering is not None, "its sunk price was found by it"
        return replace(
            node,
            requirements=like.requirements,
            instance_types=like.instance_types,
            capacity_types=like.capacity_types,
            **describe_purchase(offering),
        )

    def _rename(self, plan: Plan, nodes: Sequence[PlannedNode], *, all_pods: bool = False) -> Plan:
        """A part of the plan: these of its nodes, with names that no other part has, and who goes there.

        The last part is about all pods that are left, also those without a place.
        """
        at = sum(len(part.new_nodes) for part in self._parts)
        names = {node.name: f"{node.pool}/{at + number + 1}" for number, node in enumerate(nodes)}
        placed = {pod for node in nodes for pod in node.pods}
        placed |= {pod for pods in plan.existing.values() for pod in pods}
        return replace(
            plan,
            new_nodes=tuple(replace(node, name=names[node.name]) for node in nodes),
            decisions=tuple(
                replace(each, place=names.get(each.place or "", each.place))
                for each in plan.decisions
                if all_pods or each.pod in placed
            ),
        )

    def _take_part(self, world: Snapshot, part: Plan) -> Snapshot:
        """The world with a part of the plan in it; its nodes take no more pods."""
        names = {node.name for node in part.new_nodes}
        self._placed |= {pod for node in part.new_nodes for pod in node.pods}
        self._placed |= {pod for pods in part.existing.values() for pod in pods}
        applied = apply_plan(world, part)
        return replace(
            applied,
            catalogs=self._snapshot.catalogs,
            nodes=tuple(_fill_up(state) if _read_node(state) in names else state for state in applied.nodes),
            pods=self._list_waiting(self._snapshot.pods),
            moving=self._list_waiting(self._snapshot.moving),
            virtual=self._list_waiting(self._snapshot.virtual),
        )

    def _list_waiting(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pod.full_name not in self._placed)

    def _count_zones(self) -> Mapping[str, int]:
        """How many pods wait for each zone. Where all wait for the same, their number is enough."""
        first, last = self._parts[0].zones, self._parts[-1].zones
        if not self.in_parts:
            return last
        zones = {zone for part in self._parts for zone in part.zones}
        if len(zones) != 1 or self._snapshot.moving or self._snapshot.virtual:
            return count_zones(self._snapshot, self._cache)
        (zone,) = zones
        early = {pod for part in self._parts[:-1] for node in part.new_nodes for pod in node.pods}
        early |= {pod for part in self._parts[:-1] for pods in part.existing.values() for pod in pods}
        return {zone: len(early) + last.get(zone, 0)} if first else last

    def _merge(self) -> Plan:
        """All parts as one plan. No bound of a part is one of the whole, nor is one by sunk prices."""
        first, last = self._parts[0], self._parts[-1]
        existing: dict[str, tuple[str, ...]] = {}
        for part in self._parts:
            for name, pods in part.existing.items():
                existing[name] = existing.get(name, ()) + tuple(pods)
        return replace(
            last,
            new_nodes=tuple(node for part in self._parts for node in part.new_nodes),
            existing=existing if self.in_parts else last.existing,
            ignored={**first.ignored, **last.ignored},
            decisions=tuple(each for part in self._parts for each in part.decisions),
            pool_problems={**first.pool_problems, **last.pool_problems},
            timed_out=any(part.timed_out for part in self._parts),
            zones=self._count_zones(),
            bound=0.0,
            bound_as_asked=0.0,
            proven_pods=0,
        )


def pin_to_commitment(node: PlannedNode, types: Mapping[str, InstanceType], paid: PaidZones) -> PlannedNode:
    """The node as an order that commitments pay for: on demand, of types and in zones that they pay for.

    A node whose minValues do not allow it is ordered as it was planned.
    """
    requirements = node.requirements
    zones = requirements[labels.ZONE]
    sold = {zone: yes for zone, yes in paid[node.instance_type].items() if zone in zones}
    if not all(sold.values()):
        zones &= Values(frozenset(zone for zone, yes in sold.items() if yes))
        requirements = requirements.replace_key(labels.ZONE, zones)
    names = tuple(
        name
        for name in node.instance_types
        if (there := [yes for zone, yes in paid[name].items() if zone in zones]) and all(there)
    )
    capacity_type = Values(
        frozenset((labels.ON_DEMAND,)), min_values=requirements[labels.CAPACITY_TYPE].min_values
    )
    pinned = replace(
        node,
        requirements=requirements.replace_key(labels.CAPACITY_TYPE, capacity_type),
        instance_types=names,
        capacity_types=(labels.ON_DEMAND,),
    )
    if node.requirements.has_min_values and (
        pinned.ordered.too_few
        or not check_min_values([types[name] for name in names], pinned.requirements).met
    ):
        return node
    return pinned


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
