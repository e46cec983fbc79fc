"""Which nodes could go at all, what each is worth, and for every other node why it stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import isnan
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from dovetail.api import labels, predicates
from dovetail.api.bad_items import reason_of
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import PoolCounts, count_pool_nodes
from dovetail.disruption.disruption_cost import compute_reschedule_cost
from dovetail.disruption.simulation.base_state import BaseState, FreeCapacity, compute_free_capacity
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.identity_cache import IdentityCache
from dovetail.scheduling.model.instance_types import InstanceType, worst_launch_price
from dovetail.scheduling.model.instance_types import find_lowest_price as least_price
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

if TYPE_CHECKING:
    from dovetail.disruption.choose import ConsolidationCandidates

__all__ = [
    "BLOCKED",
    "QUIET",
    "UNCONSOLIDATABLE",
    "BlockedNode",
    "Candidate",
    "DisruptionClass",
    "DisruptionInput",
    "find_candidates",
]

# How people are told why a node stays: the event's reason, or not at all.
BLOCKED, UNCONSOLIDATABLE, QUIET = "DisruptionBlocked", "Unconsolidatable", ""


class DisruptionClass(StrEnum):
    """How much a disruption respects: graceful waits for every pod, eventual has a deadline."""

    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may go. `price` is per hour, 0 when unknown; `cost` is what moving its pods costs."""

    state: StateNode
    pool: NodePool
    instance_type: InstanceType | None
    price: float
    pods: tuple[Pod, ...]
    cost: float

    @property
    def key(self) -> str:
        return views.read_provider_id(self.state)

    @property
    def name(self) -> str:
        return views.read_name(self.state)

    @property
    def labels(self) -> Mapping[str, str]:
        return views.read_labels(self.state)

    @property
    def capacity_type(self) -> str:
        return self.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def zone(self) -> str:
        return self.labels.get(labels.ZONE, "")

    @property
    def empty(self) -> bool:
        """Nothing on it that would be missed."""
        return self.cost <= 1.0

    @property
    def ratio(self) -> float:
        """What is saved for each unit of disruption: the best go first."""
        return self.price / self.cost


@dataclass(frozen=True, slots=True)
class BlockedNode:
    """A node that stays, and why. `event` names how people are told; QUIET means not at all.

    `blocked_reason` is the kind of reason, and `pod` the pod that is one.
    """

    state: StateNode
    why: str
    event: str = BLOCKED
    blocked_reason: BlockedReason = BlockedReason.UNSAID
    pod: str = ""

    @property
    def name(self) -> str:
        return views.read_name(self.state)


class PriceRange(NamedTuple):
    """The least a machine costs, and the most a launch of it could; infinite when it cannot be had."""

    least: float
    worst: float


class _BudgetFaces:
    """Budgets change with every pod that comes or goes, and what they mean for a node hardly ever does."""

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


_FACES = _BudgetFaces()


