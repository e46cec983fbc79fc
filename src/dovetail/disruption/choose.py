"""The ordered methods; the first with something to do wins.

emptiness ─► drift of static pools ─► drift ─► many for one ─► one at a time ─► many for several
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dovetail.api.bad_items import SetAside
from dovetail.disruption import policy
from dovetail.disruption.bad_objects import report_bad_objects, skip_bad_objects
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import Allowance, compute_allowances
from dovetail.disruption.candidates import (
    QUIET,
    UNCONSOLIDATABLE,
    BlockedNode,
    Candidate,
    DisruptionClass,
    evaluate_node,
    find_candidates,
    sort_by_ratio,
)
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, Command, ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import consolidation, drift_waves, split
from dovetail.disruption.methods.drift import build_static_commands, sort_by_drift
from dovetail.disruption.methods.emptiness import build_empty_command, explain_not_empty, split_awaited
from dovetail.disruption.projection import ProjectedInputs, exclude_candidates
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.disruption.verdict_cache import recall_verdict
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode

__all__ = [
    "DisruptionChoice",
    "choose_drift",
    "choose_empty_nodes",
    "choose_multi_node",
    "choose_single_node",
    "choose_split",
    "choose_static_drift",
    "evaluate_nodes",
    "list_single_node_queue",
]

ShouldStop = Callable[[], bool]
CONSOLIDATION = "consolidation"
TOO_LITTLE = "the saving is too small for the disruption"


def never_stop() -> bool:
    """There is all the time in the world."""
    return False


@dataclass
class DisruptionChoice:
    """What one method found: commands, how many nodes it could choose from, and why the others are blocked.

    `proposed` are the replacements that were considered, `judged` the moves that were scored, and
    `unseen` the pools the search did not reach before its time was over.
    """

    allowance: Allowance
    commands: list[Command] = field(default_factory=list)
    eligible: int = 0
    blocked: list[BlockedNode] = field(default_factory=list)
    timed_out: bool = False
    proposed: list[Command] = field(default_factory=list)
    judged: list[policy.BalanceResult] = field(default_factory=list)
    unseen: frozenset[str] = frozenset()
    set_aside: tuple[SetAside, ...] = ()

    @property
    def constrained(self) -> bool:
        """A budget turned someone away: what was not found may be found once it allows more."""
        return self.allowance.constrained

    @property
    def settled(self) -> bool:
        """Nothing was found, and nothing will be until the world changes."""
        return not self.commands and not self.constrained and not self.timed_out


@report_bad_objects
def choose_empty_nodes(inputs: DisruptionInput) -> DisruptionChoice:
    """All empty nodes, as one command."""
    candidates, blocked = find_candidates(inputs, DisruptionClass.GRACEFUL)
    mine, more = _split_by_reason(candidates, lambda candidate: explain_not_empty(inputs, candidate))
    allowance = compute_allowances(inputs, EMPTY.reason)
    free, awaited = split_awaited(inputs, mine)
    command, turned_away = build_empty_command(free, allowance)
    return DisruptionChoice(
        allowance, [command] if command else [], len(mine), [*blocked, *more, *awaited, *turned_away]
    )


def _split_by_reason(
    candidates: Sequence[Candidate], why_not: Callable[[Candidate], str | None]
) -> tuple[list[Candidate], list[BlockedNode]]:
    """Those a method may choose from, and those it says something about."""
    mine: list[Candidate] = []
    blocked: list[BlockedNode] = []
    for candidate in candidates:
        why = why_not(candidate)
        if why is None:
            mine.append(candidate)
        elif why:
            blocked.append(BlockedNode(candidate.state, why, UNCONSOLIDATABLE))
    return mine, blocked


@report_bad_objects
def choose_static_drift(inputs: DisruptionInput) -> DisruptionChoice:
    """Drifted nodes of static pools, one for one, as many as budgets allow; where pods go is not asked."""
    candidates, blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)
    order = [candidate for candidate in sort_by_drift(candidates) if candidate.pool.static]
    choice = DisruptionChoice(
        compute_allowances(inputs, DRIFTED.reason), eligible=len(order), blocked=blocked
    )
    drift_waves.limit_drift(inputs, choice.allowance)
    choice.commands = build_static_commands(order, choice.allowance)
    return choice


@report_bad_objects
def choose_drift(
    inputs: DisruptionInput, at_once: int | None = 1, should_stop: ShouldStop = never_stop
) -> DisruptionChoice:
    """The longest drifted nodes that may be removed, each with as many replacements as its pods need.

    Without a number, all that budgets let go now. Each sees those before it as done, and no pod moves to a
    node that goes in the same turn, unless there is nowhere else.
    """
    candidates, blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)
    order = [candidate for candidate in sort_by_drift(candidates) if not candidate.pool.static]
    empty = [candidate for candidate in order if not candidate.pods]
    _, awaited = split_awaited(inputs, empty, for_buffers=False)
    wanted = {each.name for each in awaited}
    order, blocked = [each for each in order if each.name not in wanted], [*blocked, *awaited]
    if at_once is not None:
        return _choose_wave(inputs, inputs, order, blocked, at_once, should_stop)
    due = _list_due(inputs, order)
    together = _choose_wave(
        inputs, exclude_candidates(inputs, due) if due else inputs, order, blocked, None, should_stop
    )
    if len(together.commands) == len(due) or should_stop():
        return together
    choice = _choose_wave(inputs, inputs, order, blocked, None, should_stop)
    return choice if len(choice.commands) > len(together.commands) else together


def _list_due(inputs: DisruptionInput, order: Sequence[Candidate]) -> list[Candidate]:
    """The drifted nodes that budgets let be removed now."""
    allowance = _compute_drift_allowance(inputs)
    return [candidate for candidate in order if allowance.take(candidate.pool.name)]


def _compute_drift_allowance(inputs: DisruptionInput) -> Allowance:
    allowance = compute_allowances(inputs, DRIFTED.reason)
    drift_waves.limit_drift(inputs, allowance)
    return allowance


def _choose_wave(
    inputs: DisruptionInput,
    seen: DisruptionInput,
    order: Sequence[Candidate],
    blocked: Sequence[BlockedNode],
    at_once: int | None,
    should_stop: ShouldStop,
) -> DisruptionChoice:
    """Commands for the first of these, as many as budgets allow, in a cluster seen so."""
    choice = DisruptionChoice(_compute_drift_allowance(inputs), eligible=len(order), blocked=[*blocked])
    worlds = ProjectedInputs(seen)
    wanted: set[str] = set()  # nodes that pods of an earlier command go to
    for candidate in order:
        if len(choice.commands) == at_once or (choice.commands and should_stop()):
            break
        if candidate.name in wanted or not _has_budget(candidate, choice):
            continue
        world = worlds.find_input_for(candidate)
        if world is None:
            break
        outcome = simulate_scheduling(world, (candidate,), consolidating=False)
        if outcome.problem:
            if not choice.commands:
                choice.blocked.append(
                    BlockedNode(candidate.state, outcome.problem, blocked_reason=BlockedReason.NO_CHEAPER)
                )
            continue
        own = {pod.full_name for pod in candidate.pods}
        # What pods of others need is bought for them by the provisioner, and not a second time here.
        new = tuple(node for node in outcome.plan.new_nodes if not own.isdisjoint(node.pods))
        saved = candidate.price - sum_prices(new)
        choice.commands.append(Command(DRIFTED, (candidate,), new, outcome.plan, saved))
        choice.allowance.take(candidate.pool.name)
        wanted |= {name for name, pods in outcome.plan.existing.items() if pods}
        worlds.add_command(choice.commands[-1])
    return choice


def _has_budget(candidate: Candidate, choice: DisruptionChoice) -> bool:
    """Whether its pool's budget has something left; it is not spent here, as one command is one node."""
    if choice.allowance.count_left(candidate.pool.name) > 0:
        return True
    choice.allowance.constrained = True
    _block_over_budget(candidate, choice)
    return False


