"""The ordered methods; the first with something to do wins.

emptiness ─► drift of static pools ─► drift ─► many for one ─► one at a time ─► many for several
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dovetail.api.setaside import SetAside
from dovetail.disruption import balanced, churn, consolidation, manyfold, waves
from dovetail.disruption.allowance import Allowance, allowances
from dovetail.disruption.candidates import (
    QUIET,
    UNCONSOLIDATABLE,
    Candidate,
    Class,
    Scene,
    Stays,
    by_ratio,
    candidates,
    judge,
)
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, Command, Verdict
from dovetail.disruption.containment import contained, contained_choice
from dovetail.disruption.drift import drift_order, static_commands
from dovetail.disruption.emptiness import empty_nodes, unawaited, why_not_empty
from dovetail.disruption.held import Held
from dovetail.disruption.memory import recalled
from dovetail.disruption.simulate import simulate
from dovetail.disruption.together import Worlds, sparing
from dovetail.scheduling import nodes as views
from dovetail.scheduling.snapshot import StateNode

__all__ = ["Choice", "drifted", "empty", "look", "multi", "queue_of", "several", "single", "static_drifted"]

ShouldStop = Callable[[], bool]
TOO_LITTLE = "the saving is too small for the disruption"


def never() -> bool:
    """There is all the time in the world."""
    return False


@dataclass
class Choice:
    """What one method found: commands, how many nodes it could choose from, and why the others stay.

    `proposed` are the replacements that were considered, `judged` the moves that were scored, and
    `unseen` the pools the search did not reach before its time was over.
    """

    allowance: Allowance
    commands: list[Command] = field(default_factory=list)
    eligible: int = 0
    staying: list[Stays] = field(default_factory=list)
    timed_out: bool = False
    proposed: list[Command] = field(default_factory=list)
    judged: list[balanced.Judgement] = field(default_factory=list)
    unseen: frozenset[str] = frozenset()
    set_aside: tuple[SetAside, ...] = ()

    @property
    def constrained(self) -> bool:
        """A budget turned someone away: what was not found may be found once it allows more."""
        return self.allowance.constrained

    @property
    def settled(self) -> bool:
        """Nothing was found, and nothing will be until the world changes."""
        return not self.commands and not self.constrained and not self.timed_out


@contained_choice
def empty(scene: Scene) -> Choice:
    """All empty nodes, as one command."""
    going, staying = candidates(scene, Class.GRACEFUL)
    mine, more = _sorted_out(going, lambda candidate: why_not_empty(scene, candidate))
    allowance = allowances(scene, EMPTY.reason)
    free, awaited = unawaited(scene, mine)
    command, turned_away = empty_nodes(free, allowance)
    return Choice(
        allowance, [command] if command else [], len(mine), [*staying, *more, *awaited, *turned_away]
    )


def _sorted_out(
    going: Sequence[Candidate], why_not: Callable[[Candidate], str | None]
) -> tuple[list[Candidate], list[Stays]]:
    """Those a method may choose from, and those it says something about."""
    mine: list[Candidate] = []
    staying: list[Stays] = []
    for candidate in going:
        why = why_not(candidate)
        if why is None:
            mine.append(candidate)
        elif why:
            staying.append(Stays(candidate.state, why, UNCONSOLIDATABLE))
    return mine, staying


@contained_choice
def static_drifted(scene: Scene) -> Choice:
    """Drifted nodes of static pools, one for one, as many as budgets let go; where pods go is not asked."""
    going, staying = candidates(scene, Class.EVENTUAL)
    order = [candidate for candidate in drift_order(going) if candidate.pool.static]
    choice = Choice(allowances(scene, DRIFTED.reason), eligible=len(order), staying=staying)
    waves.restrain(scene, choice.allowance)
    choice.commands = static_commands(order, choice.allowance)
    return choice


@contained_choice
def drifted(scene: Scene, at_once: int | None = 1, should_stop: ShouldStop = never) -> Choice:
    """The longest drifted nodes that may go, each with as many replacements as its pods need.

    Without a number, all that budgets let go now. Each sees those before it as done, and no pod moves to a
    node that goes in the same turn, unless there is nowhere else.
    """
    going, staying = candidates(scene, Class.EVENTUAL)
    order = [candidate for candidate in drift_order(going) if not candidate.pool.static]
    _, awaited = unawaited(scene, [candidate for candidate in order if not candidate.pods])
    wanted = {each.name for each in awaited}
    order, staying = [each for each in order if each.name not in wanted], [*staying, *awaited]
    if at_once is not None:
        return _wave(scene, scene, order, staying, at_once, should_stop)
    due = _next(scene, order)
    together = _wave(scene, sparing(scene, due) if due else scene, order, staying, None, should_stop)
    if len(together.commands) == len(due) or should_stop():
        return together
    choice = _wave(scene, scene, order, staying, None, should_stop)
    return choice if len(choice.commands) > len(together.commands) else together


def _next(scene: Scene, order: Sequence[Candidate]) -> list[Candidate]:
    """The drifted nodes that budgets let go now."""
    allowance = _drift_allowance(scene)
    return [candidate for candidate in order if allowance.take(candidate.pool.name)]


def _drift_allowance(scene: Scene) -> Allowance:
    allowance = allowances(scene, DRIFTED.reason)
    waves.restrain(scene, allowance)
    return allowance


def _wave(
    scene: Scene,
    seen: Scene,
    order: Sequence[Candidate],
    staying: Sequence[Stays],
    at_once: int | None,
    should_stop: ShouldStop,
) -> Choice:
    """Commands for the first of these, as many as may go, in a world seen so."""
    choice = Choice(_drift_allowance(scene), eligible=len(order), staying=[*staying])
    worlds = Worlds(seen)
    wanted: set[str] = set()  # nodes that pods of an earlier command go to
    for candidate in order:
        if len(choice.commands) == at_once or (choice.commands and should_stop()):
            break
        if candidate.name in wanted or not _allowed(candidate, choice):
            continue
        world = worlds.seen_by(candidate)
        if world is None:
            break
        outcome = simulate(world, (candidate,), consolidating=False)
        if outcome.problem:
            if not choice.commands:
                choice.staying.append(Stays(candidate.state, outcome.problem, held=Held.NO_CHEAPER))
            continue
        own = {pod.full_name for pod in candidate.pods}
        # What pods of others need is bought for them by the provisioner, and not a second time here.
        new = tuple(node for node in outcome.plan.new_nodes if not own.isdisjoint(node.pods))
        saved = candidate.price - sum(node.price for node in new)
        choice.commands.append(Command(DRIFTED, (candidate,), new, outcome.plan, saved))
        choice.allowance.take(candidate.pool.name)
        wanted |= {name for name, pods in outcome.plan.existing.items() if pods}
        worlds.add(choice.commands[-1])
    return choice


def _allowed(candidate: Candidate, choice: Choice) -> bool:
    """Whether its pool's budget has something left; it is not spent here, as one command is one node."""
    if choice.allowance.left(candidate.pool.name) > 0:
        return True
    choice.allowance.constrained = True
    _over_budget(candidate, choice)
    return False


