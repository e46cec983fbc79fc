"""Can some nodes be removed, or replaced by one cheaper node? The verdict says how, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import Command, ConsolidationVerdict, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.robustness import is_replacement_robust
from dovetail.disruption.simulation.simulate import list_moving_pods, simulate_scheduling
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from dovetail.disruption.valuing import pin_sunk_node
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model.instance_types import InstanceType, check_min_values, find_cheapest_offering
from dovetail.scheduling.model.plan import Plan, PlannedNode, describe_purchase
from dovetail.scheduling.model.requirements import Requirements, Values

__all__ = [
    "LEFT_OVER",
    "SPOT_FLEXIBILITY",
    "build_command",
    "compute_consolidation",
    "filter_by_price",
    "keep_types",
    "list_cheaper_types",
]

SPOT_FLEXIBILITY = 15
NO_CHEAPER = "Can't replace with a cheaper node"
LEFT_OVER = "Can't be sure of a saving: the scheduler may leave a pod over, and one more node would cost more"


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
    command = build_command(inputs, candidates, method, plan, found)
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
    node = pin_sunk_node(inputs, node)
    spot_only = all(c.capacity_type == labels.SPOT for c in candidates)
    allowed = node.requirements[labels.CAPACITY_TYPE]
    if spot_only and labels.SPOT in allowed:
        if not inputs.spot_to_spot:
            return "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        node = _pin_to_spot(node)
    options = list_cheaper_types(inputs, node, bound)
    if not isinstance(options, str) and spot_only and labels.SPOT in allowed and len(candidates) == 1:
        options = _check_spot_flexibility(node.requirements, options)
    if isinstance(options, str):
        return options
    if labels.SPOT in allowed and labels.ON_DEMAND in allowed and not spot_only:
        node, options = _prefer_spot(inputs, node, options)
        verdict = check_min_values(options, node.requirements)
        if not verdict.met:
            return f"Filtering by price: {verdict}"
    return keep_types(inputs, node, options)


def list_cheaper_types(inputs: DisruptionInput, node: PlannedNode, bound: float) -> list[InstanceType] | str:
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


def keep_types(inputs: DisruptionInput, node: PlannedNode, options: Sequence[InstanceType]) -> PlannedNode:
    """The node with these types alone, and the offering and price that follow."""
    undefined = inputs.snapshot.options.flavour.well_known
    best = find_cheapest_offering(options[0], node.requirements, undefined)
    assert best is not None, "only types with a usable offering are kept"
    return replace(
        node,
        instance_types=tuple(each.name for each in options),
        instance_type=options[0].name,
        **describe_purchase(best),
    )


def build_command(
    inputs: DisruptionInput, candidates: Sequence[Candidate], method: Method, plan: Plan, node: PlannedNode
) -> Command:
    return Command(method, tuple(candidates), (node,), plan, savings=sum_prices(candidates) - node.price)
