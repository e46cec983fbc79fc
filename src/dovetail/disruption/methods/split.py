"""Many for several: several cheaper nodes replace some nodes. Only where a pool asks for it.

A big node with little on it is split into small ones; small ones are merged into few. Which nodes come is
the packing engine's answer for all pods at once. A node that would come back just as it went stays
instead: the search is over sets of nodes none of which is bought again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.disruption import policy, valuing
from dovetail.disruption.bad_objects import report_bad_objects
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.choose import DisruptionChoice, ShouldStop, never_stop
from dovetail.disruption.command import MANY, Command, ConsolidationVerdict, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import ConsolidationSearch, start_consolidation
from dovetail.disruption.robustness import is_split_robust
from dovetail.disruption.simulation.simulate import SimulationResult, build_snapshot_without, list_moving_pods
from dovetail.disruption.verdict import LEFT_OVER, SPOT_FLEXIBILITY, filter_by_price
from dovetail.scheduling import solve
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import worst_launch_price
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.resources import compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = ["choose_split", "compute_split", "find_split"]

MOST_AT_ONCE = 100
MOST_NEW = 50
# Sums of prices that differ by less are the same.
DUST = 1e-9
NO_GAIN = "Can't replace with several cheaper nodes"


@report_bad_objects
def choose_split(inputs: DisruptionInput, should_stop: ShouldStop = never_stop) -> DisruptionChoice:
    """Some nodes for several cheaper ones, where their pools ask for that."""
    choice, ordered, known = start_consolidation(inputs)
    mine = [candidate for candidate in ordered if policy.read_policy(candidate.pool).many]
    within = [candidate for candidate in mine if choice.allowance.take(candidate.pool.name)]

    def accept(command: Command) -> bool:
        if (valuing.find_committed_block(inputs, command) or policy.find_policy_block(command)) is not None:
            return False
        return policy.score_command(command, known).approved

    found = find_split(inputs, within, MANY, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    if found.command is not None:
        choice.commands.append(found.command)
        choice.judged = [each for each in (policy.score_command(found.command, known),) if each.scores]
    return choice


def find_split(
    inputs: DisruptionInput,
    ordered: Sequence[Candidate],
    method: Method,
    accept: Callable[[Command], bool],
    should_stop: ShouldStop = never_stop,
) -> ConsolidationSearch:
    """The set whose exchange saves most, of those looked at: each alone, and the most wasteful together."""
    found = ConsolidationSearch()
    wasteful = sorted(ordered, key=lambda c: (-_compute_waste(inputs, c), c.name))
    for candidates in _list_candidate_sets(wasteful):
        if should_stop():
            found.timed_out = True
            break
        if _has_no_spot_option(inputs, candidates) or _is_too_well_used(inputs, candidates):
            continue
        command = _drop_returning_nodes(inputs, candidates, method)
        if command is None or not command.replacements:
            continue
        command = valuing.value_command(inputs, command)
        if accept(command) and (found.command is None or command.savings > found.command.savings + DUST):
            found.command, found.proposed = command, [command]
    return found


def _list_candidate_sets(wasteful: Sequence[Candidate]) -> Iterable[Sequence[Candidate]]:
    """Each by itself, and the first two, four, eight … of all."""
    for candidate in wasteful[:MOST_AT_ONCE]:
        yield (candidate,)
    size = 2
    while size < min(len(wasteful), MOST_AT_ONCE):
        yield wasteful[:size]
        size *= 2
    if len(wasteful) > 1:
        yield wasteful[:MOST_AT_ONCE]


def _compute_waste(inputs: DisruptionInput, candidate: Candidate) -> float:
    """What the node costs beyond what its pods would at the best rate on sale."""
    return candidate.price - _compute_worth(inputs, (candidate,))


def _compute_worth(inputs: DisruptionInput, candidates: Iterable[Candidate]) -> float:
    """The least that room for these pods could cost, by the resource that costs most; a floor."""
    total: Counter[str] = Counter()
    for candidate in candidates:
        for pod in candidate.pods:
            total.update(compute_nano_requests(pod))
    rates: dict[str, float] = {}
    for price, size in inputs.free_capacity.sold:
        for name in total:
            amount = size.get(name, 0)
            if amount > 0:
                rates[name] = min(rates.get(name, price / amount), price / amount)
    return max((amount * rates[name] for name, amount in total.items() if name in rates), default=0.0)


def _has_no_spot_option(inputs: DisruptionInput, candidates: Sequence[Candidate]) -> bool:
    """Spot nodes are replaced by spot nodes or not at all; one alone, only if many types are cheaper."""
    if not all(candidate.capacity_type == labels.SPOT for candidate in candidates):
        return False
    return not inputs.spot_to_spot or (
        len(candidates) == 1 and not _has_many_cheaper_types(inputs, candidates[0])
    )


def _has_many_cheaper_types(inputs: DisruptionInput, candidate: Candidate) -> bool:
    cheaper = (
        each
        for each in inputs.types[candidate.pool.name].values()
        if any(deal.available and deal.price < candidate.price for deal in each.offerings)
    )
    return len(tuple(islice(cheaper, SPOT_FLEXIBILITY))) == SPOT_FLEXIBILITY


def _is_too_well_used(inputs: DisruptionInput, candidates: Sequence[Candidate]) -> bool:
    """One node alone whose pods are worth its price, with no room for them elsewhere, cannot be bettered."""
    if len(candidates) > 1:
        return False
    now, keys = inputs.snapshot.options.now, {candidates[0].key}
    pods = [p for p in candidates[0].pods if inputs.limits.currently_reschedulable(p, now)]
    everyone = inputs.free_capacity.sum_unplaceable(pods, keys) is not None and all(
        inputs.free_capacity.sum_unplaceable((pod,), keys) is not None for pod in pods
    )
    return everyone and _compute_worth(inputs, candidates) >= candidates[0].price


def _drop_returning_nodes(
    inputs: DisruptionInput, candidates: Sequence[Candidate], method: Method
) -> Command | None:
    """The exchange for those of these nodes that would not be bought again, or none."""
    left = list(candidates)
    while left:
        command = compute_split(inputs, left, method).command
        if command is None:
            return None
        again = _find_rebought(command)
        if not again:
            return command
        left = [candidate for candidate in left if candidate.key not in again]
    return None


def _find_rebought(command: Command) -> frozenset[str]:
    """The nodes that need not be removed: for each new node one of the same kind that would be."""
    coming = Counter((n.pool, n.instance_type, n.zone, n.capacity_type) for n in command.replacements)
    kept: set[str] = set()
    # Those with most pods to move are the first to be kept.
    for candidate in sorted(command.candidates, key=lambda c: (-c.cost, c.name)):
        name = candidate.labels.get(labels.INSTANCE_TYPE, "")
        kind = (candidate.pool.name, name, candidate.zone, candidate.capacity_type)
        if coming[kind] > 0:
            coming[kind] -= 1
            kept.add(candidate.key)
    return frozenset(kept)


def compute_split(
    inputs: DisruptionInput, candidates: Sequence[Candidate], method: Method
) -> ConsolidationVerdict:
    """Can several nodes that together cost less replace these? If not, why not."""
    snapshot = _build_packing_snapshot(build_snapshot_without(inputs, candidates, consolidating=True))
    plan = solve.find_cheapest_plan(snapshot, solve.QUICK, cache=inputs.cache)
    cost = sum_prices(candidates)
    if not plan.unschedulable and plan.price >= cost - DUST:
        # The best plan may still be some percent cheaper, which is not worth moving everybody for.
        return ConsolidationVerdict(why=NO_GAIN)
    plan = solve.find_cheapest_plan(snapshot, cache=inputs.cache)
    waiting = frozenset(pod.full_name for pod in (*inputs.snapshot.pods, *inputs.snapshot.virtual))
    problem = SimulationResult(plan, waiting).problem or _explain_uninitialized(inputs, candidates, plan)
    if problem:
        return ConsolidationVerdict(why=problem)
    moving = _list_pod_names(candidates)
    if not all(moving.issuperset(node.pods) for node in plan.new_nodes):
        # Provisioning buys for those who wait; what it buys may change everything here.
        return ConsolidationVerdict(why="pending pods would share the new nodes")
    if len(plan.new_nodes) > MOST_NEW:
        return ConsolidationVerdict(why=f"Can't remove without creating {len(plan.new_nodes)} candidates")
    return _build_exchange(inputs, candidates, method, plan)


def _list_pod_names(candidates: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(pod.full_name for candidate in candidates for pod in candidate.pods)


def _explain_uninitialized(inputs: DisruptionInput, candidates: Sequence[Candidate], plan: Plan) -> str:
    """A pod that moves by our choice must not wait for a node that may never come up."""
    moving = _list_pod_names(candidates)
    taken = {name for name, pods in plan.existing.items() if moving.intersection(pods)}
    unready = sorted(
        taken.intersection(views.read_name(s) for s in inputs.snapshot.nodes if _is_uninitialized(s))
    )
    return f"would schedule against uninitialized node/{unready[0]}" if unready else ""


def _is_uninitialized(state: StateNode) -> bool:
    return views.is_managed(state) and not views.is_initialized(state)


def _build_exchange(
    inputs: DisruptionInput, candidates: Sequence[Candidate], method: Method, plan: Plan
) -> ConsolidationVerdict:
    """The new nodes as what they may be, so that all together cost less even if launches go badly."""
    cost = sum_prices(candidates)
    plan = replace(plan, new_nodes=tuple(valuing.pin_sunk_node(inputs, node) for node in plan.new_nodes))
    slack = cost - sum(_find_worst_price(inputs, node, node.instance_types[:1]) for node in plan.new_nodes)
    if slack <= DUST:
        return ConsolidationVerdict(why=NO_GAIN)
    bought: list[PlannedNode] = []
    for node in plan.new_nodes:
        # Each may cost what its cheapest type does at worst, and its part of what is saved.
        bound = _find_worst_price(inputs, node, node.instance_types[:1]) + slack / len(plan.new_nodes)
        found = filter_by_price(inputs, node, bound, candidates)
        if isinstance(found, str):
            return ConsolidationVerdict(why=found)
        bought.append(found)
    saved = cost - sum_prices(bought)
    if not is_split_robust(inputs, list_moving_pods(inputs, candidates), plan, bought, saved):
        return ConsolidationVerdict(why=LEFT_OVER)
    return ConsolidationVerdict(Command(method, tuple(candidates), tuple(bought), plan, saved))


def _find_worst_price(inputs: DisruptionInput, node: PlannedNode, names: Iterable[str]) -> float:
    undefined = inputs.snapshot.options.flavour.well_known
    known = inputs.types[node.pool]
    return max(worst_launch_price(known[name], node.requirements, undefined) for name in names)


def _build_packing_snapshot(snapshot: Snapshot) -> Snapshot:
    """The same world, where pods that move are packed all at once, as if they were new."""
    now, pools = snapshot.options.now, {pool.name: pool.nodepool for pool in snapshot.pools}
    # The packing knows nothing of nodes that may not take these pods: to it, they are full.
    nodes = tuple(
        _fill_node(state)
        if _is_uninitialized(state) or views.is_too_young(state, pools.get(views.read_pool_name(state)), now)
        else state
        for state in snapshot.nodes
    )
    options = replace(snapshot.options, consolidating=False)
    return replace(snapshot, nodes=nodes, options=options)


def _fill_node(state: StateNode) -> StateNode:
    node, claim = state.node, state.claim
    return replace(
        state,
        node=node and replace(node, status=replace(node.status, allocatable={})),
        claim=claim and replace(claim, status=replace(claim.status, allocatable={})),
    )
