"""The input of a disruption decision: a Situation, ready to be asked about.

`DisruptionInput.from_situation` is the one constructor; the controller, `plan --disruption`, `explain`, the
dashboard and the simulator all use it. An input that follows from another one keeps all that was known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, NamedTuple

from msgspec import structs

from dovetail.api import conditions, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.core import PodDisruptionBudget, Taint
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.disruption.simulation.base_state import BaseState, FreeCapacity, compute_free_capacity
from dovetail.disruption.situation import DisruptionHold, Situation
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType, find_lowest_price, worst_launch_price
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.sunk_prices import sink_prices

__all__ = ["DisruptionInput", "PoolCounts", "PriceRange", "SnapshotFacts", "count_pool_nodes"]

EXCLUDED_ZONE_TAINT = Taint(key="dovetail.sh/zonal-shift", effect="NoSchedule")


class PriceRange(NamedTuple):
    """The least an instance type costs, and the most a launch of it could; infinite when it cannot be had."""

    least: float
    worst: float


class PoolCounts(NamedTuple):
    """Nodes by pool: all that count, and those of them that are down."""

    totals: dict[str, int]
    consumed: dict[str, int]


class _BudgetFaces:
    """PodDisruptionBudgets change with every pod; what they mean for a node hardly ever does."""

    def __init__(self) -> None:
        self._budgets: tuple[PodDisruptionBudget, ...] = ()
        self._face: tuple[object, ...] = ()

    def find_face(self, budgets: tuple[PodDisruptionBudget, ...]) -> tuple[object, ...]:
        if budgets is not self._budgets:
            face = tuple(
                (each.full_name, each.spec, each.status.disruptions_allowed == 0) for each in budgets
            )
            self._budgets = budgets
            self._face = self._face if face == self._face else face
        return self._face


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What is known of an input's snapshot already, and need not be computed again; None where it is not."""

    pool_counts: PoolCounts | None = None
    remaining_nodes: list[tuple[str, StateNode]] | None = None
    base_state: BaseState | None = None
    free_capacity: FreeCapacity | None = None


@dataclass(frozen=True)
class DisruptionInput:
    """Everything disruption looks at.

    What the fields mean is said of Situation; here nominated nodes are marked in the snapshot, nodes of
    excluded zones are closed, and what open commitments pay for has a sunk price. `cache` is the
    controller's, or that of whoever decides more than once; `facts` belong to the snapshot alone.
    """

    snapshot: Snapshot
    queued: frozenset[str] = frozenset()
    buffered: frozenset[str] = frozenset()
    spot_to_spot: bool = False
    excluded_zones: frozenset[str] = frozenset()
    returned_zones: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    holds: tuple[DisruptionHold, ...] = ()
    spend_caps: tuple[SpendCap, ...] = ()
    cache: DecisionCache = field(default_factory=DecisionCache, compare=False, repr=False)
    facts: SnapshotFacts = field(default=SnapshotFacts(), compare=False, repr=False)

    @classmethod
    def from_situation(cls, situation: Situation, cache: DecisionCache | None = None) -> DisruptionInput:
        """The input for a cluster as it was captured."""
        snapshot, nominated, excluded = situation.snapshot, situation.nominated, situation.excluded_zones
        if nominated or excluded:
            nodes = tuple(_add_node_facts(state, nominated, excluded) for state in snapshot.nodes)
            snapshot = structs.replace(snapshot, nodes=nodes)
        cache = DecisionCache() if cache is None else cache
        return cls(
            sink_prices(snapshot, snapshot.open_commitments, cache),
            situation.queued,
            situation.buffered,
            situation.spot_to_spot,
            excluded,
            situation.returned_zones,
            situation.unseen,
            situation.holds,
            situation.spend_caps,
            cache,
        )

    def with_snapshot(self, snapshot: Snapshot) -> DisruptionInput:
        """The same question about another snapshot."""
        return self if snapshot is self.snapshot else replace(self, snapshot=snapshot, facts=SnapshotFacts())

    def with_queued(self, keys: frozenset[str]) -> DisruptionInput:
        """The same question with these nodes being disrupted too."""
        return replace(self, queued=self.queued | keys, facts=replace(self.facts, pool_counts=None))

    def with_facts(self, facts: SnapshotFacts) -> DisruptionInput:
        """The same question with what is known of its snapshot already."""
        return replace(self, facts=facts)

    @cached_property
    def types(self) -> Mapping[str, Mapping[str, InstanceType]]:
        """The instance types that each NodePool offers, by name."""
        snapshot = self.snapshot
        return {pool.name: {each.name: each for each in snapshot.list_types(pool)} for pool in snapshot.pools}

    @cached_property
    def pools(self) -> Mapping[str, NodePool]:
        """The NodePools that can be read and offer an instance type."""
        return {
            p.name: p.nodepool
            for p in self.snapshot.pools
            if self.types[p.name] and not reason_of(p.nodepool)
        }

    @cached_property
    def set_aside_pools(self) -> dict[str, NodePool]:
        """NodePools that cannot be read: their nodes are blocked."""
        return {p.name: p.nodepool for p in self.snapshot.pools if reason_of(p.nodepool)}

    @cached_property
    def limits(self) -> PdbLimits:
        return PdbLimits(self.snapshot.budgets, matches_selector)

    @cached_property
    def face(self) -> tuple[object, ...]:
        """PodDisruptionBudgets as far as they block nodes: the very same object while that is unchanged."""
        return self.cache.get_part(_BudgetFaces).find_face(self.snapshot.budgets)

    @cached_property
    def pool_counts(self) -> PoolCounts:
        """How many nodes each NodePool has, and how many of them are down; counted once."""
        known = self.facts.pool_counts
        return count_pool_nodes(self.snapshot, self.queued) if known is None else known

    @cached_property
    def remaining_nodes(self) -> list[tuple[str, StateNode]]:
        """The nodes that are not being deleted, each with its name."""
        known = self.facts.remaining_nodes
        if known is not None:
            return known
        return [
            (views.read_name(state), state) for state in self.snapshot.nodes if not views.is_deleting(state)
        ]

    @cached_property
    def base_state(self) -> BaseState:
        """What all simulations of this input share; built when first needed."""
        return self.facts.base_state or BaseState(self.snapshot, self.cache)

    @cached_property
    def free_capacity(self) -> FreeCapacity:
        """What nodes have free and what can be bought; computed when first needed."""
        return self.facts.free_capacity or compute_free_capacity(self.snapshot, self.base_state)

    def build_price_lookup(self, node: PlannedNode) -> Callable[[str], PriceRange]:
        """What each instance type would cost as this node, looked up once for all nodes like it."""
        wanted = node.requirements
        known = self._prices.setdefault((node.pool, frozenset(wanted.by_key.items())), {})

        def price(name: str) -> PriceRange:
            found = known.get(name)
            if found is None:
                each, undefined = self.types[node.pool][name], self.snapshot.options.flavour.well_known
                least, worst = (of(each, wanted, undefined) for of in (find_lowest_price, worst_launch_price))
                found = known[name] = PriceRange(least, worst)
            return found

        return price

    @cached_property
    def reschedulable_pods(self) -> dict[str, tuple[Pod, ...]]:
        """The pods of candidates that would need another node, as far as they were looked up."""
        return {}

    @cached_property
    def notes(self) -> dict[str, Any]:
        """What a method works out once for an input, by the method's own key."""
        return {}

    @cached_property
    def _prices(self) -> dict[tuple[str, frozenset[tuple[str, Values]]], dict[str, PriceRange]]:
        return {}

    def __reduce__(self) -> tuple[Callable[..., DisruptionInput], tuple[object, ...]]:
        # What follows from the rest is made anew where it is wanted, rather than sent there.
        known = self.queued, self.buffered, self.spot_to_spot, self.excluded_zones
        return _reuse_input, (
            self.cache,
            self.snapshot,
            *known,
            self.returned_zones,
            self.unseen,
            self.holds,
            self.spend_caps,
        )


