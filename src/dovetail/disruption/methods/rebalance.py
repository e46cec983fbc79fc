"""Back towards balance after a zone was away: one node at a time, for a like one in the zone that is back.

A move takes a node from a zone with at least two more of its pool's nodes than the zone that is back, so
that each brings zones nearer to each other and they come to an end. It never costs more than before, and
asks of budgets, limits and pods what every consolidation asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, nextafter

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Taint
from dovetail.disruption import policy
from dovetail.disruption.bad_objects import report_bad_objects
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import (
    Candidate,
    DisruptionClass,
    find_candidates,
    sort_by_ratio,
)
from dovetail.disruption.choose import DisruptionChoice, ShouldStop, never_stop
from dovetail.disruption.command import REBALANCE, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import explain_unconsolidatable
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.disruption.valuing import value_command
from dovetail.disruption.verdict import filter_by_price
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Values

__all__ = ["choose_rebalance", "find_move_to_zone"]

# How many more nodes a zone must have: a move of one then leaves it no worse off than the other.
UNEVEN = 2
ANOTHER_ZONE = Taint(key="dovetail.sh/another-zone", effect="NoSchedule")


@report_bad_objects
def choose_rebalance(inputs: DisruptionInput, should_stop: ShouldStop = never_stop) -> DisruptionChoice:
    """The first move towards balance that can be made, if there is one."""
    candidates = [
        each
        for each in find_candidates(inputs, DisruptionClass.GRACEFUL)[0]
        if explain_unconsolidatable(each) is None
    ]
    choice = DisruptionChoice(compute_allowances(inputs, REBALANCE.reason), eligible=len(candidates))
    counts = _count_nodes_by_zone(inputs)
    for zone in sorted(inputs.returned_zones - inputs.excluded_zones):
        seen: DisruptionInput | None = None
        for candidate in _list_overfull(candidates, zone, counts, inputs):
            if should_stop():
                choice.timed_out = True
                return choice
            if choice.allowance.count_left(candidate.pool.name) <= 0:
                choice.allowance.constrained = True
                continue
            seen = seen or _restrict_to_zone(inputs, zone)
            command = _build_move(inputs, seen, candidate, zone)
            if command is not None:
                choice.commands.append(command)
                return choice
    return choice


def find_move_to_zone(inputs: DisruptionInput, candidates: Sequence[Candidate], zone: str) -> Command | None:
    """The same move as it would be made now; None when it would not."""
    (candidate,) = candidates
    counts = _count_nodes_by_zone(inputs)
    if zone in inputs.excluded_zones or not _list_overfull([candidate], zone, counts, inputs):
        return None
    return _build_move(inputs, _restrict_to_zone(inputs, zone), candidate, zone)


def _count_nodes_by_zone(inputs: DisruptionInput) -> Counter[tuple[str, str]]:
    """Nodes by pool and zone, without those that are on their way out."""
    known = (state for state in inputs.snapshot.nodes if not views.is_deleting(state))
    return Counter(
        (views.read_pool_name(state), views.read_labels(state).get(labels.ZONE, "")) for state in known
    )


def _list_overfull(
    candidates: Sequence[Candidate], zone: str, counts: Counter[tuple[str, str]], inputs: DisruptionInput
) -> list[Candidate]:
    """Nodes of zones that have too many more than this one; of the fullest zone first."""
    now = inputs.snapshot.options.now
    found = [
        each
        for each in sort_by_ratio(candidates)
        if each.zone != zone
        and counts[each.pool.name, each.zone] - counts[each.pool.name, zone] >= UNEVEN
        and policy.find_rest_block(each, now) is None
    ]
    return sorted(found, key=lambda each: -counts[each.pool.name, each.zone])


def _build_move(
    inputs: DisruptionInput, seen: DisruptionInput, candidate: Candidate, zone: str
) -> Command | None:
    """The candidate for one node in the zone, which may cost as much as it and no more."""
    outcome = simulate_scheduling(seen, (candidate,), consolidating=True, most=1)
    if outcome.problem or len(outcome.plan.new_nodes) != 1:
        return None
    pinned = _pin_to_zone(outcome.plan.new_nodes[0], zone)
    node = filter_by_price(seen, pinned, nextafter(candidate.price, inf), (candidate,))
    if isinstance(node, str):
        return None
    command = Command(REBALANCE, (candidate,), (node,), outcome.plan, savings=candidate.price - node.price)
    return value_command(inputs, command)


def _pin_to_zone(node: PlannedNode, zone: str) -> PlannedNode:
    only = Values(frozenset((zone,)))
    return replace(node, requirements=node.requirements.replace_key(labels.ZONE, only), zone=zone)


def _restrict_to_zone(inputs: DisruptionInput, zone: str) -> DisruptionInput:
    """The world in which pods that move can go to this zone alone."""
    snapshot = inputs.snapshot
    nodes = tuple(
        replace(
            state,
            node=replace(
                state.node, spec=replace(state.node.spec, taints=(*state.node.spec.taints, ANOTHER_ZONE))
            ),
        )
        if state.node is not None and state.node.labels.get(labels.ZONE) != zone
        else state
        for state in snapshot.nodes
    )
    catalogs = tuple(tuple(_offer_only_in(each, zone) for each in types) for types in snapshot.catalogs)
    return inputs.with_snapshot(replace(snapshot, nodes=nodes, catalogs=catalogs))


def _offer_only_in(each: InstanceType, zone: str) -> InstanceType:
    offerings = tuple(
        replace(offering, available=offering.available and offering.zone == zone)
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)
