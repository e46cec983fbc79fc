"""What would be disrupted now, turn after turn, and for every node that stays the reason it does.

The methods are the loop's own, asked in its order; between turns the world is as it would be with the
commands so far under way. Nothing is decided here that is not decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.api import conditions, labels
from dovetail.disruption import choose, waves
from dovetail.disruption.allowance import Allowance, allowances, budgets_of
from dovetail.disruption.budgets import BadBudget, allowed
from dovetail.disruption.candidates import Candidate, Class, Scene, Stays, judge, price_of
from dovetail.disruption.choose import Choice
from dovetail.disruption.churn import knobs, recent
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, SINGLE, Command, Method
from dovetail.disruption.drift import static_wanted
from dovetail.disruption.held import Held
from dovetail.disruption.underway import under_way
from dovetail.disruption.waves import Waves
from dovetail.scheduling import nodes as views
from dovetail.scheduling.snapshot import StateNode
from dovetail.settings import durations

__all__ = ["Reason", "Standing", "Survey", "Turn", "survey"]

TURNS = 10


@dataclass(frozen=True, slots=True)
class Reason:
    """What one method says of a node."""

    method: Method
    held: Held
    why: str
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A node that stays. The first of its reasons is the one that counts."""

    state: StateNode
    price: float
    reasons: tuple[Reason, ...]

    @property
    def name(self) -> str:
        return views.name(self.state)

    @property
    def pool(self) -> str:
        return views.pool(self.state)

    @property
    def main(self) -> Reason:
        return self.reasons[0]

    @property
    def drifted(self) -> bool:
        return self.state.claim is not None and conditions.is_true(self.state.claim, conditions.DRIFTED)


@dataclass(frozen=True, slots=True)
class Turn:
    """Commands that one turn of the loop would start."""

    method: Method
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it. `more` says that it was cut short: further turns would find more."""

    turns: tuple[Turn, ...]
    standing: tuple[Standing, ...]
    waves: Waves
    more: bool = False

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for turn in self.turns for command in turn.commands)

    @property
    def savings(self) -> float:
        return sum(command.savings for command in self.commands)


def survey(scene: Scene, most: int = TURNS, step: Callable[[str], None] = lambda text: None) -> Survey:
    """Let the loop's methods decide, up to this many turns, and ask why everyone else stays."""
    turns: list[Turn] = []
    world, choices = scene, _asked(scene, step)
    while (found := _first(choices)) is not None and len(turns) < most:
        method, choice = found
        turns.append(Turn(method, tuple(choice.commands)))
        world = under_way(world, choice.commands)
        step(f"turn {len(turns)}: {sum(len(turn.commands) for turn in turns)} commands so far")
        choices = _asked(world, step)
    going = {candidate.key for turn in turns for command in turn.commands for candidate in command.candidates}
    said = Said({views.provider_id(state): state for state in scene.snapshot.nodes}, world, choices)
    standing = tuple(
        Standing(state, _price(scene, state), said.about(state))
        for state in scene.snapshot.nodes
        if views.provider_id(state) not in going
    )
    return Survey(tuple(turns), standing, waves.plan(scene), _first(choices) is not None)


def _asked(scene: Scene, step: Callable[[str], None]) -> list[tuple[Method, Choice]]:
    """What each method finds; those after the first with commands are not asked, as in the loop."""
    methods: tuple[tuple[Method, Callable[[Scene], Choice]], ...] = (
        (EMPTY, choose.empty),
        (DRIFTED, static_drifted),
        (DRIFTED, lambda world: choose.drifted(world, at_once=None)),
        (MULTI, choose.multi),
        (SINGLE, choose.single),
        (MANY, choose.several),
    )
    found: list[tuple[Method, Choice]] = []
    for method, ask in methods:
        step(f"looking for nodes that are {method.reason.lower()}")
        found.append((method, ask(scene)))
        if found[-1][1].commands:
            break
    return found


def _first(choices: Sequence[tuple[Method, Choice]]) -> tuple[Method, Choice] | None:
    return choices[-1] if choices and choices[-1][1].commands else None


def static_drifted(scene: Scene) -> Choice:
    """Drift of static pools, as far as their limits leave room for a replacement beside each node."""
    choice = choose.static_drifted(scene)
    kept: list[Command] = []
    for name, pool in scene.pools.items():
        mine = [command for command in choice.commands if command.candidates[0].pool.name == name]
        limit = pool.spec.limits.get(labels.NODES)
        claims = [s for s in scene.snapshot.nodes if s.claim is not None and views.pool(s) == name]
        active = sum(1 for state in claims if not views.deleting(state))
        wanted = static_wanted(pool, len(mine), active, 0)
        room = wanted if limit is None else max(0, limit.value - len(claims))
        kept += mine[: min(wanted, room)]
    choice.commands = kept
    return choice


def _price(scene: Scene, state: StateNode) -> float:
    known = views.labels(state)
    of = scene.types.get(views.pool(state), {}).get(known.get(labels.INSTANCE_TYPE, ""))
    return price_of(known, of)


