"""Spend limits: what NodePools cost against what they may cost, and how far one more node would exceed it.

Nodes under way count at the dearest price they may be launched at, so dollars an hour exceed a limit by
nothing but a move of prices. Nodes that are terminating no longer count, so that a replacement can be bought
for what they lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.quantity import Quantity
from dovetail.scheduling.bill import PriceList, bill_nodes
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import Nano, convert_to_nano
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_prices import (
    DUST,
    PricedNode,
    find_largest,
    find_worst_price,
    list_possible_types,
)

__all__ = ["PoolSpend", "SpendExcess", "SpendRoom", "compute_spend", "sum_spend"]


@dataclass(frozen=True, slots=True)
class _NodeSpend:
    """One node: its price by the list and what is left of it to pay, or that nobody knows."""

    pool: str
    name: str
    listed: float
    effective: float
    in_flight: bool
    terminating: bool
    capacity: Nano


@dataclass(slots=True)
class PoolSpend:
    """The nodes of one NodePool that count, in sum; `terminating` is the price of those that do not."""

    listed: float = 0.0
    effective: float = 0.0
    listed_in_flight: float = 0.0
    effective_in_flight: float = 0.0
    terminating: float = 0.0
    nodes: int = 0
    capacity: Nano = field(default_factory=dict)
    # Launched nodes whose price nobody knows.
    unpriced: list[str] = field(default_factory=list)

    def add_node(self, node: _NodeSpend) -> None:
        if node.terminating:
            self.terminating += node.effective if isfinite(node.effective) else 0.0
            return
        self.nodes += 1
        for name, amount in node.capacity.items():
            self.capacity[name] = self.capacity.get(name, 0) + amount
        if not isfinite(node.listed):
            self.unpriced.append(node.name)
        elif node.in_flight:
            self.listed_in_flight += node.listed
            self.effective_in_flight += node.effective
        else:
            self.listed += node.listed
            self.effective += node.effective

    def add_pool(self, other: PoolSpend) -> None:
        self.listed += other.listed
        self.effective += other.effective
        self.listed_in_flight += other.listed_in_flight
        self.effective_in_flight += other.effective_in_flight
        self.terminating += other.terminating
        self.nodes += other.nodes
        self.unpriced += other.unpriced
        for name, amount in other.capacity.items():
            self.capacity[name] = self.capacity.get(name, 0) + amount


class _SpendBook:
    """What nodes cost, looked at again and again: only those that changed are priced anew."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[StateNode, _NodeSpend]] = {}
        self._catalogs: tuple[tuple[InstanceType, ...], ...] = ()
        self._pools: dict[str, int] = {}
        self._prices = PriceList((), {})

    def sum_pools(self, snapshot: Snapshot) -> dict[str, PoolSpend]:
        """By NodePool; nodes of none under the empty name."""
        pools = {pool.name: pool.catalog for pool in snapshot.pools}
        if pools != self._pools or snapshot.catalogs != self._catalogs:
            self._catalogs, self._pools = snapshot.catalogs, pools
            self._prices, self._entries = PriceList.from_snapshot(snapshot), {}
        known, entries = self._entries, dict[int, tuple[StateNode, _NodeSpend]]()
        found: dict[str, PoolSpend] = {}
        for state in snapshot.nodes:
            # The entry holds its state, so that no other object can have the same id.
            entry = known.get(id(state)) or (state, self._price_state(state, snapshot))
            entries[id(state)] = entry
            found.setdefault(entry[1].pool, PoolSpend()).add_node(entry[1])
        self._entries = entries
        return found

    def _price_state(self, state: StateNode, snapshot: Snapshot) -> _NodeSpend:
        pool, name, claim = views.read_pool_name(state), views.read_name(state), state.claim
        terminating, capacity = views.is_deleting(state), views.read_capacity(state)
        if claim is None:
            price = self._prices.find_price(pool, views.read_labels(state)) or 0.0
            return _NodeSpend("", name, price, price, False, terminating, capacity)
        if not claim.status.provider_id or labels.INSTANCE_TYPE not in views.read_labels(state):
            requirements = Requirements.from_expressions(claim.spec.requirements)
            types = list_possible_types(snapshot, pool, requirements)
            price = find_worst_price(types, requirements, snapshot)
            largest = find_largest(types) or capacity
            return _NodeSpend(pool, name, price, price, True, terminating, largest)
        lines = bill_nodes((state,), self._prices).lines
        listed, effective = (lines[0].listed, lines[0].effective) if lines else (inf, inf)
        return _NodeSpend(pool, name, listed, effective, False, terminating, capacity)


