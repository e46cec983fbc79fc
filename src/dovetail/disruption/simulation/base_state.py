"""A world made ready for many questions of one kind: what if these nodes went?

Running nodes, pools and topology rules are worked out once and shared by every what-if; a what-if only takes
out the nodes it is about. What it learns about nodes nobody has touched yet is left for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dovetail.api import predicates
from dovetail.api.pod import Pod
from dovetail.disruption.simulation.topology import BaseTopology
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_type_table import TypeTableCache
from dovetail.scheduling.model.instance_types import find_cheapest_offering
from dovetail.scheduling.model.nodeclaim_template import (
    build_templates,
    has_soft_taints,
    list_dynamic_pools,
    uses_devices,
)
from dovetail.scheduling.model.nodepool_limits import NodePoolLimits
from dovetail.scheduling.model.pod_shapes import Numbering, SchedulingShape
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import Nano, add_resources, compute_nano_requests, convert_to_nano
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode
from dovetail.scheduling.sequential.existing_nodes import ExistingNodeIndexCache
from dovetail.scheduling.sequential.nodes import ExistingNode, NodeFactsCache
from dovetail.scheduling.sequential.pending_pods import list_pods_to_schedule
from dovetail.scheduling.topology.domains import TopologyDomains

__all__ = ["BaseState", "FreeCapacity", "compute_free_capacity"]


class BaseState:
    """Everything what-ifs share. Nodes are known by their place in the order in which they are tried."""

    def __init__(self, snapshot: Snapshot, cache: DecisionCache) -> None:
        cache.begin_run(snapshot.nodes)
        self.cache = cache
        self.snapshot = snapshot
        self.pools = list_dynamic_pools(snapshot.pools)
        self.soft_taints = has_soft_taints(self.pools)
        known = cache.get_part(TypeTableCache)
        self.templates, self.problems = build_templates(snapshot, self.pools, known)
        well_known = snapshot.options.flavour.well_known
        tables = [
            (pool.nodepool, known.find_table(snapshot.list_types(pool), well_known))
            for pool in self.pools
            if pool.catalog >= 0
        ]
        self.universe = TopologyDomains(tables)
        self.batch, self.ignored = list_pods_to_schedule(snapshot)
        self.limits = NodePoolLimits((pool.nodepool for pool in self.pools), snapshot.nodes)
        self.states = cache.get_part(ExistingNodeIndexCache).find_index(snapshot.nodes).active
        self._facts = cache.get_part(NodeFactsCache)
        self.at = {views.read_provider_id(state): i for i, state in enumerate(self.states)}
        self.everywhere = (1 << len(self.states)) - 1
        self.specs, self.labels, self.statuses = Numbering(), Numbering(), Numbering()
        self._roomless: dict[frozenset[tuple[str, int]], int] = {}
        self._by_label: dict[str, dict[str, int]] = {}
        self._closed: dict[tuple[object, ...], int] = {}
        self.topology = BaseTopology(snapshot, self.universe, frozenset(self.batch), cache)

    def without_nodes(self, remaining: Snapshot, names: AbstractSet[str]) -> BaseState:
        """The base state without these nodes, for a remaining cluster without pending pods."""
        gone = 0
        for name in names:
            gone |= self._named.get(name, 0)
        left = copy(self)
        left.snapshot, left.batch, left.ignored = remaining, {}, {}
        left.everywhere &= ~gone
        return left

    @cached_property
    def _named(self) -> dict[str, int]:
        """Where the nodes of each name are."""
        found: dict[str, int] = {}
        for i, state in enumerate(self.states):
            found[views.read_name(state)] = found.get(views.read_name(state), 0) | 1 << i
        return found

    # Nodes

    @cached_property
    def _daemons(self) -> tuple[Pod, ...]:
        listed = self.snapshot.daemons
        if self.snapshot.options.ignore_dra and any(map(uses_devices, listed)):
            return tuple(pod for pod in listed if not uses_devices(pod))
        return listed

    def build_node(self, index: int) -> ExistingNode:
        """A node as it is before anybody is placed on it."""
        return self.build_node_of(self.states[index], index)

    def build_node_of(self, state: StateNode, index: int = -1) -> ExistingNode:
        """A node as it would be here, whether or not it is one of these."""
        facts = self._facts.find_facts(state, self._daemons, self.snapshot.storage)
        return ExistingNode(index, state, facts)

    def find_alike(self, place: int, keys: Iterable[str]) -> int:
        """The nodes that have the same values as this one for these labels; only itself if it lacks one."""
        mine, found = views.read_labels(self.states[place]), self.everywhere
        for key in keys:
            found &= self._index_label(key).get(mine.get(key, ""), 0)
        return found | 1 << place

    def _index_label(self, key: str) -> dict[str, int]:
        known = self._by_label.get(key)
        if known is None:
            known = self._by_label[key] = {}
            for i, state in enumerate(self.states):
                value = views.read_labels(state).get(key)
                if value is not None:
                    known[value] = known.get(value, 0) | 1 << i
        return known

    @cached_property
    def young(self) -> int:
        """Nodes too young to take pods that only move to save money."""
        pools = {pool.name: pool.nodepool for pool in self.snapshot.pools}
        now = self.snapshot.options.now
        found = (views.is_too_young(s, pools.get(views.read_pool_name(s)), now) for s in self.states)
        return sum(1 << i for i, young in enumerate(found) if young)

    @cached_property
    def unready(self) -> dict[str, StateNode]:
        """Nodes of ours that have not come up yet, by name."""
        return {
            views.read_name(s): s
            for s in self.snapshot.nodes
            if views.is_managed(s) and not views.is_initialized(s)
        }

    @cached_property
    def _left(self) -> tuple[dict[str, int], NDArray[np.float64]]:
        """What is free: a row per resource, a column per node. Overdrawn nodes have nothing at all.

        Amounts can be too large for 64 bits. As floating point numbers they may be rounded, but never past
        each other, so what does not fit by these does not fit.
        """
        places = [self.build_node(i) for i in range(len(self.states))]
        names = sorted({name for place in places for name in place.left})
        rows = [[-1.0 if p.overdrawn else float(p.left.get(name, 0)) for p in places] for name in names]
        return {name: i for i, name in enumerate(names)}, np.array(rows, dtype=np.float64)

    def mask_without(self, without: Iterable[str]) -> int:
        """The nodes but for these, which are named by their provider IDs."""
        places = (self.at.get(key) for key in without)
        return self.everywhere & ~sum(1 << place for place in places if place is not None)

    def find_full_nodes(self, wanted: Nano) -> int:
        """Nodes that have no room for this, as far as it can be told at a glance."""
        key = frozenset(wanted.items())
        known = self._roomless.get(key)
        if known is None:
            known = self._roomless[key] = self._find_short_nodes(wanted)
        return known

    def _find_short_nodes(self, wanted: Nano) -> int:
        names, left = self._left
        short = np.zeros(len(self.states), dtype=bool)
        for name, amount in wanted.items():
            if name in names:
                short |= left[names[name]] < float(amount)
            elif amount > 0:
                return self.everywhere
        return int.from_bytes(np.packbits(short, bitorder="little").tobytes(), "little")

    def find_closed(self, key: tuple[object, ...], shape: SchedulingShape) -> int:
        """Nodes known to refuse a shape of pod for good."""
        known = self._closed.get(key)
        if known is None:
            known = self._closed[key] = self.find_full_nodes(shape.requests)
        return known

    def record_refusals(self, key: tuple[object, ...], refusing: int) -> None:
        """These refused the shape as they are, with nobody placed on them."""
        self._closed[key] |= refusing


@dataclass(frozen=True)
class FreeCapacity:
    """Free room by node, and what can be bought: price and size, cheapest first.

    `plain` says that no running pod and no pool cares which nodes there are or how many; `limited`, that
    some pool may buy only so much.
    """

    base_state: BaseState
    sold: tuple[tuple[float, Nano], ...]
    plain: bool
    limited: bool

    def sum_unplaceable(self, pods: Iterable[Pod], without: AbstractSet[str]) -> Nano | None:
        """What the pods that fit on no node take together; None when there are none of them."""
        total: Nano | None = None
        there = self.base_state.mask_without(without)
        for pod in pods:
            wanted = compute_nano_requests(pod)
            if not there & ~self.base_state.find_full_nodes(wanted):
                total = add_resources(total or {}, wanted)
        return total

    def find_cheapest_price(self, wanted: Nano) -> float | None:
        """The least a node that holds this would cost; None when there is no such node."""
        return next((price for price, size in self.sold if _has_room_for(size, wanted)), None)


def compute_free_capacity(snapshot: Snapshot, base: BaseState) -> FreeCapacity:
    """The room of a snapshot."""
    pools = list_dynamic_pools(snapshot.pools)
    limited = any(pool.nodepool.spec.limits for pool in pools)
    sales = {sale for pool in pools for sale in _list_purchasable(snapshot, pool)}
    return FreeCapacity(
        base_state=base,
        sold=tuple((price, dict(size)) for price, size in sorted(sales)),
        plain=_has_no_constraints(snapshot) and not limited,
        limited=limited,
    )


def _list_purchasable(
    snapshot: Snapshot, pool: SnapshotPool
) -> Iterator[tuple[float, tuple[tuple[str, int], ...]]]:
    """Everything the pool could buy: the least it costs, and how much it holds."""
    wanted = Requirements.from_expressions(pool.nodepool.spec.template.spec.requirements or ())
    known = snapshot.options.flavour.well_known
    for each in snapshot.list_types(pool):
        best = (
            find_cheapest_offering(each, wanted, known)
            if wanted.is_compatible(each.requirements, known)
            else None
        )
        if best is not None:
            for group in each.allocatable_groups():
                yield best.price, tuple(sorted(convert_to_nano(group.allocatable).items()))


def _has_no_constraints(snapshot: Snapshot) -> bool:
    if snapshot.options.default_spread or not snapshot.options.ignore_dra:
        return False
    return not any(predicates.required_anti_affinity(pod) for each in snapshot.nodes for pod in each.pods)


def ignores_other_pods(pod: Pod) -> bool:
    """Whether where it may go has nothing to do with where others are."""
    affinity = pod.spec.affinity
    if pod.spec.topology_spread_constraints or pod.spec.resource_claims or pod.spec.volumes:
        return False
    return affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None)


def _has_room_for(free: Nano, wanted: Nano) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in wanted.items() if amount > 0)
