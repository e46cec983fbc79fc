"""Drift in waves: how many nodes of each NodePool drift may replace now, and all of them wave by wave.

A pool's drift is open until a new node of it is not ready in time or a replacement is lost. It is paused
then, and after a while one node at a time is tried; the first new node that comes up opens it again.

    open ──a new node is late, a replacement is lost──► paused ──a while──► probing ──one comes up──► open
                                                          ▲───────it is lost too───────┘
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DRIFT_PAUSED
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import Allowance, compute_allowances
from dovetail.disruption.candidates import (
    QUIET,
    BlockedNode,
    Candidate,
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.command import DRIFTED
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import read_policy
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.settings import durations

__all__ = [
    "DriftFlow",
    "DriftStatus",
    "DriftWave",
    "DriftWaves",
    "WaveReplacement",
    "can_pause",
    "compute_drift_status",
    "limit_drift",
    "list_drift_statuses",
    "plan_waves",
    "sort_by_drift",
]

PAUSED_WORD, GO_WORD = "paused", "go"
BY_ANNOTATION = "PausedByAnnotation"
# How long a pool whose replacement was lost is left alone before one node is tried again.
PROBE_AFTER = timedelta(minutes=1)
SHOWN = 3


class DriftFlow(StrEnum):
    """Whether a NodePool's drift may continue."""

    OPEN = "open"
    PROBING = "probing"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class DriftStatus:
    """Where a pool's drift stands: `reason` is its condition's, `why` a sentence.

    `noted` says that it follows from the condition the pool has, which need not be written again.
    """

    flow: DriftFlow = DriftFlow.OPEN
    reason: str = ""
    why: str = ""
    noted: bool = False


OPEN = DriftStatus()


def list_drift_statuses(inputs: DisruptionInput) -> dict[str, DriftStatus]:
    """The pools whose drift is not open."""
    claims: dict[str, list[NodeClaim]] = {}
    # How nodes do is asked only where it can pause anything.
    for state in inputs.snapshot.nodes if any(map(can_pause, inputs.pools.values())) else ():
        if state.claim is not None:
            claims.setdefault(views.read_pool_name(state), []).append(state.claim)
    now = inputs.snapshot.options.now
    found = {
        name: compute_drift_status(pool, claims.get(name, ()), now) for name, pool in inputs.pools.items()
    }
    return {name: each for name, each in found.items() if each.flow is not DriftFlow.OPEN}


def compute_drift_status(pool: NodePool, claims: Iterable[NodeClaim], now: datetime) -> DriftStatus:
    """Where one pool's drift stands, by what it says itself and by how its claims do."""
    asked = pool.annotations.get(labels.DRIFT, "")
    if asked == GO_WORD:
        return OPEN
    if asked:
        word = "" if asked == PAUSED_WORD else f"; it may be {PAUSED_WORD} or {GO_WORD}"
        return DriftStatus(DriftFlow.PAUSED, BY_ANNOTATION, f'annotation {labels.DRIFT} is "{asked}"{word}')
    within = _read_pause_after(pool)
    if not within:
        return OPEN
    known = list(claims)
    late = sorted(claim.name for claim in known if _is_late(claim, now, within))
    if late:
        more = f" and {len(late) - SHOWN} more" if len(late) > SHOWN else ""
        why = f"not ready after {durations.render_duration(within)}: {', '.join(late[:SHOWN])}{more}"
        return DriftStatus(DriftFlow.PAUSED, "NodesNotReady", why)
    return _check_since_pause(conditions.find_condition(pool, DRIFT_PAUSED), known, now)


def _check_since_pause(paused: Condition | None, claims: Sequence[NodeClaim], now: datetime) -> DriftStatus:
    """It was paused, or was not: have nodes come up since?"""
    since = paused.last_transition_time if paused else None
    if paused is None or paused.status != conditions.TRUE or since is None:
        return OPEN
    if paused.reason == BY_ANNOTATION:
        return OPEN  # which is no longer there
    if any(_is_up_since(claim, since) for claim in claims):
        return OPEN
    if now - since < PROBE_AFTER:
        left = durations.render_duration(
            timedelta(seconds=round((since + PROBE_AFTER - now).total_seconds()))
        )
        return DriftStatus(
            DriftFlow.PAUSED, paused.reason, f"{paused.message}; the next node is tried in {left}", True
        )
    return DriftStatus(DriftFlow.PROBING, paused.reason, "one node at a time until a new one is ready", True)