def compute_spend(snapshot: Snapshot, cache: DecisionCache) -> dict[str, PoolSpend]:
    """What every NodePool's nodes come to; nodes of none under the empty name."""
    return cache.get_part(_SpendBook).sum_pools(snapshot)


def sum_spend(cap: SpendCap, spent: Mapping[str, PoolSpend]) -> PoolSpend:
    """What counts against one limit."""
    total = PoolSpend()
    for pool, each in spent.items():
        if cap.covers(pool) if pool else cap.unmanaged:
            total.add_pool(each)
    return total


@dataclass(frozen=True, slots=True)
class SpendExcess:
    """Which limit a node would exceed, and by how much, as a sentence."""

    limit: str
    told: str

    def __str__(self) -> str:
        return f"{Reason.SPEND}: {self.told}"


class SpendRoom:
    """What is left of every limit while nodes are taken one after another."""

    def __init__(self, caps: Sequence[SpendCap], spent: Mapping[str, PoolSpend]) -> None:
        self._caps = [(cap, sum_spend(cap, spent)) for cap in caps]
        self._unpriced = {pool: each.unpriced for pool, each in spent.items() if each.unpriced}

    def covers(self, pool: str) -> bool:
        """Whether any of the limits is about this NodePool."""
        return any(cap.covers(pool) for cap, _ in self._caps)

    def filter_types(self, pool: str, types: Iterable[InstanceType]) -> tuple[InstanceType, ...]:
        """What the NodePool could still buy: types and offerings that no limit is too small for.

        Limits that some pods may exceed do not say here which: they are asked again when nodes are taken.
        """
        mine = [each for each in self._caps if each[0].covers(pool) and each[0].priority is None]
        if any(_is_closed(cap, used, pool, self._unpriced) for cap, used in mine):
            return ()
        dollars = min((_count_dollars_left(cap, used) for cap, used in mine), default=inf)
        found = []
        for each in types:
            capacity = convert_to_nano(each.capacity)
            if not all(_has_room_for(cap, used, capacity) for cap, used in mine):
                continue
            offerings = tuple(deal for deal in each.offerings if deal.price <= dollars + DUST)
            if offerings:
                found.append(each if offerings == each.offerings else replace(each, offerings=offerings))
        return tuple(found)

    def find_excess(self, priced: PricedNode, priority: float = -inf) -> SpendExcess | None:
        """The first limit that leaves no room for the node, by name."""
        for cap, used in self._caps:
            if not cap.covers(priced.node.pool):
                continue
            if cap.priority is not None and priority >= cap.priority:
                continue
            told = _explain_closed(cap, priced, self._unpriced) or _explain_excess(cap, used, priced)
            if told:
                return SpendExcess(cap.limit, told)
        return None

    def find_overlap_excess(
        self, priced: Sequence[PricedNode], pool: str, replaced: float
    ) -> SpendExcess | None:
        """The first limit that dearer replacements of a node would exceed by more than its overlap allows.

        What is replaced runs on for a while, and so do nodes that are terminating: they count here.
        """
        for cap, used in self._caps:
            mine = [each for each in priced if cap.covers(each.node.pool)]
            price = sum(each.price for each in mine)
            if not mine or price <= (replaced if cap.covers(pool) else 0.0) + DUST:
                continue
            told = _explain_closed(cap, mine[0], self._unpriced)
            if not told and cap.hourly is not None:
                standing = _sum_dollars(cap, used) + used.terminating
                told = _explain_dollars(cap, standing, price, cap.hourly * (1 + cap.overlap))
            if told:
                return SpendExcess(cap.limit, told)
        return None

    def charge_node(self, priced: PricedNode) -> None:
        """Count one more node as ordered."""
        price = priced.price if isfinite(priced.price) else 0.0
        for cap, used in self._caps:
            if cap.covers(priced.node.pool):
                used.nodes += 1
                used.listed_in_flight += price
                used.effective_in_flight += price
                for name, amount in priced.capacity.items():
                    used.capacity[name] = used.capacity.get(name, 0) + amount


