"""Drift in waves: how far each pool may go now, and how all of its nodes would go, wave by wave.

A pool's drift is open until a new node of it is not ready in time or a replacement is lost. It is paused
then, and after a while one node at a time is tried; the first new node that comes up opens it again.

    open ──a new node is late, a replacement is lost──► paused ──a while──► probing ──one comes up──► open
                                                          ▲───────it is lost too───────┘
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from dovetail.disruption.allowance import Allowance, allowances
from dovetail.disruption.candidates import QUIET, Candidate, Class, Scene, Stays, candidates
from dovetail.disruption.churn import knobs
from dovetail.disruption.command import DRIFTED
from dovetail.disruption.drift import drift_order
from dovetail.disruption.held import Held
from dovetail.scheduling import exact
from dovetail.scheduling import nodes as views
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.settings import durations

__all__ = ["Flow", "Gate", "Replacement", "Wave", "Waves", "gate", "gates", "guarded", "plan", "restrain"]

PAUSED_WORD, GO_WORD = "paused", "go"
BY_ANNOTATION = "PausedByAnnotation"
# How long a pool whose replacement was lost is left alone before one node is tried again.
PROBE_AFTER = timedelta(minutes=1)
SHOWN = 3


class Flow(StrEnum):
    """How far a pool's drift may go."""

    OPEN = "open"
    PROBING = "probing"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Gate:
    """Where a pool's drift stands: `reason` is its condition's, `why` a sentence.

    `noted` says that it follows from the condition the pool has, which need not be written again.
    """

    flow: Flow = Flow.OPEN
    reason: str = ""
    why: str = ""
    noted: bool = False


OPEN = Gate()


def gates(scene: Scene) -> dict[str, Gate]:
    """The pools whose drift is not open."""
    claims: dict[str, list[NodeClaim]] = {}
    # How nodes do is asked only where it can pause anything.
    for state in scene.snapshot.nodes if any(map(guarded, scene.pools.values())) else ():
        if state.claim is not None:
            claims.setdefault(views.pool(state), []).append(state.claim)
    now = scene.snapshot.options.now
    found = {name: gate(pool, claims.get(name, ()), now) for name, pool in scene.pools.items()}
    return {name: each for name, each in found.items() if each.flow is not Flow.OPEN}


def gate(pool: NodePool, claims: Iterable[NodeClaim], now: datetime) -> Gate:
    """Where one pool's drift stands, by what it says itself and by how its claims do."""
    asked = pool.annotations.get(labels.DRIFT, "")
    if asked == GO_WORD:
        return OPEN
    if asked:
        word = "" if asked == PAUSED_WORD else f"; it may be {PAUSED_WORD} or {GO_WORD}"
        return Gate(Flow.PAUSED, BY_ANNOTATION, f'annotation {labels.DRIFT} is "{asked}"{word}')
    within = _within(pool)
    if not within:
        return OPEN
    known = list(claims)
    late = sorted(claim.name for claim in known if _late(claim, now, within))
    if late:
        more = f" and {len(late) - SHOWN} more" if len(late) > SHOWN else ""
        why = f"not ready after {durations.render(within)}: {', '.join(late[:SHOWN])}{more}"
        return Gate(Flow.PAUSED, "NodesNotReady", why)
    return _since(conditions.find(pool, DRIFT_PAUSED), known, now)


def _since(paused: Condition | None, claims: Sequence[NodeClaim], now: datetime) -> Gate:
    """It was paused, or was not: have nodes come up since?"""
    since = paused.last_transition_time if paused else None
    if paused is None or paused.status != conditions.TRUE or since is None:
        return OPEN
    if paused.reason == BY_ANNOTATION:
        return OPEN  # which is no longer there
    if any(_up_since(claim, since) for claim in claims):
        return OPEN
    if now - since < PROBE_AFTER:
        left = durations.render(timedelta(seconds=round((since + PROBE_AFTER - now).total_seconds())))
        return Gate(Flow.PAUSED, paused.reason, f"{paused.message}; the next node is tried in {left}", True)
    return Gate(Flow.PROBING, paused.reason, "one node at a time until a new one is ready", True)


def guarded(pool: NodePool) -> bool:
    """Whether the pool's drift can be paused at all."""
    return pool.annotations.get(labels.DRIFT, "") != GO_WORD and bool(_within(pool))


def _within(pool: NodePool) -> timedelta:
    """How long new nodes may take. What cannot be read counts as the shortest time there is."""
    try:
        return durations.parse(pool.annotations.get(labels.DRIFT_PAUSE_AFTER) or "0")
    except ValueError:
        return timedelta(seconds=1)


def _late(claim: NodeClaim, now: datetime, within: timedelta) -> bool:
    created = claim.metadata.creation_timestamp
    if claim.deleting or created is None or conditions.is_true(claim, conditions.INITIALIZED):
        return False
    return now - created > within


def _up_since(claim: NodeClaim, since: datetime) -> bool:
    state = conditions.find(claim, conditions.INITIALIZED)
    if state is None or state.status != conditions.TRUE or state.last_transition_time is None:
        return False
    return state.last_transition_time >= since  # both are kept to the second


