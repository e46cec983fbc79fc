"""What was bought for pods that waited, beside what our plan would buy for them.

NodeClaims that are new at a look are a purchase, one for each batch by their times of creation. The Situation
of the decision is that look with the purchase undone: its NodeClaims away, and every pod waiting again that
had no place then. Which pods it was made for is what its autoscaler told by `Nominated` events, and of pods
that it told nothing of, where they were bound. It is compared once that is known, or after ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod, PodStatus
from dovetail.api.predicates import is_active, owned_by_daemonset, owned_by_node
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.history.difference import (
    CENT_TENTH,
    Difference,
    DifferenceKind,
    DifferenceReason,
    NodeShape,
    describe_shapes,
    group_shapes,
    list_ways,
    name_planned,
)
from dovetail.history.paid import RunningPrices
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["BoughtNode", "PurchaseTracker"]

BATCH_GAP = timedelta(seconds=1)
"""NodeClaims of one decision are made one right after another; decisions are at least this far apart."""
BIND_WITHIN = timedelta(minutes=10)
MOST_NOMINATED = 2_000
"""Pods whose nominations are remembered before those that no purchase can ask for are let go."""
BY_EVENT: Final = "event"
BY_BINDING: Final = "binding"
ELSEWHERE: Final = ""
"""The home of a pod whose place was there before the purchase."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class BoughtNode:
    """A NodeClaim of a purchase: what came of it, and how long it was there."""

    name: str
    created: datetime
    pool: str = ""
    instance_type: str = ""
    capacity_type: str = ""
    price: float = 0.0
    allowed_types: frozenset[str] | None = None
    allowed_ways: frozenset[str] | None = None
    pods: set[str] = field(default_factory=set)
    launched: bool = False
    gone: datetime | None = None


@dataclass(slots=True)
class _Purchase:
    """One decision of theirs to buy, until it can be compared."""

    at: datetime
    situation: Situation
    nodes: dict[str, BoughtNode]
    beside_command: bool
    waiting: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    gone_pods: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Compared:
    """A purchase that was compared, while its nodes are there."""

    difference: Difference
    nodes: tuple[BoughtNode, ...]


