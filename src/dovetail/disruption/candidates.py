"""Which nodes may be disrupted, what each costs and saves, and why every other node is blocked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from math import isnan

from dovetail.api import labels, predicates
from dovetail.api.bad_items import reason_of
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.bill import find_running_price
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import IdentityCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import StateNode

__all__ = [
    "BLOCKED",
    "QUIET",
    "UNCONSOLIDATABLE",
    "BlockedNode",
    "Candidate",
    "DisruptionClass",
    "compute_eviction_cost",
    "compute_lifetime_remaining",
    "compute_node_cost",
    "compute_reschedule_cost",
    "find_candidates",
    "find_unreadable_cost",
]

# How people are told why a node is blocked: the event's reason, or not at all.
BLOCKED, UNCONSOLIDATABLE, QUIET = "DisruptionBlocked", "Unconsolidatable", ""
# What moving an ordinary pod costs, and the most a pod can.
BASE = 1.0
MOST = 10.0


class DisruptionClass(StrEnum):
    """How much a disruption respects: graceful waits for every pod, eventual has a deadline."""

    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may be disrupted. `price` is per hour, 0 if unknown; `cost` is that of moving its pods."""

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
        """What is saved for each unit of disruption: the best come first."""
        return self.price / self.cost


@dataclass(frozen=True, slots=True)
class BlockedNode:
    """A blocked node, and why. `event` names how people are told; QUIET means not at all.

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


_Evaluation = tuple[BlockedNode | None, Candidate | None]


class _Evaluations:
    """What was said of each node, for as long as nothing it was said by has changed."""

    def __init__(self) -> None:
        self.known: IdentityCache[_Evaluation] = IdentityCache()
        self._nodes: tuple[StateNode, ...] = ()

    def begin_look(self, nodes: tuple[StateNode, ...]) -> IdentityCache[_Evaluation]:
        """What is known, for a look at these nodes; what neither this nor the last one needs is let go."""
        if nodes is not self._nodes:
            self._nodes = nodes
            self.known.age_entries()
        return self.known


def find_candidates(
    inputs: DisruptionInput, kind: DisruptionClass
) -> tuple[list[Candidate], list[BlockedNode]]:
    """Every node, sorted into candidates and blocked nodes."""
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
    evaluations = inputs.cache.get_part(_Evaluations).begin_look(inputs.snapshot.nodes)
    known = evaluations.get(state, *world)
    if known is None:
        known = _compute_evaluation(inputs, state)
        if not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in state.pods):
            # Such an annotation may hold for a while only; all else stays true as long as these do.
            evaluations.put(known, state, *world)
    stays, candidate = known
    if candidate is None or (
        stays is not None and (kind is DisruptionClass.GRACEFUL or _read_grace_period(state) is None)
    ):
        assert stays is not None
        return stays
    return candidate


def _compute_evaluation(inputs: DisruptionInput, state: StateNode) -> _Evaluation:
    """Why the node is blocked, if it is, and what it would be as a candidate, if it can be one."""
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
        price=find_running_price(views.read_labels(state), instance_type) or 0.0,
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
    """Which pod blocks the node; None when none does. Of several it is the first by name.

    Pods are in the order in which they were heard of, and every process hears of them in another.
    """
    now = inputs.snapshot.options.now
    for check in (_check_annotation, partial(_check_budgets, inputs.limits)):
        blocking = [pod for pod in state.pods if check(pod, now)]
        if blocking:
            pod = min(blocking, key=lambda each: each.full_name)
            reason, why = check(pod, now) or (BlockedReason.UNSAID, "")
            return BlockedNode(state, why, blocked_reason=reason, pod=pod.full_name)
    return None


def _check_annotation(pod: Pod, now: datetime) -> tuple[BlockedReason, str] | None:
    if why := reason_of(pod):
        return BlockedReason.SET_ASIDE, f"pod {pod.full_name} is set aside: {why}"
    if predicates.is_active(pod) and predicates.do_not_disrupt(pod, now).active:
        why = f'pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.full_name})'
        return BlockedReason.POD_DO_NOT_DISRUPT, why
    return None


def _check_budgets(limits: PdbLimits, pod: Pod, now: datetime) -> tuple[BlockedReason, str] | None:
    blocking = limits.find_blocking_now(pod, now)
    if not blocking:
        return None
    if len(blocking) > 1:
        listed = ", ".join(blocking)
        return (
            BlockedReason.PDB,
            f"eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{listed}])",
        )
    return BlockedReason.PDB, f"pdb prevents pod evictions (PodDisruptionBudget=[{blocking[0]}])"


def _read_grace_period(state: StateNode) -> str | None:
    return state.claim.spec.termination_grace_period if state.claim else None


def sort_by_ratio(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best bargain first; equals by name, so that the same world gives the same order."""
    return sorted(candidates, key=lambda candidate: (-candidate.ratio, candidate.name))


def compute_eviction_cost(pod: Pod) -> float:
    """1 for an ordinary pod; more for one that matters, less, even below 0, for one that does not."""
    cost = BASE + _read_deletion_cost(pod) / 2**27 + (pod.spec.priority or 0) / 2**25
    return max(-MOST, min(MOST, cost))


def find_unreadable_cost(pod: Pod) -> str | None:
    """The deletion cost as it is written, if it is no number and therefore counts as not given."""
    text = pod.annotations.get(labels.POD_DELETION_COST)
    return text if text is not None and _parse_cost(text) is None else None


def _read_deletion_cost(pod: Pod) -> float:
    return _parse_cost(pod.annotations.get(labels.POD_DELETION_COST, "")) or 0.0


def _parse_cost(text: str) -> float | None:
    try:
        cost = float(text) if _is_go_float(text) else None
    except ValueError:
        return None
    # Upstream lets NaN through, and then nothing compares; here it counts as not given.
    return None if cost is None or isnan(cost) else cost


def _is_go_float(text: str) -> bool:
    """Python also takes surrounding blanks, which Go does not."""
    return bool(text) and text == text.strip()


def compute_reschedule_cost(pods: Iterable[Pod]) -> float:
    """What moving these pods costs, the node itself counted as one; never below that."""
    return BASE + sum(max(0.0, compute_eviction_cost(pod)) for pod in pods)


def compute_node_cost(pods: Iterable[Pod], remaining: float) -> float:
    """All pods of a node, negative costs included, weighed by how long the node would still live."""
    return sum(map(compute_eviction_cost, pods)) * remaining


def compute_lifetime_remaining(expire_after: timedelta | None, created: datetime, now: datetime) -> float:
    """The share of its life a claim still has before it; all of it when it never expires."""
    if expire_after is None:
        return 1.0
    if expire_after <= timedelta():
        return 0.0
    return max(0.0, min(1.0, (expire_after - (now - created)) / expire_after))
