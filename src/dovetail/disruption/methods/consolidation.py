"""Fewer or cheaper nodes for the same pods: one node at a time, or many for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.disruption.candidates import (
    Candidate,
)
from dovetail.disruption.command import Command, ConsolidationVerdict, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.emptiness import is_consolidation_disabled
from dovetail.disruption.robustness import is_replacement_robust
from dovetail.disruption.simulation.simulate import list_moving_pods, simulate_scheduling
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model.instance_types import InstanceType, check_min_values, find_cheapest_offering
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.requirements import Requirements, Values

__all__ = [
    "LEFT_OVER",
    "SPOT_FLEXIBILITY",
    "ConsolidationSearch",
    "compute_consolidation",
    "explain_unconsolidatable",
    "filter_by_price",
    "find_multi_node",
    "find_same_type_price",
]

SPOT_FLEXIBILITY = 15
# Karpenter looks no further than this; here it is where the search begins.
AT_FIRST = 100
NO_CHEAPER = "Can't replace with a cheaper node"
LEFT_OVER = "Can't be sure of a saving: the scheduler may leave a pod over, and one more node would cost more"


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


def compute_consolidation(
    inputs: DisruptionInput,
    candidates: Sequence[Candidate],
    method: Method,
    seen: list[WhatIfScheduler] | None = None,
) -> ConsolidationVerdict:
    """Can these be removed, or replaced by one cheaper node? If not, why not. `seen` gets the simulations."""
    if _cannot_save(inputs, candidates):
        return ConsolidationVerdict(why=NO_CHEAPER)
    simulations: list[WhatIfScheduler] = [] if seen is None else seen
    # How many nodes it would take is told of single ones only.
    outcome = simulate_scheduling(
        inputs, candidates, consolidating=True, seen=simulations, most=1 if len(candidates) > 1 else None
    )
    if outcome.problem:
        return ConsolidationVerdict(why=outcome.problem)
    new = outcome.plan.new_nodes
    if not new:
        return ConsolidationVerdict(
            Command(method, tuple(candidates), plan=outcome.plan, savings=sum_prices(candidates))
        )
    if len(new) > 1:
        return ConsolidationVerdict(why=f"Can't remove without creating {len(new)} candidates")
    return _build_replacement(inputs, candidates, method, outcome.plan, simulations)


def _cannot_save(inputs: DisruptionInput, candidates: Sequence[Candidate]) -> bool:
    """Pods that fit on no other node must share the one new node, and none that holds them is cheaper."""
    if inputs.free_capacity.limited:
        # Then the pods may have no place at all, and people should hear that instead.
        return False
    homeless = inputs.free_capacity.sum_unplaceable(
        list_moving_pods(inputs, candidates), {candidate.key for candidate in candidates}
    )
    if homeless is None:
        return False
    cheapest = inputs.free_capacity.find_cheapest_price(homeless)
    return cheapest is not None and cheapest >= sum_prices(candidates)


def _build_replacement(
    inputs: DisruptionInput,
    candidates: Sequence[Candidate],
    method: Method,
    plan: Plan,
    simulations: Iterable[WhatIfScheduler],
) -> ConsolidationVerdict:
    found = filter_by_price(inputs, plan.new_nodes[0], sum_prices(candidates), candidates)
    if isinstance(found, str):
        return ConsolidationVerdict(why=found)
    command = _build_command(inputs, candidates, method, plan, found)
    kind, pods = inputs.types[found.pool][found.instance_type], list_moving_pods(inputs, candidates)
    for what_if in simulations:
        if what_if.plan is plan and not is_replacement_robust(
            what_if, pods, found, kind, command.savings, inputs.free_capacity
        ):
            return ConsolidationVerdict(why=LEFT_OVER)
    return ConsolidationVerdict(command)


def filter_by_price(
    inputs: DisruptionInput, node: PlannedNode, bound: float, candidates: Sequence[Candidate]
) -> PlannedNode | str:
    """The node as what costs less than the bound, in exchange for these; or why it cannot be had."""
    spot_only = all(c.capacity_type == labels.SPOT for c in candidates)
    allowed = node.requirements[labels.CAPACITY_TYPE]
    if spot_only and labels.SPOT in allowed:
        if not inputs.spot_to_spot:
            return "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        node = _pin_to_spot(node)
    options = _list_cheaper_types(inputs, node, bound)
    if not isinstance(options, str) and spot_only and labels.SPOT in allowed and len(candidates) == 1:
        options = _check_spot_flexibility(node.requirements, options)
    if isinstance(options, str):
        return options
    if labels.SPOT in allowed and labels.ON_DEMAND in allowed and not spot_only:
        node, options = _prefer_spot(inputs, node, options)
        verdict = check_min_values(options, node.requirements)
        if not verdict.met:
            return f"Filtering by price: {verdict}"
    return _keep_types(inputs, node, options)


def _list_cheaper_types(inputs: DisruptionInput, node: PlannedNode, bound: float) -> list[InstanceType] | str:
    """The node's types that would cost less than the bound even if a launch goes badly, cheapest first."""
    prices = inputs.build_price_lookup(node)
    listed = [(prices(name), name) for name in node.instance_types if name in inputs.types[node.pool]]
    ordered = sorted((each for each in listed if each[0].least < inf), key=lambda each: each[0].least)
    kept = [inputs.types[node.pool][name] for price, name in ordered if price.worst < bound]
    if not kept:
        return NO_CHEAPER
    verdict = check_min_values(kept, node.requirements)
    return kept if verdict.met else f"Filtering by price: {verdict}"