class PurchaseTracker:
    """Finds purchases look by look, and compares each with our plan."""

    def __init__(
        self, prices: RunningPrices, cache: DecisionCache, decide_as: Callable[[Situation], Situation]
    ) -> None:
        self._prices = prices
        self._cache = cache
        self._decide_as = decide_as
        self._known: set[str] = set()
        self._created: dict[str, datetime] = {}
        self._nominated: dict[str, dict[str, datetime]] = {}
        self._queued: frozenset[str] = frozenset()
        self._open: list[_Purchase] = []
        self._compared: list[_Compared] = []
        self._last: datetime | None = None
        self._before: Situation | None = None
        # Decisions that were compared, and replacements, which belong to the node that went.
        self.compared = 0
        self.replacements: dict[str, BoughtNode] = {}

    def add_look(self, at: datetime, situation: Situation) -> None:
        """What is new is a purchase; what was bought before is followed."""
        states = {
            state.claim.uid or state.claim.name: state
            for state in situation.snapshot.nodes
            if state.claim is not None
        }
        bound = _map_bound_pods(situation)
        here = _map_waiting_pods(situation)
        if self._last is not None:
            for batch in self._split_batches(states):
                self._open.append(self._begin(at, situation, batch, states))
        self._known |= states.keys()
        self._created |= {
            state.claim.name: _created(state.claim) for state in states.values() if state.claim is not None
        }
        self._forget_nominations(at)
        self._queued = situation.queued
        self._follow(at, states, bound, here)
        self._last, self._before = at, situation

    def note_nomination(self, pod: str, claims: Iterable[str], at: datetime) -> None:
        """Their event says which NodeClaim a pod, by its namespace and name, waits for."""
        self._nominated.setdefault(pod, {}).update(dict.fromkeys(claims, at))

    def skip_gap(self) -> None:
        """Nobody watched: what is there at the next look was not seen coming."""
        self._last = None
        self._open.clear()

    def list_differences(self, at: datetime) -> list[Difference]:
        """Every purchase that differs, as it stands at a time."""
        return [_measure(each, at) for each in self._compared]

    def _split_batches(self, states: Mapping[str, StateNode]) -> Iterable[list[str]]:
        """The NodeClaims that are new, by decision."""
        new = [
            (_created(state.claim), uid)
            for uid, state in states.items()
            if uid not in self._known and state.claim
        ]
        batch: list[str] = []
        before: datetime | None = None
        for created, uid in sorted(new):
            if before is not None and created - before > BATCH_GAP:
                yield batch
                batch = []
            batch.append(uid)
            before = created
        if batch:
            yield batch

    def _begin(
        self, at: datetime, situation: Situation, batch: list[str], states: Mapping[str, StateNode]
    ) -> _Purchase:
        claims = {uid: claim for uid in batch if (claim := states[uid].claim) is not None}
        made = max(map(_created, claims.values()))
        nodes = {uid: _describe_claim(claim) for uid, claim in claims.items()}
        # What was bought since then was not there, and neither was what this decision bought.
        kept = tuple(
            state
            for state in situation.snapshot.nodes
            if state.claim is None
            or ((state.claim.uid or state.claim.name) not in claims and _created(state.claim) <= made)
        )
        waiting: dict[str, Pod] = {pod.uid: pod for pod in situation.snapshot.pods if _created(pod) <= made}
        freed = []
        for state in kept:
            late = [pod for pod in state.pods if _bound_after(pod, made)]
            waiting |= {pod.uid: _release(pod) for pod in late}
            if late:
                state = replace(state, pods=tuple(pod for pod in state.pods if pod not in late))
            freed.append(state)
        for uid in claims:
            mine = [pod for pod in states[uid].pods if _is_ours(pod) and _created(pod) <= made]
            waiting |= {pod.uid: _release(pod) for pod in mine}
        snapshot = replace(
            situation.snapshot,
            nodes=tuple(freed),
            pods=tuple(waiting.values()),
            options=replace(situation.snapshot.options, now=max(made, situation.snapshot.options.now)),
        )
        beside, before = bool(situation.queued - self._queued), self._before
        if before is not None and {pod.uid for pod in before.snapshot.pods} == waiting.keys():
            return _Purchase(made, before, nodes, beside, {pod.uid: pod for pod in before.snapshot.pods})
        return _Purchase(made, situation.with_snapshot(snapshot), nodes, beside, waiting)

    def _follow(
        self,
        at: datetime,
        states: Mapping[str, StateNode],
        bound: Mapping[str, str],
        here: frozenset[str],
    ) -> None:
        for compared in self._compared:
            _note_gone(compared.nodes, states, at)
        still = []
        for purchase in self._open:
            for uid, node in purchase.nodes.items():
                self._update_node(node, states.get(uid), at)
            for pod in purchase.waiting.keys() - purchase.bound.keys():
                if pod in bound:
                    purchase.bound[pod] = bound[pod]
                elif pod not in here:
                    purchase.gone_pods.add(pod)
            settled = all(each.launched or each.gone for each in purchase.nodes.values())
            known = {uid for uid, pod in purchase.waiting.items() if self._find_nominated(purchase, pod)}
            placed = len(purchase.bound.keys() | purchase.gone_pods | known) >= len(purchase.waiting)
            if (settled and placed) or at - purchase.at >= BIND_WITHIN:
                self._compare(purchase)
            else:
                still.append(purchase)
        self._open = still

    def _update_node(self, node: BoughtNode, state: StateNode | None, at: datetime) -> None:
        if state is None or state.claim is None:
            node.gone = node.gone or at
            return
        known = state.claim.labels
        if known.get(labels.INSTANCE_TYPE) and state.claim.status.provider_id:
            node.launched = True
            node.instance_type = known[labels.INSTANCE_TYPE]
            node.capacity_type = known.get(labels.CAPACITY_TYPE, "")
            node.price = self._prices.find_price(node.pool, known)

    def _find_nominated(self, purchase: _Purchase, pod: Pod) -> str | None:
        """The NodeClaim of the purchase that their event names for the pod; None when no event does."""
        told = self._nominated.get(pod.full_name, {})
        return next((uid for uid, node in purchase.nodes.items() if node.name in told), None)

    def _find_home(self, purchase: _Purchase, uid: str, pod: Pod) -> str | None:
        """The NodeClaim that was bought for a pod, by its uid; ELSEWHERE for a place that was there already.

        None: they bought for it later, or nobody knows; our plan for this purchase is not asked about it.
        """
        found = self._find_nominated(purchase, pod)
        if found is not None:
            return found
        told = [
            self._created[name] for name in self._nominated.get(pod.full_name, {}) if name in self._created
        ]
        if told:
            return ELSEWHERE if min(told) <= purchase.at else None
        if uid in purchase.gone_pods:
            return ELSEWHERE
        bound = purchase.bound.get(uid)
        # A scheduler binds a pod to whichever node is ready first, also to one that was bought after this.
        return bound if bound is None or bound in purchase.nodes else ELSEWHERE

    def _forget_nominations(self, at: datetime) -> None:
        if len(self._nominated) > MOST_NOMINATED:
            kept = at - 2 * BIND_WITHIN
            self._nominated = {
                pod: told for pod, told in self._nominated.items() if max(told.values(), default=at) >= kept
            }

    def _compare(self, purchase: _Purchase) -> None:
        homes = {uid: self._find_home(purchase, uid, pod) for uid, pod in purchase.waiting.items()}
        for pod, home in homes.items():
            if home:
                purchase.nodes[home].pods.add(pod)
        mine = tuple(node for node in purchase.nodes.values() if node.launched)
        if purchase.beside_command or (not purchase.waiting and not purchase.situation.snapshot.moving):
            self.replacements |= {node.name: node for node in mine if not node.pods}
            mine = tuple(node for node in mine if node.pods)
        if not mine:
            return
        pods = tuple(pod for uid, pod in purchase.waiting.items() if homes[uid] is not None)
        situation = purchase.situation
        situation = situation.with_snapshot(replace(situation.snapshot, pods=pods))
        plan = decide_plan(self._decide_as(situation), cache=self._cache)
        self.compared += 1
        types = {each.name: each for listed in situation.snapshot.catalogs for each in listed}
        found = _compare_with_plan(purchase.at, mine, plan, len(pods), types)
        if found is not None:
            told = any(self._find_nominated(purchase, pod) for pod in pods)
            found = replace(found, attributed_by=BY_EVENT if told else BY_BINDING)
            self._compared.append(_Compared(found, mine))


