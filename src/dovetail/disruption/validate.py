"""Is it still right? A while after the decision, the same questions are asked of the world as it is now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.disruption import churn, manyfold
from dovetail.disruption.allowance import allowances
from dovetail.disruption.candidates import Candidate, Class, Scene, candidates
from dovetail.disruption.command import MANY, Command
from dovetail.disruption.consolidation import why_unconsolidatable
from dovetail.disruption.containment import contained
from dovetail.disruption.emptiness import deleting, unawaited, why_not_empty
from dovetail.disruption.rebalance import REBALANCE, toward
from dovetail.disruption.simulate import simulate
from dovetail.scheduling.nodes import provider_id
from dovetail.scheduling.plan import PlannedNode

__all__ = ["BUDGET", "CHURN", "SCHEDULING", "Invalid", "still_candidates", "still_empty", "still_right"]

BUDGET, SCHEDULING, CHURN, UNKNOWN = "budget", "scheduling", "churn", "unknown"


@dataclass(frozen=True, slots=True)
class Invalid:
    """A command that no longer holds: in which respect, and for how many candidates."""

    kind: str
    count: int

    @property
    def told(self) -> str:
        """The kind as people hear of it."""
        return self.kind if self.kind in (BUDGET, SCHEDULING, CHURN) else UNKNOWN


@contained
def still_right(scene: Scene, command: Command) -> Command | Invalid:
    """A consolidation as a whole: every node still a candidate, within budget, its pods still placeable."""
    now = still_candidates(scene, command)
    if isinstance(now, Invalid):
        return now
    if command.method == MANY:
        return _still_several(scene, command, now)
    if command.method == REBALANCE:
        return _still_uneven(scene, command, now)
    outcome = simulate(scene, now, consolidating=True)
    if outcome.problem or not _fits(command, outcome.plan.new_nodes):
        return Invalid(SCHEDULING, len(now))
    return Command(command.method, now, command.replacements, outcome.plan, command.savings)


def _still_several(scene: Scene, command: Command, now: tuple[Candidate, ...]) -> Command | Invalid:
    """Several nodes are bought only as they would be bought now, and only while they save as much."""
    found = manyfold.consider(scene, now, MANY).command
    if found is None or found.savings < command.savings - manyfold.DUST:
        return Invalid(SCHEDULING, len(now))
    return found if _fits(command, found.replacements) else Invalid(SCHEDULING, len(now))


def _still_uneven(scene: Scene, command: Command, now: tuple[Candidate, ...]) -> Command | Invalid:
    """A move towards balance is made only while zones are uneven, and for the same machines."""
    found = toward(scene, now, command.replacements[0].zone)
    return (
        found if found is not None and _fits(command, found.replacements) else Invalid(SCHEDULING, len(now))
    )


@contained
def still_candidates(scene: Scene, command: Command) -> tuple[Candidate, ...] | Invalid:
    """Every node of the command as it is now, all still to be had and within budget; or what is wrong."""
    count = len(command.candidates)
    now = _again(scene, command, lambda candidate: _why_not(scene, candidate))
    if len(now) != count:
        return Invalid(CHURN, count)
    allowance = allowances(scene, command.method.reason)
    if any(c.state.nominated or not allowance.take(c.pool.name) for c in now):
        return Invalid(BUDGET, count)
    return tuple(now)


def _why_not(scene: Scene, candidate: Candidate) -> str | None:
    rested = churn.resting(candidate, scene.snapshot.options.now)
    return why_unconsolidatable(candidate) if rested is None else rested.why


def _fits(command: Command, planned: Sequence[PlannedNode]) -> bool:
    """What would be bought now is what was going to be bought."""
    if len(planned) != len(command.replacements):
        return False
    now = {name for node in planned for name in node.instance_types}
    return all(set(node.instance_types) <= now for node in command.replacements)


@contained
def still_empty(scene: Scene, command: Command) -> tuple[Command | None, Invalid | None]:
    """Empty nodes one by one: those that are no longer empty, or over budget, are left out."""
    now, _ = unawaited(scene, _again(scene, command, lambda candidate: why_not_empty(scene, candidate)))
    if not now:
        return None, Invalid(CHURN, len(command.candidates))
    allowance = allowances(scene, command.method.reason)
    kept = [c for c in now if not c.state.nominated and allowance.take(c.pool.name)]
    dropped = Invalid(BUDGET, len(now) - len(kept)) if len(kept) < len(now) else None
    return (deleting(kept) if kept else None), dropped


def _again(scene: Scene, command: Command, why_not: Callable[[Candidate], str | None]) -> list[Candidate]:
    """The command's nodes that its method could choose still; being nominated is asked separately."""
    nominated = {provider_id(state) for state in scene.snapshot.nodes if state.nominated}
    calm = tuple(replace(state, nominated=False) for state in scene.snapshot.nodes)
    seen = replace(scene.snapshot, nodes=calm)
    # A zone may have been shifted away since: its nodes are not for the taking any more.
    now = Scene(seen, scene.queued, scene.buffered, scene.spot_to_spot, scene.shifted)
    wanted = {candidate.name for candidate in command.candidates}
    return [
        dataclasses.replace(c, state=replace(c.state, nominated=c.key in nominated))
        for c in candidates(now, Class.GRACEFUL)[0]
        if c.name in wanted and why_not(c) is None
    ]