@dataclass(frozen=True)
class DisruptionInput:
    """Everything disruption looks at.

    `queued` are the keys of nodes already being disrupted, `buffered` the names of nodes that hold room
    for capacity buffers, `shifted` the names of zones that are shifted away.
    """

    snapshot: Snapshot
    queued: frozenset[str] = frozenset()
    buffered: frozenset[str] = frozenset()
    spot_to_spot: bool = False
    excluded_zones: frozenset[str] = frozenset()
    pools: Mapping[str, NodePool] = field(init=False)
    types: Mapping[str, Mapping[str, InstanceType]] = field(init=False)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        known = {
            pool.name: {each.name: each for each in snapshot.list_types(pool)} for pool in snapshot.pools
        }
        usable = {p.name: p.nodepool for p in snapshot.pools if known[p.name] and not reason_of(p.nodepool)}
        object.__setattr__(self, "pools", usable)
        object.__setattr__(self, "types", known)

    @cached_property
    def limits(self) -> PdbLimits:
        return PdbLimits(self.snapshot.budgets, matches_selector)

    @cached_property
    def face(self) -> tuple[object, ...]:
        """The budgets of pods as far as they hold nodes: the very same object while that stays as it is."""
        return _FACES.find_face(self.snapshot.budgets)

    @cached_property
    def pool_counts(self) -> PoolCounts:
        """How many nodes each pool has, and how many of them are down; counted once."""
        return count_pool_nodes(self.snapshot, self.queued)

    @cached_property
    def remaining_nodes(self) -> list[tuple[str, StateNode]]:
        """The nodes that are not on their way out, each with its name."""
        return [
            (views.read_name(state), state) for state in self.snapshot.nodes if not views.is_deleting(state)
        ]

    @cached_property
    def set_aside_pools(self) -> dict[str, NodePool]:
        """Pools that cannot be read: their nodes stay."""
        return {p.name: p.nodepool for p in self.snapshot.pools if reason_of(p.nodepool)}

    def with_snapshot(self, snapshot: Snapshot) -> DisruptionInput:
        """The same questions about another world."""
        if snapshot is self.snapshot:
            return self
        return DisruptionInput(snapshot, self.queued, self.buffered, self.spot_to_spot, self.excluded_zones)

    def share_pool_counts(self, other: DisruptionInput) -> DisruptionInput:
        """This scene, whose nodes are those of another: how they stand need not be counted again."""
        self.__dict__["pool_counts"] = other.pool_counts
        return self

    @cached_property
    def free_capacity(self) -> FreeCapacity:
        """Reckoned when first asked for, and once."""
        return compute_free_capacity(self.snapshot, self.base_state)

    @cached_property
    def base_state(self) -> BaseState:
        """What all trials in this scene share; made when first asked for."""
        return BaseState(self.snapshot)

    def build_price_lookup(self, node: PlannedNode) -> Callable[[str], PriceRange]:
        """What each type of machine would cost as this node, looked up once for all nodes like it."""
        wanted = node.requirements
        known = self._prices.setdefault((node.pool, frozenset(wanted.by_key.items())), {})

        def price(name: str) -> PriceRange:
            found = known.get(name)
            if found is None:
                each, undefined = self.types[node.pool][name], self.snapshot.options.flavour.well_known
                least, worst = (of(each, wanted, undefined) for of in (least_price, worst_launch_price))
                found = known[name] = PriceRange(least, worst)
            return found

        return price

    @cached_property
    def reschedulable_pods(self) -> dict[str, tuple[Pod, ...]]:
        """The pods of candidates that would look for a place, as far as anybody has asked."""
        return {}

    @cached_property
    def consolidation_candidates(self) -> list[ConsolidationCandidates]:
        """What consolidation has to choose from, once anybody has asked."""
        return []

    @cached_property
    def _prices(self) -> dict[tuple[str, frozenset[tuple[str, Values]]], dict[str, PriceRange]]:
        return {}

    def __reduce__(self) -> tuple[Callable[..., DisruptionInput], tuple[object, ...]]:
        # What follows from the rest is made anew where it is wanted, rather than sent there.
        return _reuse_input, (
            self.snapshot,
            self.queued,
            self.buffered,
            self.spot_to_spot,
            self.excluded_zones,
        )


_LAST: list[DisruptionInput] = []


def _reuse_input(snapshot: Snapshot, *rest: object) -> DisruptionInput:
    """Another question about the scene of the last one finds all that was worked out for that."""
    if _LAST:
        inputs = _LAST[0]
        known = inputs.queued, inputs.buffered, inputs.spot_to_spot, inputs.excluded_zones
        if known == rest and _has_same_nodes(inputs.snapshot, snapshot) and inputs.snapshot == snapshot:
            return inputs
    _LAST[:] = [DisruptionInput(snapshot, *rest)]  # type: ignore[arg-type] # they come from __reduce__
    return _LAST[0]


def _has_same_nodes(old: Snapshot, new: Snapshot) -> bool:
    """Identity is quick to compare, and what is remembered goes by it."""
    return len(old.nodes) == len(new.nodes) and all(map(is_, old.nodes, new.nodes))


def find_candidates(
    inputs: DisruptionInput, kind: DisruptionClass
) -> tuple[list[Candidate], list[BlockedNode]]:
    """Every node, sorted into those that may go and those that stay."""
    candidates: list[Candidate] = []
    blocked: list[BlockedNode] = []
    for state in inputs.snapshot.nodes:
        found = evaluate_node(inputs, state, kind)
        if isinstance(found, Candidate):
            candidates.append(found)
        else:
            blocked.append(found)
    return candidates, blocked


def evaluate_node(
    inputs: DisruptionInput, state: StateNode, kind: DisruptionClass
) -> Candidate | BlockedNode:
    """One node: a candidate, or the first reason why not."""
    if views.read_provider_id(state) in inputs.queued:
        return BlockedNode(state, "candidate is already being disrupted", QUIET, BlockedReason.UNDER_WAY)
    if (
        inputs.excluded_zones
        and (zone := views.read_labels(state).get(labels.ZONE, "")) in inputs.excluded_zones
    ):
        why = f"ZonalShift: its zone is shifted away (Zone={zone})"
        return BlockedNode(state, why, blocked_reason=BlockedReason.ZONAL_SHIFT)
    world = inputs.snapshot.pools, inputs.snapshot.catalogs, inputs.face
    known = _EVALUATIONS.get(state, *world)
    if known is None:
        known = _compute_evaluation(inputs, state)
        if not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in state.pods):
            # Such an annotation may hold for a while only; all else stays true as long as these do.
            _EVALUATIONS.put_signal(known, state, *world)
    stays, candidate = known
    if candidate is None or (
        stays is not None and (kind is DisruptionClass.GRACEFUL or _read_grace_period(state) is None)
    ):
        assert stays is not None
        return stays
    return candidate


