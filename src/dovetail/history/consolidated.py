"""Nodes that went by their choice, and nodes that stayed though ours would go, look by look.

A node went by choice when it is marked as disrupted, or was deleted with a reason for it; expiry,
interruptions and a person's delete are nobody's choice. A node stayed from the second of two looks fifteen
seconds apart at which our methods would take it, until they take it, it goes otherwise, or our verdict ends;
it counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.api import conditions, labels, reasons
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.command import MANY, REBALANCE, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.report import BlockedNodeReport, build_report, find_turns
from dovetail.disruption.situation import Situation
from dovetail.history.difference import (
    CENT_TENTH,
    Difference,
    DifferenceKind,
    DifferenceReason,
    describe_shapes,
    format_price,
    group_shapes,
    name_planned,
)
from dovetail.history.paid import RunningPrices
from dovetail.history.purchase_difference import BoughtNode
from dovetail.history.situation_before import find_key, undo_marks
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["ConsolidationTracker"]

SETTLE = timedelta(seconds=15)
"""A controller looks twice, this far apart, before it starts what it decided."""
SAME = timedelta(seconds=60)
"""What both start within this time is one decision."""
LATE = timedelta(minutes=30)
"""What they start within this time is only late; and what we leave is counted for so long, at most."""
STANDS = timedelta(seconds=1)
NO_REASON = "none is told: they started nothing"

_BUDGETS = {BlockedReason.BUDGET, BlockedReason.RATE, BlockedReason.PAUSED}
_KNOBS = {BlockedReason.SAVING, BlockedReason.PAYBACK, BlockedReason.RESTING, BlockedReason.UNBALANCED}
_TIMES = {BlockedReason.NOT_YET, BlockedReason.NOMINATED, BlockedReason.UNINITIALIZED, BlockedReason.AWAITED}


@dataclass(slots=True)
class _Wanted:
    """A node that our methods would take: since when, as part of what, and what it has come to."""

    first: datetime
    name: str
    pool: str
    theirs: str
    price: float
    command: Command
    rate: float
    estimated: bool = False
    due: timedelta = SETTLE
    began: datetime | None = None
    last: datetime | None = None
    dollars: float = 0.0


@dataclass(slots=True)
class _Gone:
    """Nodes that went together by their choice, and why we would have left them."""

    at: datetime
    names: tuple[str, ...]
    reason: str
    nodes: tuple[tuple[str, str, float], ...]
    pool: str
    blocked: BlockedNodeReport | None
    estimated: bool = False


class ConsolidationTracker:
    """Asks our methods at each look that is worth it, and compares with what happens to nodes."""

    def __init__(
        self, prices: RunningPrices, cache: DecisionCache, decide_as: Callable[[Situation], Situation]
    ) -> None:
        self._prices = prices
        self._cache = cache
        self._decide_as = decide_as
        self._wanted: dict[str, _Wanted] = {}
        self._stayed: list[Difference] = []
        self._went: list[tuple[_Gone, dict[str, BoughtNode]]] = []
        self._before: Situation | None = None
        self._marked: set[str] = set()
        self._next: datetime | None = None
        # Nodes that both would take, and nodes of which nobody saw why they went.
        self.agreed = 0
        self.unseen = 0

    def add_look(self, at: datetime, situation: Situation, replacements: dict[str, BoughtNode]) -> None:
        """Follow every node, and ask our methods again when it is time."""
        states = {find_key(state): state for state in situation.snapshot.nodes if state.claim is not None}
        before = self._before
        if before is not None:
            self._integrate(at)
            earlier = {find_key(state): state for state in before.snapshot.nodes if state.claim is not None}
            self._follow(at, situation, earlier, states, replacements)
        else:
            self._marked = {key for key, state in states.items() if _is_going(state)}
        if self._next is None or at >= self._next:
            self._survey(at, situation)
            self._next = at + choose_pause(len(states))
        self._before = situation

    def skip_gap(self) -> None:
        """Nobody watched: our verdicts end with the last look before."""
        for key in list(self._wanted):
            self._end(key, "nobody watched any longer")
        self._before = None

    def list_differences(self, at: datetime) -> list[Difference]:
        """Every node that went or stayed otherwise, as it stands at a time."""
        stays = [_describe_stayed(each, "") for each in self._wanted.values() if each.began is not None]
        went = [_describe_went(gone, made, at) for gone, made in self._went]
        found = (each for each in (*self._stayed, *stays) if abs(each.dollars) > 0)
        return [*went, *found]

    def _integrate(self, at: datetime) -> None:
        for each in self._wanted.values():
            if each.began is not None and each.last is not None:
                each.dollars += each.rate * (at - each.last).total_seconds() / 3600
                each.last = at

    def _follow(
        self,
        at: datetime,
        situation: Situation,
        earlier: Mapping[str, StateNode],
        states: Mapping[str, StateNode],
        replacements: dict[str, BoughtNode],
    ) -> None:
        """Nodes that are on their way out since the look before."""
        chosen: dict[str, list[str]] = {}
        for key, state in earlier.items():
            now = states.get(key)
            if key in self._marked or (now is not None and not _is_going(now)):
                continue
            self._marked.add(key)
            why = _find_choice(now if now is not None else state)
            if key in self._wanted:
                self._take(key, at, why)
            elif now is None or not why:
                self.unseen += now is None
            else:
                chosen.setdefault(why, []).append(key)
        self._marked &= states.keys()
        for why, keys in chosen.items():
            self._compare_gone(at, situation, why, keys, states, replacements)

    def _take(self, key: str, at: datetime, why: str) -> None:
        """A node that we would take is on its way."""
        wanted = self._wanted[key]
        late = at - wanted.began if wanted.began is not None else timedelta()
        if late <= SAME:
            self.agreed += 1
            del self._wanted[key]
            return
        minutes = late.total_seconds() / 60
        said = f"they took it {minutes:.0f} min later" if why else "it went otherwise"
        self._end(key, said, DifferenceReason.TIMING if why and late < LATE else None)

    def _end(self, key: str, ended: str, reason: DifferenceReason | None = None) -> None:
        wanted = self._wanted.pop(key)
        if wanted.began is not None and wanted.last is not None and wanted.last - wanted.began >= STANDS:
            self._stayed.append(_describe_stayed(wanted, ended, reason))

    def _compare_gone(
        self,
        at: datetime,
        situation: Situation,
        why: str,
        keys: list[str],
        states: Mapping[str, StateNode],
        replacements: dict[str, BoughtNode],
    ) -> None:
        """Nodes that they take and that our last answer would not: asked at the look before, and now."""
        blocked: BlockedNodeReport | None = None
        left, before = keys, self._before
        for asked in (before, undo_marks(situation, keys)):
            if asked is None or not left:
                continue
            report = build_report(DisruptionInput.from_situation(self._decide_as(asked), self._cache))
            ours = {candidate.key for command in report.commands for candidate in command.candidates}
            left = [key for key in left if key not in ours]
            said = {
                find_key(each.state): each for each in report.blocked_nodes if each.state.claim is not None
            }
            blocked = blocked or next((said[key] for key in left if key in said), None)
        self.agreed += len(keys) - len(left)
        if not left:
            return
        nodes, guessed = [], False
        for key in left:
            known = views.read_labels(states[key])
            price = self._prices.find_price(views.read_pool_name(states[key]), known)
            guessed = guessed or self._prices.is_estimated(views.read_pool_name(states[key]), known)
            nodes.append((known.get(labels.INSTANCE_TYPE, ""), known.get(labels.CAPACITY_TYPE, ""), price))
        names = tuple(sorted(views.read_name(states[key]) for key in left))
        pool = ", ".join(sorted({views.read_pool_name(states[key]) for key in left}))
        gone = _Gone(at, names, why, tuple(nodes), pool, blocked, guessed)
        self._went.append((gone, replacements))

    def _survey(self, at: datetime, situation: Situation) -> None:
        """What our methods would start now."""
        inputs = DisruptionInput.from_situation(self._decide_as(situation), self._cache)
        found: dict[str, tuple[int, Command]] = {}
        for turn, each in enumerate(find_turns(inputs)):
            for command in each.commands:
                if command.method.reason != reasons.DRIFTED and command.savings > 0:
                    found.update({candidate.key: (turn, command) for candidate in command.candidates})
        for key in [key for key in self._wanted if key not in found]:
            self._end(key, "our verdict ended")
        for key, (turn, command) in found.items():
            self._want(key, turn, command, at)

    def _want(self, key: str, turn: int, command: Command, at: datetime) -> None:
        candidate = next(each for each in command.candidates if each.key == key)
        worth = command.cost
        share = candidate.price / worth if worth > 0 else 1 / len(command.candidates)
        rate = command.savings * share
        wanted = self._wanted.get(key)
        if wanted is None:
            kind = candidate.labels.get(labels.INSTANCE_TYPE, "")
            said = describe_shapes(group_shapes([(kind, candidate.capacity_type, candidate.price)]))
            self._wanted[key] = _Wanted(
                at,
                candidate.name,
                candidate.pool.name,
                said,
                candidate.price,
                command,
                rate,
                self._prices.is_estimated(candidate.pool.name, candidate.labels),
                SETTLE * (turn + 1),
            )
            return
        wanted.command, wanted.rate = command, rate
        if wanted.began is None and at - wanted.first >= wanted.due:
            wanted.began = wanted.last = at


def choose_pause(nodes: int) -> timedelta:
    """How long our methods are not asked again: longer for more nodes, and the same for everyone."""
    return timedelta(seconds=15 if nodes <= 100 else 60 if nodes <= 500 else 180)


def _describe_stayed(wanted: _Wanted, ended: str, reason: DifferenceReason | None = None) -> Difference:
    began, last = wanted.began or wanted.first, wanted.last or wanted.first
    command = wanted.command
    if reason is None:
        reason = DifferenceReason.CONSOLIDATION
        if command.method in (MANY, REBALANCE):
            reason = DifferenceReason.METHOD
    hours = (last - began).total_seconds() / 3600
    others = len(command.candidates) - 1
    beside = f" with {others} others" if others > 1 else " with another" if others else ""
    new = name_planned(command.replacements)
    return Difference(
        kind=DifferenceKind.STAYED,
        at=began,
        reason=reason,
        why=f"{command.method.reason} ({command.method.kind}): {command.saving}",
        their_reason=NO_REASON,
        our_reason=f"{command.method.reason} ({command.method.kind}): {command.saving}",
        theirs=f"{wanted.name} stays ({wanted.theirs}, {format_price(wanted.price, wanted.estimated)})",
        ours=f"it goes{beside}" + (f", and {describe_shapes(new)} comes" if new else ""),
        pool=wanted.pool,
        about=(wanted.name,),
        pods=sum(len(each.pods) for each in command.candidates if each.name == wanted.name),
        their_price=wanted.price,
        our_price=wanted.price - wanted.rate,
        rate=wanted.dollars / hours if hours else wanted.rate,
        hours=hours,
        dollars=wanted.dollars,
        until=last if ended else None,
        ended=ended,
        estimated=wanted.estimated or any(each.price_estimated for each in command.replacements),
    )


def _describe_went(gone: _Gone, made: Mapping[str, BoughtNode], at: datetime) -> Difference:
    """What leaving the nodes costs more, for half an hour at most."""
    near = [each for each in made.values() if abs(each.created - gone.at) <= SAME and each.pool in gone.pool]
    new = group_shapes((each.instance_type, each.capacity_type, each.price) for each in near)
    before = sum(price for _, _, price in gone.nodes)
    after = sum(shape.count * shape.price for shape in new)
    hours = min(at - gone.at, LATE).total_seconds() / 3600
    reason, why = DifferenceReason.CONSOLIDATION, "our methods would leave it"
    if gone.blocked is not None:
        reason, why = _read_block(gone.blocked), gone.blocked.main.why
    saved = 0.0 if abs(after - before) < CENT_TENTH else after - before
    return Difference(
        kind=DifferenceKind.WENT,
        at=gone.at,
        reason=reason,
        why=why,
        their_reason=gone.reason,
        our_reason=why,
        theirs=f"{describe_shapes(group_shapes(gone.nodes))} goes ({gone.reason})"
        + (f", and {describe_shapes(new)} comes" if new else ""),
        ours="it stays",
        pool=gone.pool,
        about=gone.names,
        their_price=after,
        our_price=before,
        rate=saved,
        hours=hours,
        dollars=saved * hours,
        until=gone.at + LATE if at >= gone.at + LATE else None,
        estimated=gone.estimated or any(each.estimated for each in near),
    )


def _read_block(blocked: BlockedNodeReport) -> DifferenceReason:
    reason = blocked.main.blocked_reason
    if reason in _BUDGETS:
        return DifferenceReason.BUDGET
    if reason in _KNOBS:
        return DifferenceReason.KNOB
    if reason in _TIMES:
        return DifferenceReason.TIMING
    return DifferenceReason.CONSOLIDATION if reason is BlockedReason.NO_CHEAPER else DifferenceReason.RULE


def _is_going(state: StateNode) -> bool:
    return views.is_deleting(state) or views.has_disruption_mark(state)


def _find_choice(state: StateNode) -> str:
    """For which reason its controller takes it by choice; empty when it does not, or nobody knows."""
    said = state.claim.status.find_condition(conditions.DISRUPTION_REASON) if state.claim else None
    if said is not None:
        return said.reason or reasons.UNDERUTILIZED
    taints = state.node.spec.taints if state.node is not None else ()
    tainted = any(is_same_taint(each, DISRUPTED) for each in taints)
    by_person = state.claim is not None and state.claim.deleting
    return reasons.UNDERUTILIZED if tainted and not by_person else ""
