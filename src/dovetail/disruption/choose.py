"""The ordered methods; the first with something to do wins.

    emptiness ─► drift ─► many nodes at once ─► one node at a time

Drift of static pools, which replaces one for one without asking where pods go, comes before drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.disruption import balanced, consolidation
from dovetail.disruption.allowance import Allowance, allowances
from dovetail.disruption.candidates import Candidate, Class, Scene, Stays, by_ratio, candidates
from dovetail.disruption.command import DRIFTED, EMPTY, MULTI, SINGLE, Command
from dovetail.disruption.drift import drift_order
from dovetail.disruption.emptiness import emptiness
from dovetail.disruption.simulate import Outcome, simulate
from dovetail.scheduling.plan import PlannedNode

__all__ = ["Choice", "choose", "drifted", "empty", "underutilized"]

Look = Callable[[Scene, Sequence[Candidate]], Outcome]


@dataclass
class Choice:
    """What one method found: commands, how many nodes it looked at, and why the others stay."""

    commands: list[Command] = field(default_factory=list)
    eligible: int = 0
    staying: list[Stays] = field(default_factory=list)
    constrained: bool = False
    timed_out: bool = False


def choose(scene: Scene, tracked: Mapping[str, float] | None = None) -> Choice:
    """The first method's choice that has a command; else the last one's, for its reasons."""
    choice = Choice()
    for method in (empty, drifted, lambda s: underutilized(s, tracked or {})):
        choice = method(scene)
        if choice.commands:
            return choice
    return choice


def empty(scene: Scene) -> Choice:
    """All empty nodes, as one command."""
    going, staying = candidates(scene, Class.GRACEFUL)
    allowance = allowances(scene, EMPTY.reason)
    command, more = emptiness(scene, going, allowance)
    eligible = len(command.candidates) if command else 0
    return Choice([command] if command else [], eligible, [*staying, *more], allowance.constrained)


def drifted(scene: Scene) -> Choice:
    """Every drifted node that budgets let go, each with as many replacements as its pods need."""
    going, staying = candidates(scene, Class.EVENTUAL)
    allowance = allowances(scene, DRIFTED.reason)
    order = [candidate for candidate in drift_order(going) if not candidate.pool.static]
    choice = Choice(eligible=len(order), staying=staying)
    for candidate in order:
        if allowance.left(candidate.pool.name) <= 0:
            choice.constrained = True
            choice.staying.append(Stays(candidate.state, "budget", told=False))
            continue
        outcome = simulate(scene, () if candidate.blocked else (candidate,), consolidating=False)
        if outcome.problem:
            choice.staying.append(Stays(candidate.state, outcome.problem))
            continue
        allowance.take(candidate.pool.name)
        new = outcome.plan.new_nodes
        choice.commands.append(
            Command(DRIFTED, (candidate,), new, outcome.plan, candidate.price - _price(new))
        )
        # One at a time: the next simulation must see this one's replacements.
        return choice
    return choice


def _price(nodes: Sequence[PlannedNode]) -> float:
    return sum(node.price for node in nodes)


def underutilized(scene: Scene, tracked: Mapping[str, float], look: Look | None = None) -> Choice:
    """Many nodes for one or none; failing that, one for a cheaper one or none."""
    going, staying = candidates(scene, Class.GRACEFUL)
    known = balanced.totals(scene, going, tracked)
    eligible, more = _eligible(going)
    choice = Choice(eligible=len(eligible), staying=[*staying, *more])
    ordered = by_ratio(eligible)
    allowance = allowances(scene, MULTI.reason)
    within = _within(ordered, allowance.copy(), choice)
    if len(within) > 1:
        command, choice.timed_out = consolidation.multi(
            scene, within, MULTI, lambda found: balanced.approves(found, known), look=look
        )
        if command is not None:
            choice.commands.append(command)
            return choice
    _one_by_one(scene, ordered, allowance, known, choice, look)
    return choice


def _eligible(going: Sequence[Candidate]) -> tuple[list[Candidate], list[Stays]]:
    eligible: list[Candidate] = []
    staying: list[Stays] = []
    for candidate in going:
        why = consolidation.why_unconsolidatable(candidate)
        if why is None:
            eligible.append(candidate)
        elif why:
            staying.append(Stays(candidate.state, why))
    return eligible, staying


def _within(ordered: Sequence[Candidate], allowance: Allowance, choice: Choice) -> list[Candidate]:
    kept = [candidate for candidate in ordered if allowance.take(candidate.pool.name)]
    choice.constrained = choice.constrained or allowance.constrained
    return kept


def _one_by_one(
    scene: Scene,
    ordered: Sequence[Candidate],
    allowance: Allowance,
    known: Mapping[str, balanced.Totals],
    choice: Choice,
    look: Look | None,
) -> None:
    for candidate in _interleaved(ordered):
        if allowance.left(candidate.pool.name) <= 0:
            choice.constrained = True
            choice.staying.append(Stays(candidate.state, "budget", told=False))
            continue
        if not balanced.could_approve(candidate, known):
            choice.staying.append(Stays(candidate.state, "saving too small for its disruption", told=False))
            continue
        verdict = consolidation.consider(scene, (candidate,), SINGLE, look)
        if verdict.command is None:
            choice.staying.append(Stays(candidate.state, verdict.why))
        elif balanced.approves(verdict.command, known):
            choice.commands.append(verdict.command)
            return


def _interleaved(ordered: Sequence[Candidate]) -> list[Candidate]:
    """The first of each pool, then the second of each, so that no pool waits for another."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    longest = max((len(found) for found in by_pool.values()), default=0)
    return [found[i] for i in range(longest) for found in by_pool.values() if i < len(found)]
