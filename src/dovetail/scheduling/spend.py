"""What NodePools cost, as spend limits count it.

Nodes under way count at the dearest price they may be launched at, so dollars an hour exceed a limit by
nothing but a move of prices. Nodes that are terminating no longer count, so that a replacement can be bought
for what they lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from dovetail.api import labels
from dovetail.scheduling.bill import PriceList, bill_nodes
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import Nano
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_prices import find_largest, find_worst_price, list_possible_types

__all__ = ["PoolSpend", "compute_spend", "list_covered", "sum_dollars", "sum_spend"]


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
    """What nodes cost, looked at again and again: only those that changed are priced anew.

    A NodePool is added up again only where one of its nodes changed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[StateNode, _NodeSpend]] = {}
        self._lists: dict[str, list[_NodeSpend]] = {}
        self._sums: dict[str, PoolSpend] = {}
        self._catalogs: tuple[tuple[InstanceType, ...], ...] = ()
        self._pools: dict[str, int] = {}
        self._prices = PriceList((), {})

    def sum_pools(self, snapshot: Snapshot) -> Mapping[str, PoolSpend]:
        """By NodePool; nodes of none under the empty name."""
        pools = {pool.name: pool.catalog for pool in snapshot.pools}
        if pools != self._pools or snapshot.catalogs != self._catalogs:
            self._catalogs, self._pools = snapshot.catalogs, pools
            self._prices, self._entries = PriceList.from_snapshot(snapshot), {}
        known, entries = self._entries, dict[int, tuple[StateNode, _NodeSpend]]()
        lists: dict[str, list[_NodeSpend]] = {}
        for state in snapshot.nodes:
            # The entry holds its state, so that no other object can have the same id.
            entry = known.get(id(state)) or (state, self._price_state(state, snapshot))
            entries[id(state)] = entry
            lists.setdefault(entry[1].pool, []).append(entry[1])
        self._entries = entries
        self._sums = {
            pool: self._sums[pool] if nodes == self._lists.get(pool) else _add_up(nodes)
            for pool, nodes in lists.items()
        }
        self._lists = lists
        return self._sums

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


def _add_up(nodes: Iterable[_NodeSpend]) -> PoolSpend:
    found = PoolSpend()
    for node in nodes:
        found.add_node(node)
    return found


def compute_spend(snapshot: Snapshot, cache: DecisionCache) -> Mapping[str, PoolSpend]:
    """What every NodePool's nodes come to; nodes of none under the empty name."""
    return cache.get_part(_SpendBook).sum_pools(snapshot)


def list_covered(cap: SpendCap, spent: Mapping[str, PoolSpend]) -> list[PoolSpend]:
    """The NodePools that one limit is about, and nodes of none where they count."""
    names = spent if cap.every else cap.pools
    found = [spent[name] for name in names if name and name in spent]
    return [*found, spent[""]] if cap.unmanaged and "" in spent else found


def sum_spend(cap: SpendCap, spent: Mapping[str, PoolSpend]) -> PoolSpend:
    """What counts against one limit."""
    total = PoolSpend()
    for each in list_covered(cap, spent):
        total.add_pool(each)
    return total


def sum_dollars(cap: SpendCap, used: PoolSpend) -> float:
    """Dollars an hour that count against a limit, by its basis."""
    if cap.listed:
        return used.listed + used.listed_in_flight
    return used.effective + used.effective_in_flight
