"""Does an exchange hold up once the scheduler has its say?

The scheduler does not know the plan: it puts each pod where most is free. Where pods are to go to a cheaper
new node and into gaps on running ones, small pods may take the room that large ones were to have, and then
one node more is bought than was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api.pod import Pod
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.simulation.base_state import FreeCapacity, ignores_other_pods
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_nano_requests,
    convert_to_nano,
    subtract_resources,
)
from dovetail.scheduling.postprocess import NodeRoom, can_place_by_default

__all__ = ["is_replacement_robust", "is_split_robust"]


def is_replacement_robust(
    what_if: WhatIfScheduler,
    pods: Sequence[Pod],
    new: PlannedNode,
    kind: InstanceType,
    savings: float,
    free_capacity: FreeCapacity,
) -> bool:
    """Whether the pods find room wherever the scheduler puts them, or one node more would be paid for."""
    planned = set(new.pods)
    elsewhere = [pod for pod in pods if pod.full_name not in planned]
    if not elsewhere or _is_safe(pods, savings, free_capacity):
        return True
    return can_place_by_default(
        pods, [_build_new_node_room(pods, new, kind), *_list_existing_node_rooms(what_if, elsewhere)]
    )


def is_split_robust(
    inputs: DisruptionInput, pods: Sequence[Pod], plan: Plan, new: Sequence[PlannedNode], savings: float
) -> bool:
    """The same of an exchange for several nodes: these are full by design, and a pod may be left over."""
    if not pods or _is_safe(pods, savings, inputs.free_capacity):
        return True
    places = [_build_new_node_room(pods, node, inputs.types[node.pool][node.instance_type]) for node in new]
    taking = {name for name, given in plan.existing.items() if given}
    for name, state in inputs.remaining_nodes:
        if name in taking:
            places.append(NodeRoom(views.read_allocatable(state), views.compute_available(state)))
    return can_place_by_default(pods, places)


def _is_safe(pods: Sequence[Pod], savings: float, free_capacity: FreeCapacity) -> bool:
    """Whether nothing is to be feared: pods with wishes go where they wish, or one node more is paid for."""
    spare = free_capacity.find_cheapest_price(
        max(map(compute_nano_requests, pods), key=lambda wanted: wanted.get("cpu", 0))
    )
    return spare is None or savings > spare or not all(map(_can_go_anywhere, pods))


def _can_go_anywhere(pod: Pod) -> bool:
    """Whether it has no wishes; one that has any is taken to go where the plan says."""
    return ignores_other_pods(pod) and not (pod.spec.node_selector or pod.spec.affinity)


def _build_new_node_room(pods: Iterable[Pod], node: PlannedNode, kind: InstanceType) -> NodeRoom:
    others = convert_to_nano(node.requests)
    for pod in pods:
        if pod.full_name in node.pods:
            others = subtract_resources(others, compute_nano_requests(pod))
    size = convert_to_nano(kind.allocatable())
    return NodeRoom(size, subtract_resources(size, others))


def _list_existing_node_rooms(what_if: WhatIfScheduler, pods: Iterable[Pod]) -> Iterable[NodeRoom]:
    """The nodes some of the pods were to go to, as they are without them."""
    given: dict[str, Nano] = {}
    for pod in pods:
        name = what_if.placements[pod.full_name][0].hostname
        given[name] = add_resources(given.get(name, {}), compute_nano_requests(pod))
    for node in what_if.filled:
        if node.hostname in given:
            size = views.read_allocatable(what_if.base_state.states[node.index])
            yield NodeRoom(size, add_resources(node.left, given[node.hostname]))
