"""What would be disrupted now, turn after turn, and for every blocked node the reason.

The methods are the loop's own, asked in its order; between turns the world is as it would be with the
commands so far under way. Nothing is decided here that is not decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.api import conditions, labels
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import Allowance, BadBudget, compute_allowances, count_allowed, list_budgets
from dovetail.disruption.candidates import (
    BlockedNode,
    Candidate,
    DisruptionClass,
    evaluate_node,
)
from dovetail.disruption.choose import DisruptionChoice, order_methods
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, REBALANCE, SINGLE, Command, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.drift import choose_drift, choose_static_drift, count_static_replacements
from dovetail.disruption.methods.drift_waves import DriftWaves
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.methods.rebalance import choose_rebalance
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.policy import read_policy, read_recent_moves
from dovetail.disruption.projection import project_commands
from dovetail.scheduling.bill import find_running_price
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.settings import durations

__all__ = [
    "BlockedDetail",
    "BlockedNodeExplainer",
    "BlockedNodeReport",
    "DisruptionReport",
    "DisruptionTurn",
    "build_report",
    "find_turns",
]

TURNS = 10


@dataclass(frozen=True, slots=True)
class BlockedDetail:
    """What one method says of a node."""

    method: Method
    blocked_reason: BlockedReason
    why: str
    pod: str = ""


@dataclass(frozen=True, slots=True)
class BlockedNodeReport:
    """A blocked node. The first of its reasons is the one that counts."""

    state: StateNode
    price: float
    reasons: tuple[BlockedDetail, ...]

    @property
    def name(self) -> str:
        return views.read_name(self.state)

    @property
    def pool(self) -> str:
        return views.read_pool_name(self.state)

    @property
    def main(self) -> BlockedDetail:
        return self.reasons[0]

    @property
    def drifted(self) -> bool:
        return self.state.claim is not None and conditions.is_true(self.state.claim, conditions.DRIFTED)


@dataclass(frozen=True, slots=True)
class DisruptionTurn:
    """Commands that one turn of the loop would start."""

    method: Method
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class DisruptionReport:
    """All of it. `more` says that it was cut short: further turns would find more."""

    turns: tuple[DisruptionTurn, ...]
    blocked_nodes: tuple[BlockedNodeReport, ...]
    waves: DriftWaves
    more: bool = False

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for turn in self.turns for command in turn.commands)

    @property
    def savings(self) -> float:
        return sum(command.savings for command in self.commands)


def build_report(
    inputs: DisruptionInput, most: int = TURNS, step: Callable[[str], None] = lambda text: None
) -> DisruptionReport:
    """Let the loop's methods decide, up to this many turns, and ask why every other node is blocked."""
    turns, world, choices = _run_turns(inputs, most, step)
    candidates = {
        candidate.key for turn in turns for command in turn.commands for candidate in command.candidates
    }
    said = BlockedNodeExplainer(
        {views.read_provider_id(state): state for state in inputs.snapshot.nodes}, world, choices
    )
    standing = tuple(
        BlockedNodeReport(state, _find_price(inputs, state), said.explain_node(state))
        for state in inputs.snapshot.nodes
        if views.read_provider_id(state) not in candidates
    )
    return DisruptionReport(
        tuple(turns), standing, drift_waves.plan_waves(inputs), _find_commands(choices) is not None
    )


def find_turns(inputs: DisruptionInput, most: int = TURNS) -> tuple[DisruptionTurn, ...]:
    """What the loop's methods would start, turn after turn, and nothing of why other nodes are blocked."""
    return tuple(_run_turns(inputs, most, lambda text: None)[0])


def _run_turns(
    inputs: DisruptionInput, most: int, step: Callable[[str], None]
) -> tuple[list[DisruptionTurn], DisruptionInput, list[tuple[Method, DisruptionChoice]]]:
    """The turns, the world after them, and what the methods said of it."""
    turns: list[DisruptionTurn] = []
    world, choices = inputs, _ask_methods(inputs, step)
    while (found := _find_commands(choices)) is not None and len(turns) < most:
        method, choice = found
        turns.append(DisruptionTurn(method, tuple(choice.commands)))
        world = project_commands(world, choice.commands)
        step(f"turn {len(turns)}: {sum(len(turn.commands) for turn in turns)} commands so far")
        choices = _ask_methods(world, step)
    return turns, world, choices