def _add_node_facts(state: StateNode, nominated: frozenset[str], excluded_zones: frozenset[str]) -> StateNode:
    """The node as the controller knows it: whether it is nominated, and closed where its zone is excluded.

    The taint keeps pods that only move to save money out of a zone that is shifted away.
    """
    if nominated and views.read_provider_id(state) in nominated:
        state = structs.replace(state, nominated=True)
    node = state.node
    if node is not None and excluded_zones and node.labels.get(labels.ZONE) in excluded_zones:
        spec = structs.replace(node.spec, taints=(*node.spec.taints, EXCLUDED_ZONE_TAINT))
        state = structs.replace(state, node=structs.replace(node, spec=spec))
    return state


class _LastInput:
    """The input that this process was last asked about by another one."""

    def __init__(self) -> None:
        self._inputs: DisruptionInput | None = None

    def reuse(self, asked: DisruptionInput) -> DisruptionInput:
        """The last input if this is the same, with all that was worked out for it; else this one."""
        last = self._inputs
        if last is None or not _has_same_nodes(last.snapshot, asked.snapshot) or last != asked:
            self._inputs = last = asked
        return last


def _reuse_input(cache: DecisionCache, *known: Any) -> DisruptionInput:
    asked = DisruptionInput(*known)
    return cache.get_part(_LastInput).reuse(replace(asked, cache=cache))


def _has_same_nodes(old: Snapshot, new: Snapshot) -> bool:
    """Identity is quick to compare, and what is remembered goes by it."""
    return len(old.nodes) == len(new.nodes) and all(map(is_, old.nodes, new.nodes))


def count_pool_nodes(snapshot: Snapshot, queued: AbstractSet[str]) -> PoolCounts:
    """`queued` are the keys of nodes already being disrupted."""
    found = PoolCounts({}, {})
    for state in snapshot.nodes:
        if _is_counted(state):
            pool = views.read_pool_name(state)
            found.totals[pool] = found.totals.get(pool, 0) + 1
            found.consumed[pool] = found.consumed.get(pool, 0) + _is_down(state, queued)
    return found


def _is_counted(state: StateNode) -> bool:
    if state.claim is None or state.node is None or not views.is_initialized(state):
        return False
    return not conditions.is_true(state.claim, conditions.INSTANCE_TERMINATING)


def _is_down(state: StateNode, queued: AbstractSet[str]) -> bool:
    assert state.node is not None
    ready = state.node.status.find_condition("Ready")
    unready = ready is None or ready.status != "True"
    return unready or views.is_deleting(state) or views.read_provider_id(state) in queued
