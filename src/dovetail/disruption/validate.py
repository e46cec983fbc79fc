"""Is it still right? A while after the decision, the same questions are asked of the world as it is now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.disruption import policy, valuing
from dovetail.disruption.bad_objects import skip_bad_objects
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import (
    Candidate,
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.command import MANY, REBALANCE, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import split
from dovetail.disruption.methods.consolidation import explain_unconsolidatable
from dovetail.disruption.methods.emptiness import build_delete_command, explain_not_empty, split_awaited
from dovetail.disruption.methods.rebalance import find_move_to_zone
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.state_node import read_provider_id

__all__ = [
    "BUDGET",
    "CHURN",
    "SCHEDULING",
    "InvalidCommand",
    "validate_candidates",
    "validate_command",
    "validate_empty_nodes",
]

BUDGET, SCHEDULING, CHURN, UNKNOWN = "budget", "scheduling", "churn", "unknown"


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A command that no longer holds: in which respect, and for how many candidates."""

    kind: str
    count: int

    @property
    def told(self) -> str:
        """The kind as people hear of it."""
        return self.kind if self.kind in (BUDGET, SCHEDULING, CHURN) else UNKNOWN


@skip_bad_objects
def validate_command(inputs: DisruptionInput, command: Command) -> Command | InvalidCommand:
    """A consolidation as a whole: every node still a candidate, within budget, its pods still placeable."""
    now = validate_candidates(inputs, command)
    if isinstance(now, InvalidCommand):
        return now
    if command.method == MANY:
        return _validate_split(inputs, command, now)
    if command.method == REBALANCE:
        return _validate_rebalance(inputs, command, now)
    outcome = simulate_scheduling(inputs, now, consolidating=True)
    if outcome.problem or not _matches_replacements(command, outcome.plan.new_nodes):
        return InvalidCommand(SCHEDULING, len(now))
    again = Command(command.method, now, command.replacements, outcome.plan, command.savings)
    again = valuing.value_command(inputs, again)
    # What it saves by the bill may be gone by now.
    return (
        again if valuing.find_committed_block(inputs, again) is None else InvalidCommand(SCHEDULING, len(now))
    )


def _validate_split(
    inputs: DisruptionInput, command: Command, now: tuple[Candidate, ...]
) -> Command | InvalidCommand:
    """Several nodes are bought only as they would be bought now, and only while they save as much."""
    found = split.compute_split(inputs, now, MANY).command
    found = valuing.value_command(inputs, found) if found is not None else None
    if found is None or found.savings < command.savings - split.DUST:
        return InvalidCommand(SCHEDULING, len(now))
    return (
        found if _matches_replacements(command, found.replacements) else InvalidCommand(SCHEDULING, len(now))
    )


def _validate_rebalance(
    inputs: DisruptionInput, command: Command, now: tuple[Candidate, ...]
) -> Command | InvalidCommand:
    """A move towards balance is made only while zones are uneven, and for the same machines."""
    found = find_move_to_zone(inputs, now, command.replacements[0].zone)
    return (
        found
        if found is not None and _matches_replacements(command, found.replacements)
        else InvalidCommand(SCHEDULING, len(now))
    )


@skip_bad_objects
def validate_candidates(inputs: DisruptionInput, command: Command) -> tuple[Candidate, ...] | InvalidCommand:
    """Every node of the command as it is now, all still to be had and within budget; or what is wrong."""
    count = len(command.candidates)
    now = _refresh_candidates(inputs, command, lambda candidate: _explain_exclusion(inputs, candidate))
    if len(now) != count:
        return InvalidCommand(CHURN, count)
    allowance = compute_allowances(inputs, command.method.reason)
    if any(c.state.nominated or not allowance.take(c.pool.name) for c in now):
        return InvalidCommand(BUDGET, count)
    return tuple(now)


def _explain_exclusion(inputs: DisruptionInput, candidate: Candidate) -> str | None:
    rested = policy.find_rest_block(candidate, inputs.snapshot.options.now)
    return explain_unconsolidatable(candidate) if rested is None else rested.why


def _matches_replacements(command: Command, planned: Sequence[PlannedNode]) -> bool:
    """What would be bought now is what was going to be bought."""
    if len(planned) != len(command.replacements):
        return False
    now = {name for node in planned for name in node.instance_types}
    return all(set(node.instance_types) <= now for node in command.replacements)


@skip_bad_objects
def validate_empty_nodes(
    inputs: DisruptionInput, command: Command
) -> tuple[Command | None, InvalidCommand | None]:
    """Empty nodes one by one: those that are no longer empty, or over budget, are left out."""
    now, _ = split_awaited(
        inputs, _refresh_candidates(inputs, command, lambda candidate: explain_not_empty(inputs, candidate))
    )
    if not now:
        return None, InvalidCommand(CHURN, len(command.candidates))
    allowance = compute_allowances(inputs, command.method.reason)
    now, _, _ = valuing.split_committed(inputs, now)
    kept = [c for c in now if not c.state.nominated and allowance.take(c.pool.name)]
    dropped = InvalidCommand(BUDGET, len(now) - len(kept)) if len(kept) < len(now) else None
    return (valuing.value_command(inputs, build_delete_command(kept)) if kept else None), dropped


def _refresh_candidates(
    inputs: DisruptionInput, command: Command, why_not: Callable[[Candidate], str | None]
) -> list[Candidate]:
    """The command's nodes that its method could choose still; being nominated is asked separately."""
    nominated = {read_provider_id(state) for state in inputs.snapshot.nodes if state.nominated}
    calm = tuple(replace(state, nominated=False) for state in inputs.snapshot.nodes)
    seen = replace(inputs.snapshot, nodes=calm)
    # A zone may have been shifted away since: its nodes are not for the taking any more.
    now = inputs.with_snapshot(seen)
    wanted = {candidate.name for candidate in command.candidates}
    return [
        dataclasses.replace(c, state=replace(c.state, nominated=c.key in nominated))
        for c in find_candidates(now, DisruptionClass.GRACEFUL)[0]
        if c.name in wanted and why_not(c) is None
    ]
