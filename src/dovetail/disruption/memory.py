"""What was found out about a node, kept for as long as nothing it depends on has changed.

A verdict depends on little: the node and its pods; where these would go, which no other node changes unless
it comes earlier in the order and has more room for one of them, or was to take some and no longer can; and
the counts of the rules that bind them. Of two worlds that differ in a few nodes, most verdicts hold in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from msgspec.structs import fields, replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.change import Change, Kept, Place, Rule, Wanted, counts_the_same
from dovetail.disruption.command import SINGLE, Verdict
from dovetail.disruption.consolidation import LEFT_OVER, consider
from dovetail.disruption.simulate import moved
from dovetail.disruption.trial import Trial
from dovetail.scheduling import nodes as views
from dovetail.scheduling.places import RunningNode
from dovetail.scheduling.resources import Nano, needs
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.scheduling.topology import identity_of

__all__ = ["Memory", "recalled"]

# With more changes than one node in this many, finding out what still holds is not worth it.
FEW = 10
# Sizes of pods that are remembered as one; there are seldom more than some dozens.
SIZES = 10_000


class Memory:
    """The verdicts of one world after another."""

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._states: dict[str, StateNode] = {}
        self._young: frozenset[str] = frozenset()
        self._kept: dict[str, Kept] = {}
        # Candidates of whom the same pods move for as long as budgets ask for the same.
        self._lasting: set[str] = set()
        # What many verdicts have in common, so that each has it only once.
        self._rules: dict[tuple[object, ...], Rule] = {}
        self._sizes: dict[Wanted, Wanted] = {}
        self.asked = 0

    def verdict(self, scene: Scene, candidate: Candidate) -> Verdict:
        """What there is to say about the candidate in this world."""
        if not scene.snapshot.options.ignore_dra:
            return consider(scene, (candidate,), SINGLE)
        if scene is not self._scene:
            self._turn_to(scene)
        key = candidate.key
        kept = self._kept.get(key)
        if kept is not None and kept.state is candidate.state and key in self._lasting:
            return kept.verdict.about(candidate)
        pods = moved(scene, (candidate,))
        (self._lasting.add if _lasting(candidate) else self._lasting.discard)(key)
        if kept is None or not _same(kept.pods, pods) or not _alike(kept.state, candidate.state):
            kept = self._considered(scene, candidate, pods)
        elif kept.state is not candidate.state:
            kept = dataclasses.replace(kept, state=candidate.state, pods=pods)
        self._kept[key] = kept
        return kept.verdict.about(candidate)

    def _considered(self, scene: Scene, candidate: Candidate, pods: tuple[Pod, ...]) -> Kept:
        self.asked += 1
        trials: list[Trial] = []
        verdict = _light(consider(scene, (candidate,), SINGLE, trials))
        if not trials:
            # Room alone settled it: those who have no room anywhere still have none.
            homeless = (pod for pod in pods if scene.room.homeless((pod,), {candidate.key}) is not None)
            reach: dict[Wanted, Place | None] = {self._size(needs(pod)): None for pod in homeless}
            return Kept(candidate.state, pods, verdict, {}, reach, (), ())
        asked = {identity_of(*rule): rule for trial in trials for rule in trial.topology.asked}
        rules = (self._rules.setdefault(identity, _bare(rule)) for identity, rule in asked.items())
        kinds = {(id(pod.labels), pod.namespace): pod for pod in trials[0].batch}
        # What holds up depends on all the room there was; else only on the room that was taken.
        given = _offered(trials) if _held_up(verdict) else _taken(trials)
        used = {name: self._size(amount) for name, amount in given.items()}
        return Kept(
            candidate.state, pods, verdict, used, self._reach(trials), tuple(rules), tuple(kinds.values())
        )

    def _reach(self, trials: Iterable[Trial]) -> dict[Wanted, Place | None]:
        """How far each kind of pod looked: to the node it was given, or past all of them."""
        found: dict[Wanted, Place | None] = {}
        for trial in trials:
            for pod in trial.batch:
                wanted = self._size(needs(pod))
                home = trial.homes.get(pod.full_name, (None,))[0]
                place = (not home.initialized, home.name) if isinstance(home, RunningNode) else None
                known = found.get(wanted, place)
                found[wanted] = None if known is None or place is None else max(known, place)
        return found

    def _size(self, wanted: Nano) -> Wanted:
        size = frozenset(wanted.items())
        return self._sizes.setdefault(size, size)

    def _turn_to(self, scene: Scene) -> None:
        """Another world: keep what holds there too."""
        states = {views.provider_id(state): state for state in scene.snapshot.nodes}
        young = frozenset(_named(scene, scene.ground.young))
        before = self._scene
        if before is None or not _same_budgets(before.snapshot, scene.snapshot):
            self._lasting = set()
        if before is None or len(states) != len(scene.snapshot.nodes) or not _same_but_nodes(before, scene):
            self._kept = {}
        else:
            self._forget(scene, states, young)
        self._scene, self._states, self._young = scene, states, young

    def _forget(self, scene: Scene, states: dict[str, StateNode], young: frozenset[str]) -> None:
        """Let go of what may have become wrong."""
        aged = young ^ self._young
        keys = {key for key in states.keys() | self._states.keys() if _differ(key, states, self._states)}
        pairs = [(self._states.get(key), states.get(key)) for key in keys | aged]
        if not pairs:
            return
        change = Change(scene, pairs, aged)
        # What a pool may still buy depends on every node it has.
        if scene.room.limited or change.size * FEW > len(states) + FEW:
            self._kept = {}
        else:
            self._kept = {key: kept for key, kept in self._kept.items() if not change.matters(kept)}
        self._rules = {identity_of(*rule): rule for kept in self._kept.values() for rule in kept.rules}
        if len(self._sizes) > SIZES:
            self._sizes = {}


def _light(verdict: Verdict) -> Verdict:
    """The verdict without what nobody reads of it later."""
    command = verdict.command
    if command is None or command.plan is None:
        return verdict
    plan = replace(command.plan, decisions=())
    return Verdict(dataclasses.replace(command, candidates=(), plan=plan), verdict.why)


def _lasting(candidate: Candidate) -> bool:
    return not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in candidate.pods)


def _bare(rule: Rule) -> Rule:
    group, tolerations = rule
    return dataclasses.replace(group, counts={}, total=0), tolerations


def _taken(trials: Iterable[Trial]) -> dict[str, Nano]:
    """How much each node was given, at most."""
    found: dict[str, Nano] = {}
    for trial in trials:
        for node in trial.filled:
            before, mine = trial.ground.node(node.index).left, found.setdefault(node.name, {})
            for name, left in node.left.items():
                mine[name] = max(mine.get(name, 0), before.get(name, 0) - left)
    return found


def _offered(trials: Iterable[Trial]) -> dict[str, Nano]:
    """How much room the nodes had that were given something."""
    return {
        node.name: {name: max(0, left) for name, left in trial.ground.node(node.index).left.items()}
        for trial in trials
        for node in trial.filled
    }


def _held_up(verdict: Verdict) -> bool:
    """Whether it was asked what the scheduler would do."""
    return verdict.why == LEFT_OVER or (verdict.command is not None and bool(verdict.command.replacements))


def _named(scene: Scene, mask: int) -> Iterator[str]:
    states = scene.ground.states
    return (views.provider_id(state) for i, state in enumerate(states) if mask >> i & 1)


def _differ(key: str, these: dict[str, StateNode], those: dict[str, StateNode]) -> bool:
    return these.get(key) is not those.get(key)


def _same(these: tuple[Pod, ...], those: tuple[Pod, ...]) -> bool:
    return len(these) == len(those) and all(a is b or a == b for a, b in zip(these, those, strict=True))


def _alike(old: StateNode, new: StateNode) -> bool:
    """Whether taking out the one is taking out the other."""
    return old is new or (counts_the_same(old, new) and views.labels(old) == views.labels(new))


# Budgets of pods decide which pods move, and those are compared one by one.
_APART = ("nodes", "options", "budgets")
_COMPARED = tuple(each.name for each in fields(Snapshot) if each.name not in _APART)


def _same_but_nodes(before: Scene, now: Scene) -> bool:
    old, new = before.snapshot, now.snapshot
    if before.spot_to_spot != now.spot_to_spot or before.ground.batch != now.ground.batch:
        return False
    if replace(old.options, now=new.options.now) != new.options:
        return False
    pairs = ((getattr(old, name), getattr(new, name)) for name in _COMPARED)
    return all(a is b or a == b for a, b in pairs)


def _same_budgets(old: Snapshot, new: Snapshot) -> bool:
    """Which pods would move depends on what budgets ask for, not on what they allow at the moment."""
    if len(old.budgets) != len(new.budgets):
        return False
    pairs = zip(old.budgets, new.budgets, strict=True)
    return all(a is b or (a.full_name == b.full_name and a.spec == b.spec) for a, b in pairs)


_MEMORY = Memory()


def recalled(scene: Scene, candidate: Candidate) -> Verdict:
    """The verdict on one candidate, worked out only if it was not known or may have changed."""
    return _MEMORY.verdict(scene, candidate)