def can_pause(pool: NodePool) -> bool:
    """Whether the pool's drift can be paused at all."""
    return pool.annotations.get(labels.DRIFT, "") != GO_WORD and bool(_read_pause_after(pool))


def _read_pause_after(pool: NodePool) -> timedelta:
    """How long new nodes may take. What cannot be read counts as the shortest time there is."""
    try:
        return durations.parse_duration(pool.annotations.get(labels.DRIFT_PAUSE_AFTER) or "0")
    except ValueError:
        return timedelta(seconds=1)


def _is_late(claim: NodeClaim, now: datetime, within: timedelta) -> bool:
    created = claim.metadata.creation_timestamp
    if claim.deleting or created is None or conditions.is_true(claim, conditions.INITIALIZED):
        return False
    return now - created > within


def _is_up_since(claim: NodeClaim, since: datetime) -> bool:
    state = conditions.find_condition(claim, conditions.INITIALIZED)
    if state is None or state.status != conditions.TRUE or state.last_transition_time is None:
        return False
    return state.last_transition_time >= since  # both are kept to the second


def limit_drift(inputs: DisruptionInput, allowance: Allowance) -> None:
    """Pools that are paused lose nothing to drift; those that are probing one node at a time."""
    for name, found in list_drift_statuses(inputs).items():
        most = 1 if found.flow is DriftFlow.PROBING and not _has_terminating_nodes(inputs, name) else 0
        allowance.limit_pool(
            name, most, BlockedReason.PAUSED, f"drift of pool {name} is {found.flow}: {found.why}"
        )


def _has_terminating_nodes(inputs: DisruptionInput, pool: str) -> bool:
    return any(
        views.is_deleting(state) or views.read_provider_id(state) in inputs.queued
        for state in inputs.snapshot.nodes
        if state.claim is not None and views.read_pool_name(state) == pool
    )


@dataclass(frozen=True, slots=True)
class WaveReplacement:
    """Nodes of one kind that a wave would order."""

    pool: str
    instance_type: str
    capacity_type: str
    price: float
    count: int


@dataclass(frozen=True, slots=True)
class DriftWave:
    """Nodes that are replaced side by side, the pods that move for it, and what would be ordered for these.

    Replacements are reckoned node by node, as if nothing else had room: there will be no more than these.
    `after` is how long the pools' rates keep it waiting, counted from now.
    """

    nodes: tuple[str, ...]
    pods: int
    replacements: tuple[WaveReplacement, ...]
    after: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class DriftWaves:
    """All of drift: its waves in order, the drifted nodes that are in none, and pools that are not open."""

    waves: tuple[DriftWave, ...]
    held: tuple[BlockedNode, ...]
    gates: Mapping[str, DriftStatus]


def plan_waves(inputs: DisruptionInput) -> DriftWaves:
    """How every drifted node would be replaced, if budgets stay as they are and each wave comes up well."""
    candidates, blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)
    blocked_reason = [each for each in blocked if _is_drifted(each.state)]
    allowance = compute_allowances(inputs, DRIFTED.reason)
    limit_drift(inputs, allowance)
    shut = list_drift_statuses(inputs)
    queues: dict[str, deque[Candidate]] = {}
    for candidate in sort_by_drift(candidates):
        name = candidate.pool.name
        if (name in shut and shut[name].flow is DriftFlow.PAUSED) or not _compute_width(
            candidate.pool, allowance
        ):
            why, text = allowance.explain_block(name)
            blocked_reason.append(BlockedNode(candidate.state, text, QUIET, why))
        else:
            queues.setdefault(name, deque()).append(candidate)
    return DriftWaves(
        tuple(_build_waves(queues, allowance, ReplacementEstimates(inputs))), tuple(blocked_reason), shut
    )