def _ask_methods(
    inputs: DisruptionInput, step: Callable[[str], None]
) -> list[tuple[Method, DisruptionChoice]]:
    """What each method finds; those after the first with commands are not asked, as in the loop."""
    methods: tuple[tuple[Method, Callable[[DisruptionInput], DisruptionChoice]], ...] = order_methods(
        empty=choose_empty_nodes,
        static_drift=choose_static_drift_within_limits,
        drift=lambda world: choose_drift(world, at_once=None),
        multi_node=choose_multi_node,
        single_node=choose_single_node,
        split=choose_split,
        rebalance=choose_rebalance if inputs.returned_zones else None,
    )
    found: list[tuple[Method, DisruptionChoice]] = []
    for method, ask in methods:
        step(f"looking for nodes that are {method.reason.lower()}")
        found.append((method, ask(inputs)))
        if found[-1][1].commands:
            break
    return found


def _find_commands(
    choices: Sequence[tuple[Method, DisruptionChoice]],
) -> tuple[Method, DisruptionChoice] | None:
    return choices[-1] if choices and choices[-1][1].commands else None


def choose_static_drift_within_limits(inputs: DisruptionInput) -> DisruptionChoice:
    """Drift of static pools, as far as their limits leave room for a replacement beside each node."""
    choice = choose_static_drift(inputs)
    kept: list[Command] = []
    for name, pool in inputs.pools.items():
        mine = [command for command in choice.commands if command.candidates[0].pool.name == name]
        limit = pool.spec.limits.get(labels.NODES)
        claims = [s for s in inputs.snapshot.nodes if s.claim is not None and views.read_pool_name(s) == name]
        active = sum(1 for state in claims if not views.is_deleting(state))
        wanted = count_static_replacements(pool, len(mine), active, 0)
        room = wanted if limit is None else max(0, limit.value - len(claims))
        kept += mine[: min(wanted, room)]
    choice.commands = kept
    return choice


def _find_price(inputs: DisruptionInput, state: StateNode) -> float:
    known = views.read_labels(state)
    of = inputs.types.get(views.read_pool_name(state), {}).get(known.get(labels.INSTANCE_TYPE, ""))
    return find_running_price(known, of) or 0.0


