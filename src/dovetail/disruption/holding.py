"""Does an exchange hold up once the scheduler has its say?

The scheduler does not know the plan: it puts each pod where most is free. Where pods are to go to a cheaper
new node and into gaps on running ones, small pods may take the room that large ones were to have, and then
one node more is bought than was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Scene
from dovetail.disruption.room import Room, counts_nobody
from dovetail.disruption.trial import Trial
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.counting import waited
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.resources import Nano, fits, minus, nano, needs, plus

__all__ = ["hold_up_together", "holds_up"]


@dataclass(slots=True)
class _Place:
    """A node that takes pods: how large it is, and what is left of it."""

    size: Nano
    left: Nano

    def taking(self, wanted: Nano) -> float:
        """How free it would be with one more pod, as the scheduler scores it."""
        left = minus(self.left, wanted)
        return sum(left[name] / self.size[name] for name in ("cpu", "memory") if self.size.get(name))


def holds_up(
    trial: Trial, pods: Sequence[Pod], new: PlannedNode, kind: InstanceType, savings: float, room: Room
) -> bool:
    """Whether the pods find room wherever the scheduler puts them, or one node more would be paid for."""
    planned = set(new.pods)
    elsewhere = [pod for pod in pods if pod.full_name not in planned]
    if not elsewhere or not all(map(_anywhere, pods)):
        return True
    spare = room.cheapest(max(map(needs, pods), key=lambda wanted: wanted.get("cpu", 0)))
    if spare is None or savings > spare:
        return True
    return _all_seated(pods, [_new(pods, new, kind), *_running(trial, elsewhere)])


def hold_up_together(
    scene: Scene, pods: Sequence[Pod], plan: Plan, new: Sequence[PlannedNode], savings: float
) -> bool:
    """The same of an exchange for several nodes: these are full by design, and a pod may be left over."""
    if not pods or not all(map(_anywhere, pods)):
        return True
    spare = scene.room.cheapest(max(map(needs, pods), key=lambda wanted: wanted.get("cpu", 0)))
    if spare is None or savings > spare:
        return True
    places = [_new(pods, node, scene.types[node.pool][node.instance_type]) for node in new]
    taking = {name for name, given in plan.existing.items() if given}
    for name, state in scene.staying:
        if name in taking:
            places.append(_Place(views.allocatable(state), views.available(state)))
    return _all_seated(pods, places)


def _anywhere(pod: Pod) -> bool:
    """Whether it has no wishes; one that has any is taken to go where the plan says."""
    return counts_nobody(pod) and not (pod.spec.node_selector or pod.spec.affinity)


def _new(pods: Iterable[Pod], node: PlannedNode, kind: InstanceType) -> _Place:
    others = nano(node.requests)
    for pod in pods:
        if pod.full_name in node.pods:
            others = minus(others, needs(pod))
    size = nano(kind.allocatable())
    return _Place(size, minus(size, others))


def _running(trial: Trial, pods: Iterable[Pod]) -> Iterable[_Place]:
    """The nodes some of the pods were to go to, as they are without them."""
    given: dict[str, Nano] = {}
    for pod in pods:
        name = trial.homes[pod.full_name][0].hostname
        given[name] = plus(given.get(name, {}), needs(pod))
    for node in trial.filled:
        if node.hostname in given:
            size = views.allocatable(trial.ground.states[node.index])
            yield _Place(size, plus(node.left, given[node.hostname]))


def _all_seated(pods: Iterable[Pod], places: Sequence[_Place]) -> bool:
    for pod in sorted(pods, key=waited):
        wanted = needs(pod)
        able = [place for place in places if fits(wanted, place.left)]
        if not able:
            return False
        best = max(able, key=lambda place: place.taking(wanted))
        best.left = minus(best.left, wanted)
    return True
