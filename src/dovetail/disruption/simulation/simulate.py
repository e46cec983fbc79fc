"""Where would their pods be scheduled without these nodes? The scheduler of pending pods answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.disruption.candidates import (
    Candidate,
)
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput, SnapshotFacts
from dovetail.disruption.simulation.base_state import ignores_other_pods
from dovetail.disruption.simulation.what_if import WhatIfQuestion, WhatIfScheduler, answer_question
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.resources import compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.schedule import schedule_pods

__all__ = [
    "SimulationResult",
    "build_remaining_input",
    "build_snapshot_without",
    "list_moving_pods",
    "run_what_if",
    "simulate_scheduling",
    "sort_largest_first",
]

SHOWN = 5


class SimulationResult:
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


def simulate_scheduling(
    inputs: DisruptionInput,
    candidates: Sequence[Candidate],
    *,
    consolidating: bool,
    seen: list[WhatIfScheduler] | None = None,
    most: int | None = None,
) -> SimulationResult:
    """The plan for a world without these nodes. `seen` is given the what-ifs that led to it.

    A plan with more new nodes than `most` is of no use to the caller and may be left unfinished.
    """
    if inputs.snapshot.options.ignore_dra:
        plan = run_what_if(inputs, candidates, consolidating=consolidating, seen=seen, most=most).plan
    else:
        order = sort_largest_first(inputs.snapshot.moving)
        without = build_snapshot_without(inputs, candidates, consolidating=consolidating)
        plan = schedule_pods(without, order, cache=inputs.cache)
    waiting = frozenset(pod.full_name for pod in (*inputs.snapshot.pods, *inputs.snapshot.virtual))
    return SimulationResult(_reject_uninitialized(plan, inputs), waiting)


def run_what_if(
    inputs: DisruptionInput,
    candidates: Sequence[Candidate],
    *,
    consolidating: bool,
    seen: list[WhatIfScheduler] | None = None,
    most: int | None = None,
) -> WhatIfScheduler:
    """The what-if itself, for worlds where nobody asks for devices."""
    options = replace(inputs.snapshot.options, consolidating=consolidating, reserved_fallback=True)
    question = WhatIfQuestion(
        [candidate.state for candidate in candidates], list_moving_pods(inputs, candidates), options
    )
    # Pods whose nodes are going anyway come first: what was bought for them is not taken by others.
    return answer_question(
        inputs.base_state, question, sort_largest_first(inputs.snapshot.moving), seen, most
    )


def build_remaining_input(inputs: DisruptionInput, command: Command) -> DisruptionInput | None:
    """What is left of the world for a command beside this one; None where they could not be told apart.

    The nodes that go and those that take their pods are out of it, and so is every pod this one cares for.
    """
    plan, snapshot = command.plan, inputs.snapshot
    if plan is None or not inputs.free_capacity.plain or any(node.reservations for node in plan.new_nodes):
        return None
    if not all(ignores_other_pods(pod) for candidate in command.candidates for pod in candidate.pods):
        return None
    taken = {candidate.name for candidate in command.candidates}
    taken |= {name for name, pods in plan.existing.items() if pods}
    blocked = [(name, state) for name, state in inputs.remaining_nodes if name not in taken]
    rest = replace(snapshot, nodes=tuple(s for _, s in blocked), pods=(), moving=(), virtual=())
    base = inputs.base_state.without_nodes(rest, taken)
    free_capacity = dataclasses.replace(inputs.free_capacity, base_state=base)
    facts = SnapshotFacts(remaining_nodes=blocked, base_state=base, free_capacity=free_capacity)
    return inputs.with_snapshot(rest).with_facts(facts)


def sort_largest_first(pods: Iterable[Pod]) -> list[str]:
    """The order in which pods are placed that have to move in any case."""

    def size(pod: Pod) -> tuple[int, int, str]:
        wanted = compute_nano_requests(pod)
        return -wanted.get("cpu", 0), -wanted.get("memory", 0), pod.full_name

    return [pod.full_name for pod in sorted(pods, key=size)]


def build_snapshot_without(
    inputs: DisruptionInput, candidates: Sequence[Candidate], *, consolidating: bool
) -> Snapshot:
    """The snapshot with these nodes taken out and their pods looking for a place."""
    keys = {candidate.key for candidate in candidates}
    return replace(
        inputs.snapshot,
        nodes=tuple(state for state in inputs.snapshot.nodes if views.read_provider_id(state) not in keys),
        moving=(*inputs.snapshot.moving, *list_moving_pods(inputs, candidates)),
        options=replace(inputs.snapshot.options, consolidating=consolidating, reserved_fallback=True),
    )


def list_moving_pods(inputs: DisruptionInput, candidates: Iterable[Candidate]) -> tuple[Pod, ...]:
    """Their pods that would look for a place."""
    return tuple(pod for candidate in candidates for pod in _list_reschedulable_pods(inputs, candidate))


def _list_reschedulable_pods(inputs: DisruptionInput, candidate: Candidate) -> tuple[Pod, ...]:
    known = inputs.reschedulable_pods.get(candidate.key)
    if known is None:
        now, movable = inputs.snapshot.options.now, inputs.limits.currently_reschedulable
        known = inputs.reschedulable_pods[candidate.key] = tuple(
            pod for pod in candidate.pods if movable(pod, now)
        )
    return known


def _reject_uninitialized(plan: Plan, inputs: DisruptionInput) -> Plan:
    """A pod that moves by our choice must not wait for a node that may never come up."""
    unready = inputs.base_state.unready
    leaving = {pod.full_name for pod in inputs.snapshot.moving}
    lost: dict[str, str] = {}
    for name, pods in plan.existing.items():
        if name in unready:
            claim = unready[name].claim
            where = f"nodeclaim/{claim.name if claim else name}, node/{name}"
            why = f"would schedule against uninitialized {where}"
            lost |= {pod: why for pod in pods if pod not in leaving}
    return replace(plan, unschedulable={**plan.unschedulable, **lost}) if lost else plan
