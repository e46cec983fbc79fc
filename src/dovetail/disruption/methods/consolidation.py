"""Consolidation: fewer or cheaper nodes for the same pods, one node at a time or many for one.

Why is a node not consolidated? `find_candidates` says it of every method; here, in order: its NodePool or
its labels (`explain_unconsolidatable`), a rest (`start_consolidation`), the budget, the score, and the
verdict of the simulation (disruption/verdict.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf

from dovetail.api import conditions, labels
from dovetail.disruption import policy, valuing
from dovetail.disruption.bad_objects import report_bad_objects, skip_bad_objects
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import compute_allowances
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
from dovetail.disruption.choose import DisruptionChoice, ShouldStop, has_budget, never_stop, split_by_reason
from dovetail.disruption.command import MULTI, Command, ConsolidationVerdict, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.emptiness import is_consolidation_disabled
from dovetail.disruption.verdict import (
    NO_CHEAPER,
    build_command,
    compute_consolidation,
    keep_types,
    list_cheaper_types,
)
from dovetail.disruption.verdict_cache import recall_brief, recall_verdict
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import find_cheapest_offering
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import StateNode

__all__ = [
    "ConsolidationCandidates",
    "ConsolidationSearch",
    "choose_multi_node",
    "choose_single_node",
    "evaluate_nodes",
    "explain_unconsolidatable",
    "find_multi_node",
    "find_same_type_price",
    "interleave_pools",
    "judge_single_node",
    "list_single_node_queue",
    "start_consolidation",
]

CONSOLIDATION = "consolidation"
TOO_LITTLE = "the saving is too small for the disruption"
# Karpenter looks no further than this; here it is where the search begins.
AT_FIRST = 100


def explain_unconsolidatable(candidate: Candidate) -> str | None:
    """Why consolidation passes a candidate over: in words, in none, or (None) it does not."""
    if candidate.pool.static:
        return ""
    if candidate.instance_type is None:
        known = candidate.labels.get(labels.INSTANCE_TYPE, "")
        return f'Instance Type "{known}" not found'
    if not candidate.capacity_type:
        return f'Node does not have label "{labels.CAPACITY_TYPE}"'
    if not candidate.zone:
        return f'Node does not have label "{labels.ZONE}"'
    if is_consolidation_disabled(candidate.pool):
        return f'NodePool "{candidate.pool.name}" has consolidation disabled'
    if candidate.empty:
        return ""
    if candidate.pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return f'NodePool "{candidate.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
    claim = candidate.state.claim
    assert claim is not None
    return None if conditions.is_true(claim, conditions.CONSOLIDATABLE) else ""


@dataclass(frozen=True, slots=True)
class ConsolidationCandidates:
    """What consolidation has to choose from in one input, the best first, and the nodes blocked at once."""

    eligible: int
    blocked: tuple[BlockedNode, ...]
    ordered: tuple[Candidate, ...]
    totals: dict[str, policy.PoolTotals]


def start_consolidation(
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
    mine, more = split_by_reason(candidates, explain_unconsolidatable)
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


@report_bad_objects
def choose_single_node(
    inputs: DisruptionInput,
    should_stop: ShouldStop = never_stop,
    looked: Mapping[str, ConsolidationVerdict] | None = None,
) -> DisruptionChoice:
    """One node for a cheaper one or none. Pools that the last sweep did not reach come first.

    `looked` are verdicts that are there already, by key; with them, the search ends where they do.
    """
    choice, ordered, known = start_consolidation(inputs)
    queue = interleave_pools(ordered, inputs.unseen)
    unseen = {candidate.pool.name for candidate in queue}
    for candidate in queue:
        if looked is not None and candidate.key not in looked:
            choice.unseen = frozenset(unseen)
            break
        if should_stop():
            choice.timed_out, choice.unseen = True, frozenset(unseen)
            return choice
        unseen.discard(candidate.pool.name)
        if has_budget(candidate, choice) and _try_candidate(inputs, candidate, known, choice, looked):
            return choice
    return choice


@skip_bad_objects
def list_single_node_queue(inputs: DisruptionInput) -> list[str]:
    """The keys of all that `single` would look at, in its order."""
    return [candidate.key for candidate in interleave_pools(start_consolidation(inputs)[1], inputs.unseen)]


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
        recall_brief(inputs, found) if isinstance(found, Candidate) else ConsolidationVerdict(why=found.why)
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
        paid = valuing.explain_sunk(inputs, candidate) if verdict.why == NO_CHEAPER else None
        why, reason = (paid.why, paid.blocked_reason) if paid else (verdict.why, BlockedReason.NO_CHEAPER)
        choice.blocked.append(BlockedNode(candidate.state, why, UNCONSOLIDATABLE, reason))
        return False
    command = valuing.value_command(inputs, verdict.command)
    objection = valuing.find_committed_block(inputs, command) or policy.find_policy_block(command)
    if objection is not None:
        choice.blocked.append(
            BlockedNode(candidate.state, objection.why, UNCONSOLIDATABLE, objection.blocked_reason)
        )
        return False
    if command.replacements:
        choice.proposed.append(command)
    choice.judged.append(policy.score_command(command, known))
    if not choice.judged[-1].approved:
        choice.blocked.append(BlockedNode(candidate.state, TOO_LITTLE, QUIET, BlockedReason.UNBALANCED))
        return False
    choice.commands.append(command)
    return True


def judge_single_node(inputs: DisruptionInput, candidate: Candidate) -> tuple[Command | None, str]:
    """The command that `choose_single_node` would find for this candidate; without one, why not."""
    choice, _, known = start_consolidation(inputs)
    if _try_candidate(inputs, candidate, known, choice, None):
        return choice.commands[-1], ""
    return None, choice.blocked[-1].why


def interleave_pools(ordered: Sequence[Candidate], first: AbstractSet[str] = frozenset()) -> list[Candidate]:
    """The first of each pool, then the second of each, so that no pool waits for another."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    pools = sorted(by_pool.items(), key=lambda item: item[0] not in first)
    longest = max(map(len, by_pool.values()), default=0)
    return [found[i] for i in range(longest) for _, found in pools if i < len(found)]