def _compare_with_plan(
    at: datetime,
    nodes: tuple[BoughtNode, ...],
    plan: Plan,
    pods: int,
    types: Mapping[str, InstanceType],
) -> Difference | None:
    """The difference between a purchase and a plan; None when both cost the same."""
    theirs = group_shapes((node.instance_type, node.capacity_type, node.price) for node in nodes)
    ours = name_planned(plan.new_nodes)
    their_price = sum(shape.count * shape.price for shape in theirs)
    our_price = sum(shape.count * shape.price for shape in ours)
    if abs(their_price - our_price) < CENT_TENTH:
        return None
    reason, why = _find_reason(nodes, theirs, plan, ours, types)
    return Difference(
        kind=DifferenceKind.BOUGHT,
        at=at,
        reason=reason,
        why=why,
        their_reason=_describe_orders(nodes),
        our_reason=_describe_plan(plan, pods),
        theirs=f"{describe_shapes(theirs)} for {pods} pods, ${their_price:.4f}/h",
        ours=f"{describe_shapes(ours)}, ${our_price:.4f}/h",
        pool=", ".join(sorted({node.pool for node in nodes})),
        about=tuple(sorted(node.name for node in nodes)),
        pods=pods,
        their_price=their_price,
        our_price=our_price,
        rate=their_price - our_price,
    )


def _describe_orders(nodes: tuple[BoughtNode, ...]) -> str:
    """What their orders say: how many types each allows, in which ways, and for how many pods."""
    told = []
    for node in nodes[:3]:
        types = f"{len(node.allowed_types)} types" if node.allowed_types else "any type of the pool"
        ways = " or ".join(sorted(node.allowed_ways)) if node.allowed_ways else "any capacity type"
        told.append(f"{node.name} for {len(node.pods)} pods: {types}, {ways}")
    more = f"; and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return "; ".join(told) + more


def _describe_plan(plan: Plan, pods: int) -> str:
    """What our plan says of the same pods."""
    here = sum(len(each) for each in plan.existing.values())
    new = [f"{each.pool} for {len(each.pods)} pods: {each.instance_type}" for each in plan.new_nodes[:3]]
    more = f"; and {len(plan.new_nodes) - 3} more" if len(plan.new_nodes) > 3 else ""
    kept = f"{here} of {pods} pods fit on nodes that are there" if here else ""
    return "; ".join(each for each in (kept, "; ".join(new) + more) if each)