def _over_budget(candidate: Candidate, choice: Choice) -> None:
    held, why = choice.allowance.held(candidate.pool.name)
    choice.staying.append(Stays(candidate.state, why, QUIET, held))


@contained_choice
def multi(scene: Scene, should_stop: ShouldStop = never) -> Choice:
    """Many nodes for one or none."""
    choice, ordered, known = _underutilized(scene)
    within = [candidate for candidate in ordered if choice.allowance.take(candidate.pool.name)]
    if len(within) < 2:
        return choice

    def accept(command: Command) -> bool:
        if churn.objection(command) is not None:
            return False
        choice.judged.append(balanced.judge(command, known))
        return choice.judged[-1].approved

    found = consolidation.many(scene, within, MULTI, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    # One word per search: about the move that is made, or else about the last that was turned down.
    last = [each for each in choice.judged if each.command is found.command] or choice.judged[-1:]
    choice.judged = [each for each in last if each.approved or each.scores]
    if found.command is not None:
        choice.commands.append(found.command)
    return choice


@contained_choice
def single(
    scene: Scene,
    first: AbstractSet[str] = frozenset(),
    should_stop: ShouldStop = never,
    looked: Mapping[str, Verdict] | None = None,
) -> Choice:
    """One node for a cheaper one or none. Pools named in `first` are looked at before the others.

    `looked` are verdicts that are there already, by key; with them, the search ends where they do.
    """
    choice, ordered, known = _underutilized(scene)
    queue = interleaved(ordered, first)
    unseen = {candidate.pool.name for candidate in queue}
    for candidate in queue:
        if looked is not None and candidate.key not in looked:
            choice.unseen = frozenset(unseen)
            break
        if should_stop():
            choice.timed_out, choice.unseen = True, frozenset(unseen)
            return choice
        unseen.discard(candidate.pool.name)
        if _allowed(candidate, choice) and _take_one(scene, candidate, known, choice, looked):
            return choice
    return choice


@contained
def queue_of(scene: Scene, first: AbstractSet[str] = frozenset()) -> list[str]:
    """The keys of all that `single` would look at, in its order."""
    return [candidate.key for candidate in interleaved(_underutilized(scene)[1], first)]


@contained
def look(scene: Scene, keys: Sequence[str]) -> list[Verdict]:
    """A verdict on each, in brief; what was known the last time and still holds is not worked out again."""
    states = {views.provider_id(state): state for state in scene.snapshot.nodes}
    return [_verdict(scene, states.get(key)) for key in keys]


def _verdict(scene: Scene, state: StateNode | None) -> Verdict:
    if state is None:
        return Verdict(why="the node is set aside")
    found = judge(scene, state, Class.GRACEFUL)
    return recalled(scene, found).brief if isinstance(found, Candidate) else Verdict(why=found.why)


def _take_one(
    scene: Scene,
    candidate: Candidate,
    known: Mapping[str, balanced.Totals],
    choice: Choice,
    looked: Mapping[str, Verdict] | None,
) -> bool:
    if not balanced.could_approve(candidate, known):
        choice.staying.append(Stays(candidate.state, TOO_LITTLE, QUIET, Held.UNBALANCED))
        return False
    verdict = recalled(scene, candidate) if looked is None else looked[candidate.key].about(candidate)
    if verdict.command is None:
        choice.staying.append(Stays(candidate.state, verdict.why, UNCONSOLIDATABLE, Held.NO_CHEAPER))
        return False
    objection = churn.objection(verdict.command)
    if objection is not None:
        choice.staying.append(Stays(candidate.state, objection.why, UNCONSOLIDATABLE, objection.held))
        return False
    if verdict.command.replacements:
        choice.proposed.append(verdict.command)
    choice.judged.append(balanced.judge(verdict.command, known))
    if not choice.judged[-1].approved:
        choice.staying.append(Stays(candidate.state, TOO_LITTLE, QUIET, Held.UNBALANCED))
        return False
    choice.commands.append(verdict.command)
    return True


@contained_choice
def several(scene: Scene, should_stop: ShouldStop = never) -> Choice:
    """Some nodes for several cheaper ones, where their pools ask for that."""
    choice, ordered, known = _underutilized(scene)
    mine = [candidate for candidate in ordered if churn.knobs(candidate.pool).many]
    within = [candidate for candidate in mine if choice.allowance.take(candidate.pool.name)]

    def accept(command: Command) -> bool:
        return churn.objection(command) is None and balanced.judge(command, known).approved

    found = manyfold.several(scene, within, MANY, accept, should_stop)
    choice.timed_out, choice.proposed = found.timed_out, found.proposed
    if found.command is not None:
        choice.commands.append(found.command)
        choice.judged = [each for each in (balanced.judge(found.command, known),) if each.scores]
    return choice


@dataclass(frozen=True, slots=True)
class Sifted:
    """What consolidation has to choose from in one scene, the best first, and who stays without a look."""

    eligible: int
    staying: tuple[Stays, ...]
    ordered: tuple[Candidate, ...]
    totals: dict[str, balanced.Totals]


def _underutilized(scene: Scene) -> tuple[Choice, tuple[Candidate, ...], dict[str, balanced.Totals]]:
    """Sifted once for all that is asked about a scene: a sweep comes back for each of its parts."""
    if not scene.sifted:
        scene.sifted.append(_sift(scene))
    found = scene.sifted[0]
    choice = Choice(allowances(scene, MULTI.reason), eligible=found.eligible, staying=[*found.staying])
    return choice, found.ordered, found.totals


def _sift(scene: Scene) -> Sifted:
    going, staying = candidates(scene, Class.GRACEFUL)
    mine, more = _sorted_out(going, consolidation.why_unconsolidatable)
    now = scene.snapshot.options.now
    rested, resting = [], []
    for candidate in by_ratio(mine):
        objection = churn.resting(candidate, now)
        if objection is None:
            rested.append(candidate)
        else:
            resting.append(Stays(candidate.state, objection.why, UNCONSOLIDATABLE, objection.held))
    return Sifted(len(mine), (*staying, *more, *resting), tuple(rested), balanced.totals(scene, going))


def interleaved(ordered: Sequence[Candidate], first: AbstractSet[str] = frozenset()) -> list[Candidate]:
    """The first of each pool, then the second of each, so that no pool waits for another."""
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    pools = sorted(by_pool.items(), key=lambda item: item[0] not in first)
    longest = max(map(len, by_pool.values()), default=0)
    return [found[i] for i in range(longest) for _, found in pools if i < len(found)]