class BlockedNodeExplainer:
    """What the methods said of the blocked nodes, and the words for what they pass over in silence."""

    def __init__(
        self,
        before: Mapping[str, StateNode],
        inputs: DisruptionInput,
        choices: Iterable[tuple[Method, DisruptionChoice]],
    ) -> None:
        self._before = before
        self._inputs = inputs
        self._now = inputs.snapshot.options.now
        self._states = {views.read_provider_id(state): state for state in inputs.snapshot.nodes}
        self._by_key: dict[str, list[tuple[Method, BlockedNode]]] = {}
        self._allowances: dict[str, Allowance] = {}
        self._taken: dict[str, Method] = {}
        for method, choice in choices:
            for stays in choice.blocked:
                self._by_key.setdefault(views.read_provider_id(stays.state), []).append((method, stays))
            for command in choice.commands:
                self._taken |= {candidate.key: method for candidate in command.candidates}

    def explain_node(self, state: StateNode) -> tuple[BlockedDetail, ...]:
        """Every reason once, the one that counts first."""
        key = views.read_provider_id(state)
        if key in self._taken:
            return (BlockedDetail(self._taken[key], BlockedReason.UNSAID, "it is removable in a later turn"),)
        now = self._states.get(key, state)
        drifted = now.claim is not None and conditions.is_true(now.claim, conditions.DRIFTED)
        reasons = [self.describe_block(method, stays) for method, stays in self._by_key.get(key, ())]
        reasons = [each for each in reasons if drifted or each.method != DRIFTED] or self._explain_silence(
            now
        )
        reasons.sort(key=lambda each: self._rank_detail(each, drifted))
        return tuple({(each.blocked_reason, each.why): each for each in reversed(reasons)}.values())[::-1]

    def _rank_detail(self, reason: BlockedDetail, drifted: bool) -> int:
        """A drifted node waits for drift; after that, what nearly happened says more than what could not."""
        chosen = (EMPTY, SINGLE, MANY, MULTI, REBALANCE)
        order = (DRIFTED, *chosen) if drifted else (*chosen, DRIFTED)
        return order.index(reason.method)

    def describe_block(self, method: Method, stays: BlockedNode) -> BlockedDetail:
        """The reason with its numbers: which budget, how many; which rate, until when."""
        pool, blocked_reason = views.read_pool_name(stays.state), stays.blocked_reason
        if blocked_reason is BlockedReason.UNSAID:
            blocked_reason = (
                BlockedReason.BUFFERED if stays.name in self._inputs.buffered else BlockedReason.DISABLED
            )
        why = stays.why
        if blocked_reason is BlockedReason.BUDGET:
            why = self._describe_budget(pool, method.reason)
        if blocked_reason is BlockedReason.RATE:
            why = self._describe_rate(pool)
        if (
            blocked_reason is BlockedReason.NOMINATED
            and not self._before[views.read_provider_id(stays.state)].nominated
        ):
            why = "pods of removed nodes would move to it"
        if blocked_reason is BlockedReason.PDB:
            why = f"{why}, for pod {stays.pod}"
        return BlockedDetail(method, blocked_reason, why, stays.pod)

    def _describe_budget(self, pool: str, reason: str) -> str:
        if reason not in self._allowances:
            self._allowances[reason] = compute_allowances(self._inputs, reason)
        found = self._allowances[reason]
        count, used = found.allowed.get(pool, 0), found.consumed.get(pool, 0)
        which = _describe_binding_budget(self._inputs, pool, reason, count)
        return (
            f"budget {which} allows {count} at once for {reason}, and {used} are being disrupted or not ready"
        )

    def _describe_rate(self, pool: str) -> str:
        known = self._inputs.pools[pool]
        rate = read_policy(known).rate
        assert rate is not None, "only a rate holds back for a rate"
        lately = [moment for moment in read_recent_moves(known) if self._now - moment < rate.per]
        left = (
            f"; the next may be removed in {_format_length(min(lately) + rate.per - self._now)}"
            if lately
            else ""
        )
        return f"rate {rate} of pool {pool} is used up{left}"

    def _explain_silence(self, state: StateNode) -> list[BlockedDetail]:
        """A candidate that no method had a word for."""
        found = evaluate_node(self._inputs, state, DisruptionClass.GRACEFUL)
        if isinstance(found, BlockedNode):
            return [self.describe_block(SINGLE, found)]
        if found.pool.static:
            return [
                BlockedDetail(
                    DRIFTED, BlockedReason.STATIC, f"pool {found.pool.name} is static and it has not drifted"
                )
            ]
        if state.claim is not None and not conditions.is_true(state.claim, conditions.CONSOLIDATABLE):
            return [BlockedDetail(SINGLE, BlockedReason.NOT_YET, self.describe_not_yet(found))]
        return [BlockedDetail(SINGLE, BlockedReason.NO_CHEAPER, "its pods cannot run anywhere cheaper")]

    def describe_not_yet(self, candidate: Candidate) -> str:
        """Why a node is not consolidatable yet, and for how long."""
        after = candidate.pool.spec.disruption.consolidate_after or "0s"
        left = compute_time_to_consolidatable(candidate, self._now)
        when = f", {_format_length(left)} to go" if left else ""
        return f"it is not consolidatable yet (consolidateAfter is {after}{when})"


def compute_time_to_consolidatable(candidate: Candidate, now: datetime) -> timedelta:
    """How long its pool's consolidateAfter still holds it; nothing when that is over or never ends."""
    claim = candidate.state.claim
    after = durations.parse_or_never(candidate.pool.spec.disruption.consolidate_after or "0s")
    ready = conditions.find_condition(claim, conditions.INITIALIZED) if claim else None
    since = (claim.status.last_pod_event_time if claim else None) or (
        ready.last_transition_time if ready else None
    )
    if after is None or since is None:
        return timedelta()
    return max(timedelta(), since + after - now)


def _describe_binding_budget(inputs: DisruptionInput, pool: str, reason: str, count: int) -> str:
    """The budget that allows so few, as it is written."""
    now = inputs.snapshot.options.now
    total = sum(1 for s in inputs.snapshot.nodes if s.claim is not None and views.read_pool_name(s) == pool)
    for budget in list_budgets(inputs.pools[pool]):
        try:
            mine = budget.reasons is None or reason in budget.reasons
            if mine and count_allowed(budget, now, total) <= count:
                reasons = f" for {'/'.join(budget.reasons)}" if budget.reasons else ""
                during = f" at {budget.schedule} for {budget.duration}" if budget.schedule else ""
                return f'"{budget.nodes}"{reasons}{during} of pool {pool}'
        except BadBudget as error:
            return f'"{budget.nodes}" of pool {pool}, which cannot be read ({error}),'
    return f"of pool {pool}"


def _format_length(length: timedelta) -> str:
    return durations.render_duration(timedelta(seconds=round(length.total_seconds())))