_EVALUATIONS: IdentityCache[tuple[BlockedNode | None, Candidate | None]] = IdentityCache()


def _compute_evaluation(
    inputs: DisruptionInput, state: StateNode
) -> tuple[BlockedNode | None, Candidate | None]:
    """Why the node stays, if it does, and what it would be as a candidate, if it can be one."""
    refused = _check_node(inputs, state)
    if refused is not None:
        return refused, None
    pool = inputs.pools[views.read_pool_name(state)]
    instance_type = inputs.types[pool.name].get(views.read_labels(state).get(labels.INSTANCE_TYPE, ""))
    pods = tuple(pod for pod in state.pods if predicates.is_reschedulable(pod))
    return _check_pods(inputs, state), Candidate(
        state=state,
        pool=pool,
        instance_type=instance_type,
        price=find_running_price(views.read_labels(state), instance_type),
        pods=state.pods if len(pods) == len(state.pods) else pods,
        cost=compute_reschedule_cost(pods),
    )


def _check_node(inputs: DisruptionInput, state: StateNode) -> BlockedNode | None:
    if state.claim is None:
        return BlockedNode(state, "node isn't managed by karpenter", QUIET, BlockedReason.UNMANAGED)
    if state.node is None:
        return BlockedNode(
            state, "nodeclaim does not have an associated node", blocked_reason=BlockedReason.NO_NODE
        )
    for obj in (state.node, state.claim, inputs.set_aside_pools.get(views.read_pool_name(state))):
        if obj is not None and (why := reason_of(obj)):
            return BlockedNode(
                state,
                f"{obj.KIND.kind} {obj.name} is set aside: {why}",
                blocked_reason=BlockedReason.SET_ASIDE,
            )
    if not views.is_initialized(state):
        return BlockedNode(state, "node isn't initialized", blocked_reason=BlockedReason.UNINITIALIZED)
    if views.is_deleting(state):
        return BlockedNode(
            state, "node is deleting or marked for deletion", blocked_reason=BlockedReason.DELETING
        )
    if state.nominated:
        return BlockedNode(
            state, "node is nominated for a pending pod", blocked_reason=BlockedReason.NOMINATED
        )
    if state.node.annotations.get(labels.DO_NOT_DISRUPT) == labels.TRUE:
        why = f'disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return BlockedNode(state, why, blocked_reason=BlockedReason.NODE_DO_NOT_DISRUPT)
    pool = views.read_pool_name(state)
    if not pool:
        why = f"node doesn't have required label (label={labels.NODEPOOL})"
        return BlockedNode(state, why, blocked_reason=BlockedReason.NO_POOL)
    if pool not in inputs.pools:
        return BlockedNode(
            state, f"NodePool not found (NodePool={pool})", blocked_reason=BlockedReason.NO_POOL
        )
    return None


def _check_pods(inputs: DisruptionInput, state: StateNode) -> BlockedNode | None:
    """Which pod holds the node; None when none does."""
    now = inputs.snapshot.options.now
    for pod in state.pods:
        if why := reason_of(pod):
            return BlockedNode(
                state,
                f"pod {pod.full_name} is set aside: {why}",
                blocked_reason=BlockedReason.SET_ASIDE,
                pod=pod.full_name,
            )
        if predicates.is_active(pod) and predicates.do_not_disrupt(pod, now).active:
            why = f'pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.full_name})'
            return BlockedNode(state, why, blocked_reason=BlockedReason.POD_DO_NOT_DISRUPT, pod=pod.full_name)
    for pod in state.pods:
        blocking = inputs.limits.find_blocking_now(pod, now)
        if blocking:
            why = f"pdb prevents pod evictions (PodDisruptionBudget=[{blocking[0]}])"
            if len(blocking) > 1:
                listed = ", ".join(blocking)
                why = f"eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{listed}])"
            return BlockedNode(state, why, blocked_reason=BlockedReason.PDB, pod=pod.full_name)
    return None


def _read_grace_period(state: StateNode) -> str | None:
    return state.claim.spec.termination_grace_period if state.claim else None


def find_running_price(known: Mapping[str, str], instance_type: InstanceType | None) -> float:
    """What a node of these labels costs an hour, whether or not more can be had now; 0 when unknown."""
    zone, capacity_type = known.get(labels.ZONE, ""), known.get(labels.CAPACITY_TYPE, "")
    for offering in instance_type.offerings if instance_type else ():
        if offering.zone == zone and offering.capacity_type == capacity_type:
            return 0.0 if isnan(offering.price) else offering.price
    return 0.0


def sort_by_ratio(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best bargain first; equals by name, so that the same world gives the same order."""
    return sorted(candidates, key=lambda candidate: (-candidate.ratio, candidate.name))