def _build_waves(
    queues: dict[str, deque[Candidate]], allowance: Allowance, shapes: ReplacementEstimates
) -> Iterable[DriftWave]:
    now, spent = True, timedelta()
    while any(queues.values()):
        taken: list[Candidate] = []
        for name, queue in queues.items():
            width = _compute_width(queue[0].pool, allowance) if queue else 0
            most = min(width, allowance.count_left(name)) if now else width
            taken += [queue.popleft() for _ in range(min(most, len(queue)))]
        if taken:
            yield _build_wave(taken, shapes, spent)
        waits = [rate.per for queue in queues.values() if queue and (rate := read_policy(queue[0].pool).rate)]
        spent += max(waits, default=timedelta())
        now = False


def _compute_width(pool: NodePool, allowance: Allowance) -> int:
    """How many nodes of the NodePool may be disrupted at once, when nothing else is under way."""
    most = allowance.allowed.get(pool.name, 0)
    rate = read_policy(pool).rate
    if rate is not None:
        most = min(most, rate.nodes)
    limit = pool.spec.limits.get(labels.NODES)
    if pool.static and limit is not None:
        # A replacement stands beside its node for a while, and both count.
        most = min(most, limit.value - (pool.spec.replicas or 0))
    return max(0, most)


def _build_wave(taken: Sequence[Candidate], shapes: ReplacementEstimates, after: timedelta) -> DriftWave:
    ordered = Counter(each for candidate in taken for each in shapes.list_replacements(candidate))
    return DriftWave(
        nodes=tuple(candidate.name for candidate in taken),
        pods=sum(len(candidate.pods) for candidate in taken),
        replacements=tuple(WaveReplacement(*kind, count) for kind, count in sorted(ordered.items())),
        after=after,
    )


ReplacementKind = tuple[str, str, str, float]


class ReplacementEstimates:
    """What replaces a node, asked once for all nodes whose pods are alike."""

    def __init__(self, inputs: DisruptionInput) -> None:
        options = replace(inputs.snapshot.options, reserved_fallback=True)
        self._bare = replace(inputs.snapshot, nodes=(), pods=(), moving=(), virtual=(), options=options)
        self._inputs = inputs
        self._known: dict[object, tuple[ReplacementKind, ...]] = {}

    def list_replacements(self, candidate: Candidate) -> tuple[ReplacementKind, ...]:
        if candidate.pool.static:
            return ((candidate.pool.name, "", "", 0.0),)
        now = self._inputs.snapshot.options.now
        pods = [pod for pod in candidate.pods if self._inputs.limits.currently_reschedulable(pod, now)]
        key = frozenset(Counter(_build_pod_key(pod) for pod in pods).items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(map(_read_kind, self._plan_nodes(pods))) if pods else ()
        return found

    def _plan_nodes(self, pods: Iterable[Pod]) -> tuple[PlannedNode, ...]:
        return schedule_pods(replace(self._bare, moving=tuple(pods)), cache=self._inputs.cache).new_nodes


def _read_kind(node: PlannedNode) -> ReplacementKind:
    return node.pool, node.instance_type, node.capacity_type, node.price


def _build_pod_key(pod: Pod) -> tuple[object, ...]:
    """Pods of one template share their spec, in memory as well."""
    return id(pod.spec), pod.namespace, tuple(sorted(pod.metadata.labels.items()))


def _is_drifted(state: StateNode) -> bool:
    return state.claim is not None and conditions.is_true(state.claim, conditions.DRIFTED)


def sort_by_drift(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The longest drifted first, those without pods to move before the others."""
    drifted = [
        c
        for c in candidates
        if c.state.claim is not None and conditions.is_true(c.state.claim, conditions.DRIFTED)
    ]

    def since(candidate: Candidate) -> tuple[bool, float, str]:
        claim = candidate.state.claim
        state = conditions.find_condition(claim, conditions.DRIFTED) if claim else None
        moment = state.last_transition_time if state else None
        return bool(candidate.pods), moment.timestamp() if moment else 0.0, candidate.name

    return sorted(drifted, key=since)
