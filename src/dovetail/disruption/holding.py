"""Does an exchange hold up once the scheduler has its say?

The scheduler does not know the plan: it puts each pod where most is free. Where pods are to go to a cheaper
new node and into gaps on running ones, small pods may take the room that large ones were to have, and then
one node more is bought than was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Scene
from dovetail.disruption.room import Room, counts_nobody
from dovetail.disruption.trial import Trial
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.resources import Nano, minus, nano, needs, plus
from dovetail.scheduling.unplanned import Seats, all_seated

__all__ = ["hold_up_together", "holds_up"]


def holds_up(
    trial: Trial, pods: Sequence[Pod], new: PlannedNode, kind: InstanceType, savings: float, room: Room
) -> bool:
    """Whether the pods find room wherever the scheduler puts them, or one node more would be paid for."""
    planned = set(new.pods)
    elsewhere = [pod for pod in pods if pod.full_name not in planned]
    if not elsewhere or _safe(pods, savings, room):
        return True
    return all_seated(pods, [_new(pods, new, kind), *_running(trial, elsewhere)])


def hold_up_together(
    scene: Scene, pods: Sequence[Pod], plan: Plan, new: Sequence[PlannedNode], savings: float
) -> bool:
    """The same of an exchange for several nodes: these are full by design, and a pod may be left over."""
    if not pods or _safe(pods, savings, scene.room):
        return True
    places = [_new(pods, node, scene.types[node.pool][node.instance_type]) for node in new]
    taking = {name for name, given in plan.existing.items() if given}
    for name, state in scene.staying:
        if name in taking:
            places.append(Seats(views.allocatable(state), views.available(state)))
    return all_seated(pods, places)


def _safe(pods: Sequence[Pod], savings: float, room: Room) -> bool:
    """Whether nothing is to be feared: pods with wishes go where they wish, or one node more is paid for."""
    spare = room.cheapest(max(map(needs, pods), key=lambda wanted: wanted.get("cpu", 0)))
    return spare is None or savings > spare or not all(map(_anywhere, pods))


def _anywhere(pod: Pod) -> bool:
    """Whether it has no wishes; one that has any is taken to go where the plan says."""
    return counts_nobody(pod) and not (pod.spec.node_selector or pod.spec.affinity)


def _new(pods: Iterable[Pod], node: PlannedNode, kind: InstanceType) -> Seats:
    others = nano(node.requests)
    for pod in pods:
        if pod.full_name in node.pods:
            others = minus(others, needs(pod))
    size = nano(kind.allocatable())
    return Seats(size, minus(size, others))


def _running(trial: Trial, pods: Iterable[Pod]) -> Iterable[Seats]:
    """The nodes some of the pods were to go to, as they are without them."""
    given: dict[str, Nano] = {}
    for pod in pods:
        name = trial.homes[pod.full_name][0].hostname
        given[name] = plus(given.get(name, {}), needs(pod))
    for node in trial.filled:
        if node.hostname in given:
            size = views.allocatable(trial.ground.states[node.index])
            yield Seats(size, plus(node.left, given[node.hostname]))