def _is_closed(cap: SpendCap, used: PoolSpend, pool: str, unpriced: Mapping[str, Sequence[str]]) -> bool:
    """Whether the limit lets no node of the NodePool be bought, whatever it costs."""
    if cap.problem or cap.month or (cap.nodes is not None and used.nodes >= cap.nodes):
        return True
    return cap.hourly is not None and pool in unpriced


def _count_dollars_left(cap: SpendCap, used: PoolSpend) -> float:
    return inf if cap.hourly is None else cap.hourly - _sum_dollars(cap, used)


def _has_room_for(cap: SpendCap, used: PoolSpend, capacity: Nano) -> bool:
    return all(
        used.capacity.get(name, 0) + capacity.get(name, 0) <= most
        for name, most in cap.resources.items()
        if capacity.get(name, 0)
    )


def _sum_dollars(cap: SpendCap, used: PoolSpend) -> float:
    if cap.listed:
        return used.listed + used.listed_in_flight
    return used.effective + used.effective_in_flight


def _explain_closed(cap: SpendCap, priced: PricedNode, unpriced: Mapping[str, Sequence[str]]) -> str:
    """Why the limit lets nothing be bought at all, whatever it costs; empty where it does."""
    if cap.problem:
        return (
            f"SpendLimit {cap.limit} cannot be read ({cap.problem}), so nothing is bought for its NodePools"
        )
    if cap.month:
        most = _format_dollars(cap.monthly)
        return f"SpendLimit {cap.limit} allows {most} in {cap.month}{_tell_window(cap)}, and these are spent"
    if cap.hourly is None:
        return ""
    pool = priced.node.pool
    if pool in unpriced:
        return (
            f"SpendLimit {cap.limit} counts dollars, and nobody knows the price of node {unpriced[pool][0]} "
            f"of NodePool {pool}"
        )
    if not isfinite(priced.price):
        return f"SpendLimit {cap.limit} counts dollars, and nobody knows the price of a new node of {pool}"
    return ""


def _explain_excess(cap: SpendCap, used: PoolSpend, priced: PricedNode) -> str:
    """How the node would exceed the limit's numbers; empty where it would not."""
    if cap.hourly is not None:
        told = _explain_dollars(cap, _sum_dollars(cap, used), priced.price, cap.hourly)
        if told:
            return told
    if cap.nodes is not None and used.nodes + 1 > cap.nodes:
        many = used.nodes + 1 - cap.nodes
        return (
            f"SpendLimit {cap.limit} allows {cap.nodes} nodes{_tell_window(cap)}, and this is {many} too many"
        )
    for name, most in cap.resources.items():
        need, have = priced.capacity.get(name, 0), used.capacity.get(name, 0)
        over = have + need - most
        if need and over > 0:
            return (
                f"SpendLimit {cap.limit} allows {Quantity(most)} of {name}{_tell_window(cap)}, "
                f"{Quantity(have)} are there or ordered, and one more node may have {Quantity(need)}: "
                f"{Quantity(over)} too many"
            )
    return ""


def _explain_dollars(cap: SpendCap, standing: float, price: float, most: float) -> str:
    over = standing + price - most
    if over <= DUST:
        return ""
    return (
        f"SpendLimit {cap.limit} allows {_format_dollars(most)} an hour{_tell_window(cap)}, "
        f"{_format_dollars(standing)} are spent or ordered, and one more node costs up to "
        f"{_format_dollars(price)}: {_format_dollars(over)} too much"
    )


def _tell_window(cap: SpendCap) -> str:
    return f" in its window {cap.window}" if cap.window else ""


def _format_dollars(amount: float) -> str:
    """Cents, or as many digits as a small amount needs."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"