class Said:
    """What the methods said of the nodes that stay, and the words for what they pass over in silence."""

    def __init__(
        self, before: Mapping[str, StateNode], scene: Scene, choices: Iterable[tuple[Method, Choice]]
    ) -> None:
        self._before = before
        self._scene = scene
        self._now = scene.snapshot.options.now
        self._states = {views.provider_id(state): state for state in scene.snapshot.nodes}
        self._by_key: dict[str, list[tuple[Method, Stays]]] = {}
        self._allowances: dict[str, Allowance] = {}
        self._taken: dict[str, Method] = {}
        for method, choice in choices:
            for stays in choice.staying:
                self._by_key.setdefault(views.provider_id(stays.state), []).append((method, stays))
            for command in choice.commands:
                self._taken |= {candidate.key: method for candidate in command.candidates}

    def about(self, state: StateNode) -> tuple[Reason, ...]:
        """Every reason once, the one that counts first."""
        key = views.provider_id(state)
        if key in self._taken:
            return (Reason(self._taken[key], Held.UNSAID, "it would go in a later turn"),)
        now = self._states.get(key, state)
        drifted = now.claim is not None and conditions.is_true(now.claim, conditions.DRIFTED)
        reasons = [self._worded(method, stays) for method, stays in self._by_key.get(key, ())]
        reasons = [each for each in reasons if drifted or each.method != DRIFTED] or self._quiet(now)
        reasons.sort(key=lambda each: self._weight(each, drifted))
        return tuple({(each.held, each.why): each for each in reversed(reasons)}.values())[::-1]

    def _weight(self, reason: Reason, drifted: bool) -> int:
        """A drifted node waits for drift; after that, what nearly happened says more than what could not."""
        order = (DRIFTED, EMPTY, SINGLE, MANY, MULTI) if drifted else (EMPTY, SINGLE, MANY, MULTI, DRIFTED)
        return order.index(reason.method)

    def _worded(self, method: Method, stays: Stays) -> Reason:
        """The reason with its numbers: which budget, how many; which rate, until when."""
        pool, held = views.pool(stays.state), stays.held
        if held is Held.UNSAID:
            held = Held.BUFFERED if stays.name in self._scene.buffered else Held.DISABLED
        why = stays.why
        if held is Held.BUDGET:
            why = self._budget(pool, method.reason)
        if held is Held.RATE:
            why = self._rate(pool)
        if held is Held.NOMINATED and not self._before[views.provider_id(stays.state)].nominated:
            why = "pods of nodes that go would land there"
        if held is Held.PDB:
            why = f"{why}, for pod {stays.pod}"
        return Reason(method, held, why, stays.pod)

    def _budget(self, pool: str, reason: str) -> str:
        if reason not in self._allowances:
            self._allowances[reason] = allowances(self._scene, reason)
        found = self._allowances[reason]
        count, used = found.allowed.get(pool, 0), found.consumed.get(pool, 0)
        which = _binding(self._scene, pool, reason, count)
        return (
            f"budget {which} lets {count} go at once for {reason}, and {used} are on their way or not ready"
        )

    def _rate(self, pool: str) -> str:
        known = self._scene.pools[pool]
        rate = knobs(known).rate
        assert rate is not None, "only a rate holds back for a rate"
        lately = [moment for moment in recent(known) if self._now - moment < rate.per]
        left = f"; the next may go in {_told(min(lately) + rate.per - self._now)}" if lately else ""
        return f"rate {rate} of pool {pool} is used up{left}"

    def _quiet(self, state: StateNode) -> list[Reason]:
        """A candidate that no method had a word for."""
        found = judge(self._scene, state, Class.GRACEFUL)
        if isinstance(found, Stays):
            return [self._worded(SINGLE, found)]
        if found.pool.static:
            return [Reason(DRIFTED, Held.STATIC, f"pool {found.pool.name} is static and it has not drifted")]
        if state.claim is not None and not conditions.is_true(state.claim, conditions.CONSOLIDATABLE):
            return [Reason(SINGLE, Held.NOT_YET, self._not_yet(found))]
        return [Reason(SINGLE, Held.NO_CHEAPER, "no place for its pods costs less")]

    def _not_yet(self, candidate: Candidate) -> str:
        after = candidate.pool.spec.disruption.consolidate_after or "0s"
        left = consolidatable_in(candidate, self._now)
        when = f", {_told(left)} to go" if left else ""
        return f"it is not consolidatable yet (consolidateAfter is {after}{when})"


def consolidatable_in(candidate: Candidate, now: datetime) -> timedelta:
    """How long its pool's consolidateAfter still holds it; nothing when that is over or never ends."""
    claim = candidate.state.claim
    after = durations.parse_or_never(candidate.pool.spec.disruption.consolidate_after or "0s")
    ready = conditions.find(claim, conditions.INITIALIZED) if claim else None
    since = (claim.status.last_pod_event_time if claim else None) or (
        ready.last_transition_time if ready else None
    )
    if after is None or since is None:
        return timedelta()
    return max(timedelta(), since + after - now)


def _binding(scene: Scene, pool: str, reason: str, count: int) -> str:
    """The budget that allows so few, as it is written."""
    now = scene.snapshot.options.now
    total = sum(1 for s in scene.snapshot.nodes if s.claim is not None and views.pool(s) == pool)
    for budget in budgets_of(scene.pools[pool]):
        try:
            mine = budget.reasons is None or reason in budget.reasons
            if mine and allowed(budget, now, total) <= count:
                reasons = f" for {'/'.join(budget.reasons)}" if budget.reasons else ""
                during = f" at {budget.schedule} for {budget.duration}" if budget.schedule else ""
                return f'"{budget.nodes}"{reasons}{during} of pool {pool}'
        except BadBudget as error:
            return f'"{budget.nodes}" of pool {pool}, which cannot be read ({error}),'
    return f"of pool {pool}"


def _told(length: timedelta) -> str:
    return durations.render(timedelta(seconds=round(length.total_seconds())))
