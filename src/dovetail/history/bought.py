"""What was bought for pods that waited, beside what our plan would buy for them.

NodeClaims that are new at a look are a purchase, one for each batch by their times of creation. The Situation
of the decision is that look with the purchase undone: its NodeClaims away, and every pod waiting again that
had no place then. Which pods it was made for is what its autoscaler told by `Nominated` events, and of pods
that it told nothing of, where they were bound. It is compared once that is known, or after ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.history.difference import (
    Difference,
)
from dovetail.history.paid import RunningPrices
from dovetail.history.purchase_difference import BoughtNode, compare_with_plan, describe_claim
from dovetail.history.situation_before import find_created, undo_purchase
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["PurchaseTracker"]

BATCH_GAP = timedelta(seconds=1)
"""NodeClaims of one decision are made one right after another; decisions are at least this far apart."""
BIND_WITHIN = timedelta(minutes=10)
MOST_NOMINATED = 2_000
"""Pods whose nominations are remembered before those that no purchase can ask for are let go."""
BY_EVENT: Final = "event"
BY_BINDING: Final = "binding"
ELSEWHERE: Final = ""
"""The home of a pod whose place was there before the purchase."""


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
                self._open.append(self._begin(situation, batch, states))
        self._known |= states.keys()
        self._created |= {
            state.claim.name: find_created(state.claim)
            for state in states.values()
            if state.claim is not None
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
            (find_created(state.claim), uid)
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

    def _begin(self, situation: Situation, batch: list[str], states: Mapping[str, StateNode]) -> _Purchase:
        claims = {uid: claim for uid in batch if (claim := states[uid].claim) is not None}
        made = max(map(find_created, claims.values()))
        nodes = {uid: describe_claim(claim) for uid, claim in claims.items()}
        undone = undo_purchase(situation, claims, states)
        waiting = {pod.uid: pod for pod in undone.snapshot.pods}
        beside, before = bool(situation.queued - self._queued), self._before
        if before is not None and {pod.uid for pod in before.snapshot.pods} == waiting.keys():
            return _Purchase(made, before, nodes, beside, {pod.uid: pod for pod in before.snapshot.pods})
        return _Purchase(made, undone, nodes, beside, waiting)

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
            node.estimated = self._prices.is_estimated(node.pool, known)

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
        found = compare_with_plan(purchase.at, mine, plan, len(pods), types)
        if found is not None:
            told = any(self._find_nominated(purchase, pod) for pod in pods)
            found = replace(found, attributed_by=BY_EVENT if told else BY_BINDING)
            self._compared.append(_Compared(found, mine))


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