def _check_spot_flexibility(
    requirements: Requirements, options: list[InstanceType]
) -> list[InstanceType] | str:
    """One spot node for another only if many types would do: otherwise it would go on for ever."""
    if len(options) < SPOT_FLEXIBILITY:
        return (
            f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the "
            f"current candidate to consolidate, got {len(options)}"
        )
    needed = check_min_values(options, requirements).needed if requirements.has_min_values else 0
    return options[: max(SPOT_FLEXIBILITY, needed)]


def _prefer_spot(
    inputs: DisruptionInput, node: PlannedNode, options: list[InstanceType]
) -> tuple[PlannedNode, list[InstanceType]]:
    """Types were kept for their spot price, so if there is no spot to be had the launch must fail.

    Types that are never sold as spot were kept for the price they have: alone, they need no pin.
    """
    pinned, undefined = _pin_to_spot(node), inputs.snapshot.options.flavour.well_known
    sold = [o for o in options if find_cheapest_offering(o, pinned.requirements, undefined) is not None]
    return (pinned, sold) if sold else (node, options)


def _pin_to_spot(node: PlannedNode) -> PlannedNode:
    spot = Values(frozenset((labels.SPOT,)))
    return replace(
        node,
        requirements=node.requirements.replace_key(labels.CAPACITY_TYPE, spot),
        capacity_types=(labels.SPOT,),
    )


def _keep_types(inputs: DisruptionInput, node: PlannedNode, options: Sequence[InstanceType]) -> PlannedNode:
    """The node with these types alone, and the offering and price that follow."""
    undefined = inputs.snapshot.options.flavour.well_known
    best = find_cheapest_offering(options[0], node.requirements, undefined)
    assert best is not None, "only types with a usable offering are kept"
    return replace(
        node,
        instance_types=tuple(each.name for each in options),
        instance_type=options[0].name,
        zone=best.zone,
        capacity_type=best.capacity_type,
        price=best.price,
    )


def _build_command(
    inputs: DisruptionInput, candidates: Sequence[Candidate], method: Method, plan: Plan, node: PlannedNode
) -> Command:
    return Command(method, tuple(candidates), (node,), plan, savings=sum_prices(candidates) - node.price)


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
    should_stop: Callable[[], bool] = lambda: False,
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
    most: int, could_go: Callable[[int], bool], found: ConsolidationSearch, should_stop: Callable[[], bool]
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
    kept = _list_cheaper_types(inputs, node, bound)
    if isinstance(kept, str) or command.plan is None:
        return None
    return _build_command(
        inputs, command.candidates, command.method, command.plan, _keep_types(inputs, node, kept)
    )
