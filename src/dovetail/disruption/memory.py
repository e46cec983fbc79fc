"""What was found out about a node, kept for as long as nothing it depends on has changed.

A verdict depends on little: the node and its pods; where these would go, which no other node changes unless
it comes earlier in the order and has room for one of them; and the counts of the rules that bind them. Of two
worlds that differ in a few nodes, most verdicts hold in both.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from msgspec.structs import fields, replace

from dovetail.api import labels
from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import SINGLE, Verdict
from dovetail.disruption.consolidation import consider
from dovetail.disruption.simulate import moved
from dovetail.disruption.trial import Trial
from dovetail.scheduling import nodes as views
from dovetail.scheduling.daemons import is_daemon
from dovetail.scheduling.groups import Group
from dovetail.scheduling.places import RunningNode
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.scheduling.topology import identity_of

__all__ = ["Memory", "recalled"]

Place = tuple[bool, str]
"""Where a node stands in the order in which nodes are tried."""
Wanted = frozenset[tuple[str, int]]
Rule = tuple[Group, tuple[Toleration, ...] | None]
Pair = tuple[StateNode | None, StateNode | None]
"""A node as it was and as it is."""
# With more changes than one node in this many, finding out what still holds is not worth it.
FEW = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """A verdict and all it depends on: `reach` says how far in the order each kind of pod looked."""

    state: StateNode
    pods: tuple[Pod, ...]
    verdict: Verdict
    used: frozenset[str]
    reach: dict[Wanted, Place | None]
    rules: tuple[Rule, ...]
    kinds: tuple[Pod, ...]


class Memory:
    """The verdicts of one world after another."""

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._states: dict[str, StateNode] = {}
        self._young: frozenset[str] = frozenset()
        self._kept: dict[str, Kept] = {}
        # Candidates of whom the same pods move for as long as budgets ask for the same.
        self._lasting: set[str] = set()
        self._rules: dict[tuple[object, ...], Rule] = {}
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
            return kept.verdict
        pods = moved(scene, (candidate,))
        (self._lasting.add if _lasting(candidate) else self._lasting.discard)(key)
        if kept is None or kept.state is not candidate.state or not _same(kept.pods, pods):
            kept = self._kept[key] = self._considered(scene, candidate, pods)
        return kept.verdict

    def _considered(self, scene: Scene, candidate: Candidate, pods: tuple[Pod, ...]) -> Kept:
        self.asked += 1
        trials: list[Trial] = []
        verdict = _light(consider(scene, (candidate,), SINGLE, trials))
        if not trials:
            # Room alone settled it: those who have no room anywhere still have none.
            homeless = (pod for pod in pods if scene.room.homeless((pod,), {candidate.key}) is not None)
            reach: dict[Wanted, Place | None] = {frozenset(needs(pod).items()): None for pod in homeless}
            return Kept(candidate.state, pods, verdict, frozenset(), reach, (), ())
        used = {node.name for trial in trials for node in trial.filled}
        asked = {identity_of(*rule): rule for trial in trials for rule in trial.topology.asked}
        rules = (self._rules.setdefault(identity, _bare(rule)) for identity, rule in asked.items())
        kinds = {(id(pod.labels), pod.namespace): pod for pod in trials[0].batch}
        return Kept(
            candidate.state,
            pods,
            verdict,
            frozenset(used),
            _reach(trials),
            tuple(rules),
            tuple(kinds.values()),
        )

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
            keys = [key for key in states.keys() | self._states.keys() if _differ(key, states, self._states)]
            aged = young ^ self._young
            keys += aged
            if len(keys) * FEW > len(states) + FEW:
                self._kept = {}
            elif keys:
                pairs = [(self._states.get(key), states.get(key)) for key in dict.fromkeys(keys)]
                self._forget(scene, pairs, aged)
        self._scene, self._states, self._young = scene, states, young

    def _forget(self, scene: Scene, changed: list[Pair], aged: AbstractSet[str]) -> None:
        if scene.room.limited:
            # What a pool may still buy depends on every node it has.
            self._kept = {}
            return
        change = _Change(scene, changed, aged)
        self._kept = {key: kept for key, kept in self._kept.items() if not change.matters(kept)}


def _light(verdict: Verdict) -> Verdict:
    """The verdict without what nobody reads of it later."""
    command = verdict.command
    if command is None or command.plan is None:
        return verdict
    return Verdict(dataclasses.replace(command, plan=replace(command.plan, decisions=())), verdict.why)


def _lasting(candidate: Candidate) -> bool:
    return not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in candidate.pods)


def _fuller(old: StateNode | None, new: StateNode) -> bool:
    """Whether the node only got more pods, none of which it was expecting."""
    if old is None or replace(old, pods=()) != replace(new, pods=()):
        return False
    here = {id(pod) for pod in old.pods}
    more = [pod for pod in new.pods if id(pod) not in here]
    return len(old.pods) + len(more) == len(new.pods) and not any(map(is_daemon, more))


def _bare(rule: Rule) -> Rule:
    group, tolerations = rule
    return dataclasses.replace(group, counts={}, total=0), tolerations


class _Change:
    """Some nodes were one thing and are another now; of `aged` ones, only their age says otherwise."""

    def __init__(self, scene: Scene, changed: list[Pair], aged: AbstractSet[str]) -> None:
        self._scene, self._ground = scene, scene.ground
        self._changed = changed
        self._before = {views.name(old) for old, _ in changed if old is not None}
        # Who had no use for a node before has none when it only got fuller.
        better = (views.provider_id(new) for old, new in changed if new is not None and not _fuller(old, new))
        places = (self._ground.at.get(key) for key in {*better, *aged})
        self._now = sum(1 << place for place in places if place is not None)
        self._order = [(not views.initialized(s), views.name(s)) for s in self._ground.states]
        self._known: dict[tuple[object, ...], bool] = {}
        self._able: dict[Wanted, int] = {}
        self._shy = list(self._newly_avoiding())

    def matters(self, kept: Kept) -> bool:
        return bool(
            not kept.used.isdisjoint(self._before)
            or (self._now and any(self._in_reach(wanted, place) for wanted, place in kept.reach.items()))
            or any(self._counts_differ(rule) for rule in kept.rules)
            or any(group.selects(pod.namespace, pod.labels) for group in self._shy for pod in kept.kinds)
        )

    def _in_reach(self, wanted: Wanted, place: Place | None) -> bool:
        """Whether one of the nodes has room for such a pod now, and would have been asked."""
        able = self._able.get(wanted)
        if able is None:
            able = self._able[wanted] = self._now & ~self._ground.roomless(dict(wanted))
        if place is not None and able:
            able &= (1 << bisect_left(self._order, place)) - 1
        return bool(able)

    def _counts_differ(self, rule: Rule) -> bool:
        identity = identity_of(*rule)
        known = self._known.get(identity)
        if known is None:
            share, group = self._ground.rules.share, rule[0]
            known = any(share(group, old) != share(group, new) for old, new in self._changed)
            self._known[identity] = known
        return known

    def _newly_avoiding(self) -> Iterator[Group]:
        """Rules of pods on these nodes that others must keep away from, old ones and new ones."""
        for pair in self._changed:
            mine = [
                dict(self._ground.rules.turned_round(state)) if state is not None else {} for state in pair
            ]
            for identity in mine[0].keys() ^ mine[1].keys():
                yield (mine[0] | mine[1])[identity]


def _reach(trials: Iterable[Trial]) -> dict[Wanted, Place | None]:
    """How far each kind of pod looked: to the node it was given, or past all of them."""
    found: dict[Wanted, Place | None] = {}
    for trial in trials:
        for pod in trial.batch:
            wanted = frozenset(needs(pod).items())
            home = trial.homes.get(pod.full_name, (None,))[0]
            place = (not home.initialized, home.name) if isinstance(home, RunningNode) else None
            known = found.get(wanted, place)
            found[wanted] = None if known is None or place is None else max(known, place)
    return found


def _named(scene: Scene, mask: int) -> Iterator[str]:
    states = scene.ground.states
    return (views.provider_id(state) for i, state in enumerate(states) if mask >> i & 1)


def _differ(key: str, these: dict[str, StateNode], those: dict[str, StateNode]) -> bool:
    return these.get(key) is not those.get(key)


def _same(these: tuple[Pod, ...], those: tuple[Pod, ...]) -> bool:
    return len(these) == len(those) and all(a is b for a, b in zip(these, those, strict=True))


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
