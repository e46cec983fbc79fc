"""Where would their pods go, if these nodes went? The same engine answers that places pending pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import Command
from dovetail.disruption.room import counts_nobody
from dovetail.scheduling import exact
from dovetail.scheduling import nodes as views
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import Snapshot, StateNode

__all__ = ["Outcome", "beside", "simulate", "without"]

SHOWN = 5
Placer = Callable[[Snapshot, Sequence[str]], Plan]


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
    scene: Scene, going: Iterable[Candidate], *, consolidating: bool, place: Placer = exact.place
) -> Outcome:
    """The plan for a world without these nodes."""
    snapshot = without(scene, going, consolidating=consolidating)
    # Pods whose nodes are going anyway come first: what was bought for them is not taken by others.
    plan = place(snapshot, _largest_first(scene.snapshot.moving))
    waiting = frozenset(pod.full_name for pod in (*scene.snapshot.pods, *scene.snapshot.virtual))
    return Outcome(_not_on_unready(snapshot, plan, scene), waiting)


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
    nodes = tuple(s for s in snapshot.nodes if views.name(s) not in taken and not views.deleting(s))
    rest = replace(snapshot, nodes=nodes, pods=(), moving=(), virtual=())
    left = Scene(rest, scene.queued, scene.buffered, scene.spot_to_spot)
    # Where a cached property keeps its value: what is left of the room need not be reckoned anew.
    left.__dict__["room"] = scene.room.less(taken)
    return left


def _largest_first(pods: Iterable[Pod]) -> list[str]:
    def size(pod: Pod) -> tuple[int, int, str]:
        wanted = needs(pod)
        return -wanted.get("cpu", 0), -wanted.get("memory", 0), pod.full_name

    return [pod.full_name for pod in sorted(pods, key=size)]


def without(scene: Scene, going: Iterable[Candidate], *, consolidating: bool) -> Snapshot:
    """The snapshot with these nodes taken out and their pods looking for a place."""
    chosen = list(going)
    keys = {candidate.key for candidate in chosen}
    now = scene.snapshot.options.now
    moving = tuple(
        pod
        for candidate in chosen
        for pod in candidate.pods
        if scene.limits.currently_reschedulable(pod, now)
    )
    options = replace(scene.snapshot.options, consolidating=consolidating, reserved_fallback=True)
    return replace(
        scene.snapshot,
        nodes=_in_the_picture(scene, keys, moving),
        moving=(*scene.snapshot.moving, *moving),
        options=options,
    )


def _in_the_picture(scene: Scene, keys: AbstractSet[str], moving: Sequence[Pod]) -> tuple[StateNode, ...]:
    """The nodes that stay; those that could take none of the pods are left out where nobody counts them."""
    snapshot = scene.snapshot
    pods = (*snapshot.pods, *snapshot.moving, *snapshot.virtual, *moving)
    if scene.room.plain and all(map(counts_nobody, pods)):
        return tuple(scene.room.useful(pods, keys))
    return tuple(state for state in snapshot.nodes if views.provider_id(state) not in keys)


def _not_on_unready(snapshot: Snapshot, plan: Plan, scene: Scene) -> Plan:
    """A pod that moves by our choice must not wait for a node that may never come up."""
    unready = {
        views.name(state): state
        for state in snapshot.nodes
        if views.managed(state) and not views.initialized(state)
    }
    leaving = {pod.full_name for pod in scene.snapshot.moving}
    lost: dict[str, str] = {}
    for name, pods in plan.existing.items():
        if name in unready:
            claim = unready[name].claim
            where = f"nodeclaim/{claim.name if claim else name}, node/{name}"
            why = f"would schedule against uninitialized {where}"
            lost |= {pod: why for pod in pods if pod not in leaving}
    return replace(plan, unschedulable={**plan.unschedulable, **lost}) if lost else plan
