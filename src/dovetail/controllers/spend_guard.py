"""The last look before a node is ordered: whether spend limits still have room for it.

A plan is made from a cluster that was captured a moment ago, and its orders run side by side with others. So
each order is checked against the cluster as it is now and against the orders that are under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf

from dovetail.api.nodepool import NodePool
from dovetail.api.spend_limit import SpendLimit
from dovetail.controllers.base import Cache
from dovetail.errors import Refused
from dovetail.ports import Clock
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, build_pools_and_catalogs
from dovetail.scheduling.spend import compute_spend
from dovetail.scheduling.spend_caps import SpendCap, build_caps
from dovetail.scheduling.spend_prices import PricedNode, narrow_template, price_node
from dovetail.scheduling.spend_room import SpendRoom
from dovetail.state.cluster import Cluster

__all__ = ["Offers", "SpendGuard"]

Offers = Sequence[tuple[NodePool, Sequence[InstanceType]]]


class SpendGuard:
    """What spend limits allow now, and the orders that count before the cluster knows of them."""

    def __init__(
        self, limits: Cache[SpendLimit], pools: Cache[NodePool], cluster: Cluster, clock: Clock
    ) -> None:
        self._limits = limits
        self._pools = pools
        self._cluster = cluster
        self._clock = clock
        self._offers: dict[str, tuple[NodePool, Sequence[InstanceType]]] = {}
        self._options = SchedulingOptions()
        self._underway: dict[int, PricedNode] = {}
        self._cache = DecisionCache()
        # By SpendLimit, the pods that the last plan holds because of it; None until there was one.
        self.held_pods: Mapping[str, Sequence[str]] | None = None

    def list_caps(self) -> tuple[SpendCap, ...]:
        """What every SpendLimit of the cluster allows now."""
        limits = tuple(self._limits)
        return build_caps(limits, self._pools, self._clock.now()) if limits else ()

    def note_offers(self, offers: Offers, options: SchedulingOptions) -> None:
        """Remember what NodePools may buy: prices of their nodes and claims follow from it."""
        self._offers |= {pool.name: (pool, types) for pool, types in offers if types}
        self._options = options

    def note_held(self, held: Mapping[str, Sequence[str]]) -> None:
        """Remember whom the last plan holds."""
        self.held_pods = held

    def knows_types(self, pool: str) -> bool:
        """Whether it was heard what the NodePool may buy."""
        return pool in self._offers

    def list_offers(self) -> Offers:
        """The NodePools with what each may buy, as last heard of."""
        return tuple(self._offers.values())

    def narrow_static_node(self, node: PlannedNode) -> PlannedNode:
        """A static NodePool's node, without types far dearer than the cheapest where a limit covers it."""
        if not any(cap.covers(node.pool) and not cap.warn for cap in self.list_caps()):
            return node
        return narrow_template(self.capture_snapshot(), node)

    @contextmanager
    def reserve_node(self, node: PlannedNode, priority: float = -inf, *, ask: bool = True) -> Iterator[None]:
        """Count the node until the block ends, by when the cluster knows of it; Refused where it exceeds.

        Replacements are not asked: drift asked when it chose them, and consolidation only saves.
        """
        caps = [cap for cap in self.list_caps() if not cap.warn and cap.covers(node.pool)]
        if not caps:
            yield
            return
        snapshot = self.capture_snapshot()
        priced = price_node(snapshot, node)
        if ask:
            room = SpendRoom(caps, compute_spend(snapshot, self._cache))
            for each in self._underway.values():
                room.charge_node(each)
            excess = room.find_excess(priced, priority)
            if excess is not None:
                raise Refused(f"ordering a node of {node.pool}: {excess}")
        self._underway[id(priced)] = priced
        try:
            yield
        finally:
            del self._underway[id(priced)]

    def capture_snapshot(self) -> Snapshot:
        """The nodes of the cluster now, with the prices that were last heard of."""
        pools, catalogs = build_pools_and_catalogs(self._offers.values())
        nodes = tuple(tracked.state for tracked in self._cluster)
        return Snapshot(pools=pools, catalogs=catalogs, nodes=nodes, options=self._options)