def _block_over_budget(candidate: Candidate, choice: DisruptionChoice) -> None:
    blocked_reason, why = choice.allowance.explain_block(candidate.pool.name)
    choice.blocked.append(BlockedNode(candidate.state, why, QUIET, blocked_reason))


@report_bad_objects
def choose_multi_node(inputs: DisruptionInput, should_stop: ShouldStop = never_stop) -> DisruptionChoice:
    """Many nodes for one or none."""
    choice, ordered, known = _start_consolidation(inputs)
    within = [candidate for candidate in ordered if choice.allowance.take(candidate.pool.name)]
    if len(within) < 2:
        return choice

    def accept(command: Command) -> bool:
        if policy.find_policy_block(command) is not None:
            return False
        choice.judged.append(policy.score_command(command, known))
        return choice.judged[-1].approved

    found = consolidation.find_multi_node(inputs, within, MULTI, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    # One word per search: about the move that is made, or else about the last that was turned down.
    last = [each for each in choice.judged if each.command is found.command] or choice.judged[-1:]
    choice.judged = [each for each in last if each.approved or each.scores]
    if found.command is not None:
        choice.commands.append(found.command)
    return choice


@report_bad_objects
def choose_single_node(
    inputs: DisruptionInput,
    first: AbstractSet[str] = frozenset(),
    should_stop: ShouldStop = never_stop,
    looked: Mapping[str, ConsolidationVerdict] | None = None,
) -> DisruptionChoice:
    """One node for a cheaper one or none. Pools named in `first` are looked at before the others.

    `looked` are verdicts that are there already, by key; with them, the search ends where they do.
    """
    choice, ordered, known = _start_consolidation(inputs)
    queue = interleave_pools(ordered, first)
    unseen = {candidate.pool.name for candidate in queue}
    for candidate in queue:
        if looked is not None and candidate.key not in looked:
            choice.unseen = frozenset(unseen)
            break
        if should_stop():
            choice.timed_out, choice.unseen = True, frozenset(unseen)
            return choice
        unseen.discard(candidate.pool.name)
        if _has_budget(candidate, choice) and _try_candidate(inputs, candidate, known, choice, looked):
            return choice
    return choice


@skip_bad_objects
def list_single_node_queue(inputs: DisruptionInput, first: AbstractSet[str] = frozenset()) -> list[str]:
    """The keys of all that `single` would look at, in its order."""
    return [candidate.key for candidate in interleave_pools(_start_consolidation(inputs)[1], first)]


@skip_bad_objects
def evaluate_nodes(inputs: DisruptionInput, keys: Sequence[str]) -> list[ConsolidationVerdict]:
    """A verdict on each, in brief; what was known the last time and still holds is not worked out again."""
    states = {views.read_provider_id(state): state for state in inputs.snapshot.nodes}
    return [_evaluate_state(inputs, states.get(key)) for key in keys]


def _evaluate_state(inputs: DisruptionInput, state: StateNode | None) -> ConsolidationVerdict:
    if state is None:
        return ConsolidationVerdict(why="the node is set aside")
    found = evaluate_node(inputs, state, DisruptionClass.GRACEFUL)
    return (
        recall_verdict(inputs, found).brief
        if isinstance(found, Candidate)
        else ConsolidationVerdict(why=found.why)
    )


def _try_candidate(
    inputs: DisruptionInput,
    candidate: Candidate,
    known: Mapping[str, policy.PoolTotals],
    choice: DisruptionChoice,
    looked: Mapping[str, ConsolidationVerdict] | None,
) -> bool:
    if not policy.can_approve(candidate, known):
        choice.blocked.append(BlockedNode(candidate.state, TOO_LITTLE, QUIET, BlockedReason.UNBALANCED))
        return False
    verdict = (
        recall_verdict(inputs, candidate)
        if looked is None
        else looked[candidate.key].with_candidate(candidate)
    )
    if verdict.command is None:
        choice.blocked.append(
            BlockedNode(candidate.state, verdict.why, UNCONSOLIDATABLE, BlockedReason.NO_CHEAPER)
        )
        return False
    objection = policy.find_policy_block(verdict.command)
    if objection is not None:
        choice.blocked.append(
            BlockedNode(candidate.state, objection.why, UNCONSOLIDATABLE, objection.blocked_reason)
        )
        return False
    if verdict.command.replacements:
        choice.proposed.append(verdict.command)
    choice.judged.append(policy.score_command(verdict.command, known))
    if not choice.judged[-1].approved:
        choice.blocked.append(BlockedNode(candidate.state, TOO_LITTLE, QUIET, BlockedReason.UNBALANCED))
        return False
    choice.commands.append(verdict.command)
    return True


@report_bad_objects
def choose_split(inputs: DisruptionInput, should_stop: ShouldStop = never_stop) -> DisruptionChoice:
    """Some nodes for several cheaper ones, where their pools ask for that."""
    choice, ordered, known = _start_consolidation(inputs)
    mine = [candidate for candidate in ordered if policy.read_policy(candidate.pool).many]
    within = [candidate for candidate in mine if choice.allowance.take(candidate.pool.name)]

    def accept(command: Command) -> bool:
        return policy.find_policy_block(command) is None and policy.score_command(command, known).approved

    found = split.find_split(inputs, within, MANY, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    if found.command is not None:
        choice.commands.append(found.command)
        choice.judged = [each for each in (policy.score_command(found.command, known),) if each.scores]
    return choice


@dataclass(frozen=True, slots=True)
class ConsolidationCandidates:
    """What consolidation has to choose from in one input, the best first, and the nodes blocked at once."""

    eligible: int
    blocked: tuple[BlockedNode, ...]
    ordered: tuple[Candidate, ...]
    totals: dict[str, policy.PoolTotals]


def _start_consolidation(
    inputs: DisruptionInput,
) -> tuple[DisruptionChoice, tuple[Candidate, ...], dict[str, policy.PoolTotals]]:
    """Sifted once for all that is asked about an input: a sweep comes back for each of its parts."""
    found: ConsolidationCandidates | None = inputs.notes.get(CONSOLIDATION)
    if found is None:
        found = inputs.notes[CONSOLIDATION] = _find_consolidation_candidates(inputs)
    choice = DisruptionChoice(
        compute_allowances(inputs, MULTI.reason), eligible=found.eligible, blocked=[*found.blocked]
    )
    return choice, found.ordered, found.totals


def _find_consolidation_candidates(inputs: DisruptionInput) -> ConsolidationCandidates:
    candidates, blocked = find_candidates(inputs, DisruptionClass.GRACEFUL)
    mine, more = _split_by_reason(candidates, consolidation.explain_unconsolidatable)
    now = inputs.snapshot.options.now
    rested, resting = [], []
    for candidate in sort_by_ratio(mine):
        objection = policy.find_rest_block(candidate, now)
        if objection is None:
            rested.append(candidate)
        else:
            resting.append(
                BlockedNode(candidate.state, objection.why, UNCONSOLIDATABLE, objection.blocked_reason)
            )
    return ConsolidationCandidates(
        len(mine), (*blocked, *more, *resting), tuple(rested), policy.compute_totals(inputs, candidates)
    )


def interleave_pools(ordered: Sequence[Candidate], first: AbstractSet[str] = frozenset()) -> list[Candidate]:
    """The first of each pool, then the second of each, so that no pool waits for another."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    pools = sorted(by_pool.items(), key=lambda item: item[0] not in first)
    longest = max(map(len, by_pool.values()), default=0)
    return [found[i] for i in range(longest) for _, found in pools if i < len(found)]