@report_bad_objects
def choose_multi_node(inputs: DisruptionInput, should_stop: ShouldStop = never_stop) -> DisruptionChoice:
    """Many nodes for one or none."""
    choice, ordered, known = start_consolidation(inputs)
    within = [candidate for candidate in ordered if choice.allowance.take(candidate.pool.name)]
    if len(within) < 2:
        return choice

    def accept(command: Command) -> bool:
        if (valuing.find_committed_block(inputs, command) or policy.find_policy_block(command)) is not None:
            return False
        choice.judged.append(policy.score_command(command, known))
        return choice.judged[-1].approved

    found = find_multi_node(inputs, within, MULTI, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    # One word per search: about the move that is made, or else about the last that was turned down.
    last = [each for each in choice.judged if each.command is found.command] or choice.judged[-1:]
    choice.judged = [each for each in last if each.approved or each.scores]
    if found.command is not None:
        choice.commands.append(found.command)
    return choice


@dataclass
class ConsolidationSearch:
    """What a search came to: a command or none, the replacements it considered, and whether time ran out."""

    command: Command | None = None
    proposed: list[Command] = field(default_factory=list)
    timed_out: bool = False


def find_multi_node(
    inputs: DisruptionInput,
    ordered: Sequence[Candidate],
    method: Method,
    accept: Callable[[Command], bool],
    should_stop: ShouldStop = never_stop,
) -> ConsolidationSearch:
    """The longest prefix that one node or none can replace, by bisection; of many, by steps beyond."""
    found = ConsolidationSearch()

    def could_go(count: int) -> bool:
        return _can_remove(inputs, ordered[:count], method, accept, found)

    count = AT_FIRST
    if len(ordered) < count or should_stop() or not could_go(count):
        _bisect_prefix(min(count, len(ordered)), could_go, found, should_stop)
        return found
    # All of those can be removed at once: perhaps twice as many can, or something between.
    too_many = len(ordered) + 1
    while count + 1 < too_many and not should_stop():
        unbounded = too_many > len(ordered)
        if not unbounded and too_many - count <= count // 4:
            break
        more = min(2 * count, len(ordered)) if unbounded else (count + too_many) // 2
        count, too_many = (more, too_many) if could_go(more) else (count, more)
    return found


def _bisect_prefix(
    most: int, could_go: Callable[[int], bool], found: ConsolidationSearch, should_stop: ShouldStop
) -> None:
    low, high = 1, most - 1
    while low <= high:
        if should_stop():
            found.timed_out = True
            return
        middle = (low + high) // 2
        if could_go(middle + 1):
            low = middle + 1
        else:
            high = middle - 1


def _can_remove(
    inputs: DisruptionInput,
    candidates: Sequence[Candidate],
    method: Method,
    accept: Callable[[Command], bool],
    found: ConsolidationSearch,
) -> bool:
    """Whether all of these can be removed; the command is kept in `found` if so."""
    command = compute_consolidation(inputs, candidates, method).command
    if command is not None and command.replacements:
        found.proposed.append(command)
    command = _filter_out_same_type(inputs, command) if command is not None else None
    command = valuing.value_command(inputs, command) if command is not None else None
    if command is None or not accept(command):
        return False
    found.command = command
    return True


def _filter_out_same_type(inputs: DisruptionInput, command: Command) -> Command | None:
    if not command.replacements:
        return command
    node = command.replacements[0]
    bound = find_same_type_price(inputs, command.candidates, node)
    if bound == inf:
        return command
    kept = list_cheaper_types(inputs, node, bound)
    if isinstance(kept, str) or command.plan is None:
        return None
    return build_command(
        inputs, command.candidates, command.method, command.plan, keep_types(inputs, node, kept)
    )


def find_same_type_price(
    inputs: DisruptionInput, candidates: Sequence[Candidate], node: PlannedNode
) -> float:
    """The price a replacement must beat: deleting three and launching one of them again is no gain."""
    undefined = inputs.snapshot.options.flavour.well_known
    lowest: dict[str, float] = {}
    for candidate in candidates:
        if candidate.instance_type is None:
            continue
        own = Requirements.from_labels(candidate.labels)
        offering = find_cheapest_offering(candidate.instance_type, own, undefined)
        price = offering.price if offering is not None else 0.0
        name = candidate.instance_type.name
        lowest[name] = min(lowest.get(name, inf), price)
    return min((price for name, price in lowest.items() if name in node.instance_types), default=inf)
