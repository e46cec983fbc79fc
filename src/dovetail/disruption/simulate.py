"""Where would their pods go, if these nodes went? The same engine answers that places pending pods."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import Command
from dovetail.disruption.room import counts_nobody
from dovetail.disruption.trial import Question, Trial, answered
from dovetail.scheduling import exact
from dovetail.scheduling import nodes as views
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["Outcome", "beside", "largest_first", "moved", "placed", "simulate", "without"]

SHOWN = 5


class Outcome:
    """A simulated world without some nodes."""

    def __init__(self, plan: Plan, pending: frozenset[str]) -> None:
        self.plan = plan
        self._pending = pending

    @property
    def problem(self) -> str:
        """Why it will not do: a pod that runs today would have no place. Those that wait may wait on."""
        lost = {pod: why for pod, why in self.plan.unschedulable.items() if pod not in self._pending}
        lost |= {pod: why for pod, why in self.plan.deferred.items() if pod not in self._pending}
        if not lost:
            return ""
        shown = [f"{pod} => {why}" for pod, why in sorted(lost.items())[:SHOWN]]
        more = f" and {len(lost) - SHOWN} other(s)" if len(lost) > SHOWN else ""
        return f"not all pods would schedule, {', '.join(shown)}{more}"


def simulate(
    scene: Scene,
    going: Sequence[Candidate],
    *,
    consolidating: bool,
    seen: list[Trial] | None = None,
    most: int | None = None,
) -> Outcome:
    """The plan for a world without these nodes. `seen` is given the trials that led to it.

    A plan with more new nodes than `most` is of no use to the caller and may be left unfinished.
    """
    if scene.snapshot.options.ignore_dra:
        plan = placed(scene, going, consolidating=consolidating, seen=seen, most=most).plan
    else:
        order = largest_first(scene.snapshot.moving)
        plan = exact.place(without(scene, going, consolidating=consolidating), order)
    waiting = frozenset(pod.full_name for pod in (*scene.snapshot.pods, *scene.snapshot.virtual))
    return Outcome(_not_on_unready(plan, scene), waiting)


def placed(
    scene: Scene,
    going: Sequence[Candidate],
    *,
    consolidating: bool,
    seen: list[Trial] | None = None,
    most: int | None = None,
) -> Trial:
    """The trial itself, for worlds where nobody asks for devices."""
    options = replace(scene.snapshot.options, consolidating=consolidating, reserved_fallback=True)
    question = Question([candidate.state for candidate in going], moved(scene, going), options)
    # Pods whose nodes are going anyway come first: what was bought for them is not taken by others.
    return answered(scene.ground, question, largest_first(scene.snapshot.moving), seen, most)


def beside(scene: Scene, command: Command) -> Scene | None:
    """What is left of the world for a command beside this one; None where they could not be told apart.

    The nodes that go and those that take their pods are out of it, and so is every pod this one cares for.
    """
    plan, snapshot = command.plan, scene.snapshot
    if plan is None or not scene.room.plain or any(node.reservations for node in plan.new_nodes):
        return None
    if not all(counts_nobody(pod) for candidate in command.candidates for pod in candidate.pods):
        return None
    taken = {candidate.name for candidate in command.candidates}
    taken |= {name for name, pods in plan.existing.items() if pods}
    staying = [(name, state) for name, state in scene.staying if name not in taken]
    rest = replace(snapshot, nodes=tuple(s for _, s in staying), pods=(), moving=(), virtual=())
    left = Scene(rest, scene.queued, scene.buffered, scene.spot_to_spot)
    # Where a cached property keeps its value: what is left of them need not be reckoned anew.
    left.__dict__["staying"] = staying
    left.__dict__["ground"] = ground = scene.ground.less(rest, taken)
    left.__dict__["room"] = dataclasses.replace(scene.room, ground=ground)
    return left


def largest_first(pods: Iterable[Pod]) -> list[str]:
    """The order in which pods are placed that have to move in any case."""

    def size(pod: Pod) -> tuple[int, int, str]:
        wanted = needs(pod)
        return -wanted.get("cpu", 0), -wanted.get("memory", 0), pod.full_name

    return [pod.full_name for pod in sorted(pods, key=size)]


def without(scene: Scene, going: Sequence[Candidate], *, consolidating: bool) -> Snapshot:
    """The snapshot with these nodes taken out and their pods looking for a place."""
    keys = {candidate.key for candidate in going}
    return replace(
        scene.snapshot,
        nodes=tuple(state for state in scene.snapshot.nodes if views.provider_id(state) not in keys),
        moving=(*scene.snapshot.moving, *moved(scene, going)),
        options=replace(scene.snapshot.options, consolidating=consolidating, reserved_fallback=True),
    )


def moved(scene: Scene, going: Iterable[Candidate]) -> tuple[Pod, ...]:
    """Their pods that would look for a place."""
    return tuple(pod for candidate in going for pod in _movers(scene, candidate))


def _movers(scene: Scene, candidate: Candidate) -> tuple[Pod, ...]:
    known = scene.movers.get(candidate.key)
    if known is None:
        now, movable = scene.snapshot.options.now, scene.limits.currently_reschedulable
        known = scene.movers[candidate.key] = tuple(pod for pod in candidate.pods if movable(pod, now))
    return known


def _not_on_unready(plan: Plan, scene: Scene) -> Plan:
    """A pod that moves by our choice must not wait for a node that may never come up."""
    unready = scene.ground.unready
    leaving = {pod.full_name for pod in scene.snapshot.moving}
    lost: dict[str, str] = {}
    for name, pods in plan.existing.items():
        if name in unready:
            claim = unready[name].claim
            where = f"nodeclaim/{claim.name if claim else name}, node/{name}"
            why = f"would schedule against uninitialized {where}"
            lost |= {pod: why for pod in pods if pod not in leaving}
    return replace(plan, unschedulable={**plan.unschedulable, **lost}) if lost else plan