def restrain(scene: Scene, allowance: Allowance) -> None:
    """Pools that are paused lose nothing to drift; those that are probing one node at a time."""
    for name, found in gates(scene).items():
        most = 1 if found.flow is Flow.PROBING and not _under_way(scene, name) else 0
        allowance.cap(name, most, Held.PAUSED, f"drift of pool {name} is {found.flow}: {found.why}")


def _under_way(scene: Scene, pool: str) -> bool:
    return any(
        views.deleting(state) or views.provider_id(state) in scene.queued
        for state in scene.snapshot.nodes
        if state.claim is not None and views.pool(state) == pool
    )


@dataclass(frozen=True, slots=True)
class Replacement:
    """Nodes of one kind that a wave would order."""

    pool: str
    instance_type: str
    capacity_type: str
    price: float
    count: int


@dataclass(frozen=True, slots=True)
class Wave:
    """Nodes that go side by side, the pods that move for it, and what would be ordered for these.

    Replacements are reckoned node by node, as if nothing else had room: there will be no more than these.
    `after` is how long the pools' rates keep it waiting, counted from now.
    """

    nodes: tuple[str, ...]
    pods: int
    replacements: tuple[Replacement, ...]
    after: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Waves:
    """All of drift: its waves in order, the drifted nodes that are in none, and pools that are not open."""

    waves: tuple[Wave, ...]
    held: tuple[Stays, ...]
    gates: Mapping[str, Gate]


def plan(scene: Scene) -> Waves:
    """How every drifted node would go, if budgets stay as they are and each wave comes up well."""
    going, staying = candidates(scene, Class.EVENTUAL)
    held = [each for each in staying if _drifted(each.state)]
    allowance = allowances(scene, DRIFTED.reason)
    restrain(scene, allowance)
    shut = gates(scene)
    queues: dict[str, deque[Candidate]] = {}
    for candidate in drift_order(going):
        name = candidate.pool.name
        if (name in shut and shut[name].flow is Flow.PAUSED) or not _width(candidate.pool, allowance):
            why, text = allowance.held(name)
            held.append(Stays(candidate.state, text, QUIET, why))
        else:
            queues.setdefault(name, deque()).append(candidate)
    return Waves(tuple(_waves(queues, allowance, Shapes(scene))), tuple(held), shut)


def _waves(queues: dict[str, deque[Candidate]], allowance: Allowance, shapes: Shapes) -> Iterable[Wave]:
    now, spent = True, timedelta()
    while any(queues.values()):
        taken: list[Candidate] = []
        for name, queue in queues.items():
            width = _width(queue[0].pool, allowance) if queue else 0
            most = min(width, allowance.left(name)) if now else width
            taken += [queue.popleft() for _ in range(min(most, len(queue)))]
        if taken:
            yield _wave(taken, shapes, spent)
        waits = [rate.per for queue in queues.values() if queue and (rate := knobs(queue[0].pool).rate)]
        spent += max(waits, default=timedelta())
        now = False


def _width(pool: NodePool, allowance: Allowance) -> int:
    """How many nodes of the pool may go at once, when nothing else is under way."""
    most = allowance.allowed.get(pool.name, 0)
    rate = knobs(pool).rate
    if rate is not None:
        most = min(most, rate.nodes)
    limit = pool.spec.limits.get(labels.NODES)
    if pool.static and limit is not None:
        # A replacement stands beside its node for a while, and both count.
        most = min(most, limit.value - (pool.spec.replicas or 0))
    return max(0, most)


def _wave(taken: Sequence[Candidate], shapes: Shapes, after: timedelta) -> Wave:
    ordered = Counter(each for candidate in taken for each in shapes.replacements(candidate))
    return Wave(
        nodes=tuple(candidate.name for candidate in taken),
        pods=sum(len(candidate.pods) for candidate in taken),
        replacements=tuple(Replacement(*kind, count) for kind, count in sorted(ordered.items())),
        after=after,
    )


Kind = tuple[str, str, str, float]


class Shapes:
    """What replaces a node, asked once for all nodes whose pods are alike."""

    def __init__(self, scene: Scene, place: Callable[[Snapshot], Plan] = exact.place) -> None:
        options = replace(scene.snapshot.options, reserved_fallback=True)
        self._bare = replace(scene.snapshot, nodes=(), pods=(), moving=(), virtual=(), options=options)
        self._scene = scene
        self._place = place
        self._known: dict[object, tuple[Kind, ...]] = {}

    def replacements(self, candidate: Candidate) -> tuple[Kind, ...]:
        if candidate.pool.static:
            return ((candidate.pool.name, "", "", 0.0),)
        now = self._scene.snapshot.options.now
        pods = [pod for pod in candidate.pods if self._scene.limits.currently_reschedulable(pod, now)]
        key = frozenset(Counter(_alike(pod) for pod in pods).items())
        found = self._known.get(key)
        if found is None:
            planned = self._place(replace(self._bare, moving=tuple(pods))).new_nodes if pods else ()
            found = self._known[key] = tuple(map(_kind, planned))
        return found


def _kind(node: PlannedNode) -> Kind:
    return node.pool, node.instance_type, node.capacity_type, node.price


def _alike(pod: Pod) -> tuple[object, ...]:
    """Pods of one template share their spec, in memory as well."""
    return id(pod.spec), pod.namespace, tuple(sorted(pod.metadata.labels.items()))


def _drifted(state: StateNode) -> bool:
    return state.claim is not None and conditions.is_true(state.claim, conditions.DRIFTED)