def _find_reason(
    nodes: tuple[BoughtNode, ...],
    theirs: tuple[NodeShape, ...],
    plan: Plan,
    ours: tuple[NodeShape, ...],
    types: Mapping[str, InstanceType],
) -> tuple[DifferenceReason, str]:
    """Where the two part first: ways of buying, architectures, packing, types, or only what was launched."""
    if plan.left_out:
        return DifferenceReason.RULE, f"{len(plan.left_out)} of the pods have no place in our plan"
    ways = list_ways(theirs), list_ways(ours)
    if ours and bool(ways[0]["spot"]) != bool(ways[1]["spot"]):
        said = "spot" if ways[1]["spot"] else "on-demand"
        return DifferenceReason.SPOT, f"here {said} capacity is bought, which the NodePool allows too"
    ordered = frozenset(
        name for node in nodes for name in (node.allowed_types or frozenset((node.instance_type,)))
    )
    new = _list_architectures(types, (each.instance_type for each in ours))
    new -= _list_architectures(types, ordered)
    if new:
        return (
            DifferenceReason.TYPES,
            f"the NodePool allows {', '.join(sorted(new))}, and their orders do not",
        )
    if not ours:
        return DifferenceReason.PACKING, "the pods fit on nodes that are there or on their way"
    if not _same_groups(nodes, plan):
        return DifferenceReason.PACKING, "the same pods are packed onto other nodes"
    other = sorted({shape.instance_type for shape in ours} - ordered)
    if other:
        names = ", ".join(other[:3])
        return DifferenceReason.TYPES, f"their orders do not allow {names}, which the NodePool does"
    return DifferenceReason.LAUNCH, "both orders allow the same types, and a dearer one was launched"


def _list_architectures(types: Mapping[str, InstanceType], names: Iterable[str]) -> frozenset[str]:
    """The architectures of instance types; nothing of those that nobody knows."""
    known = (types[name].requirements[labels.ARCH] for name in names if name in types)
    return frozenset(each for values in known if not values.open for each in values.names)


def _same_groups(nodes: tuple[BoughtNode, ...], plan: Plan) -> bool:
    """Whether both put the same numbers of pods together."""
    return sorted(len(node.pods) for node in nodes) == sorted(len(node.pods) for node in plan.new_nodes)


def _measure(compared: _Compared, at: datetime) -> Difference:
    """The difference with what it came to until now: its rate times the hours of what they bought."""
    worth = sum(node.price for node in compared.nodes)
    lived = sum(
        node.price * ((node.gone or at) - compared.difference.at).total_seconds() / 3600
        for node in compared.nodes
    )
    hours = lived / worth if worth else 0.0
    gone = [node.gone for node in compared.nodes]
    ended = max((each for each in gone if each is not None), default=None) if all(gone) else None
    difference = compared.difference
    return replace(
        difference,
        hours=hours,
        dollars=difference.rate * hours,
        until=ended,
        ended="its nodes are gone" if ended else "",
    )


def _note_gone(nodes: Iterable[BoughtNode], states: Mapping[str, StateNode], at: datetime) -> None:
    names = {state.claim.name for state in states.values() if state.claim is not None}
    for node in nodes:
        if node.gone is None and node.name not in names:
            node.gone = at


def _describe_claim(claim: NodeClaim) -> BoughtNode:
    types = ways = None
    for each in claim.spec.requirements or ():
        if each.operator == "In" and each.key == labels.INSTANCE_TYPE:
            types = frozenset(each.values)
        if each.operator == "In" and each.key == labels.CAPACITY_TYPE:
            ways = frozenset(each.values)
    return BoughtNode(
        claim.name,
        _created(claim),
        claim.labels.get(labels.NODEPOOL, ""),
        allowed_types=types,
        allowed_ways=ways,
    )


def _map_bound_pods(situation: Situation) -> dict[str, str]:
    """The NodeClaim of the node that each pod is bound to, by the pod's uid; empty for a node without one."""
    found = {}
    for state in situation.snapshot.nodes:
        claim = state.claim
        own = (claim.uid or claim.name) if claim is not None else ""
        found.update(dict.fromkeys((pod.uid for pod in state.pods), own))
    return found


def _map_waiting_pods(situation: Situation) -> frozenset[str]:
    return frozenset(pod.uid for pod in situation.snapshot.pods)


def _bound_after(pod: Pod, time: datetime) -> bool:
    """Whether a pod waited at the time, and has been bound since."""
    if not _is_ours(pod) or _created(pod) > time:
        return False
    said = pod.status.find_condition("PodScheduled")
    since = said.last_transition_time if said is not None and said.status == "True" else None
    return since is not None and since > time


def _is_ours(pod: Pod) -> bool:
    return is_active(pod) and not owned_by_daemonset(pod) and not owned_by_node(pod)


def _release(pod: Pod) -> Pod:
    """The pod as it was when it had no place."""
    said = Condition(
        type="PodScheduled",
        status="False",
        reason="Unschedulable",
        last_transition_time=pod.metadata.creation_timestamp,
    )
    return replace(pod, node_name="", status=PodStatus(phase="Pending", conditions=(said,)))


def _created(obj: NodeClaim | Pod) -> datetime:
    return obj.metadata.creation_timestamp or LONG_AGO
