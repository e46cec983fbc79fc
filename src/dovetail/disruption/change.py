"""From one world to the next, some nodes are not what they were: to which verdicts does that matter?

Most of what happens to a node is no news to anybody else: a heartbeat, a pod that became ready. A node that
only got fuller is news to those alone whose pods it was to take, if it has no room for them any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.candidates import Scene
from dovetail.disruption.command import Verdict
from dovetail.scheduling import nodes as views
from dovetail.scheduling.groups import Group
from dovetail.scheduling.places import RunningNode
from dovetail.scheduling.snapshot import StateNode
from dovetail.scheduling.topology import identity_of, landmark_of, present_pods, shy_pods

__all__ = ["Change", "Kept", "Pair", "Place", "Rule", "Wanted", "counts_the_same"]

Place = tuple[bool, str]
"""Where a node stands in the order in which nodes are tried."""
Wanted = frozenset[tuple[str, int]]
Rule = tuple[Group, tuple[Toleration, ...] | None]
Pair = tuple[StateNode | None, StateNode | None]
"""A node as it was and as it is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A verdict and all it depends on.

    `used` are the nodes that were to take pods, with how much; `reach` says how far in the order each kind
    of pod looked, None if past all nodes. Without `kinds` there was no trial: room alone settled it.
    """

    state: StateNode
    pods: tuple[Pod, ...]
    verdict: Verdict
    used: Mapping[str, Wanted]
    reach: Mapping[Wanted, Place | None]
    rules: tuple[Rule, ...]
    kinds: tuple[Pod, ...]


class Change:
    """Some nodes were one thing and are another now; of `aged` ones, only their age says otherwise."""

    def __init__(self, scene: Scene, pairs: Iterable[Pair], aged: AbstractSet[str]) -> None:
        self._ground = scene.ground
        self._other: set[str] = set()
        self._fuller: dict[str, RunningNode] = {}
        # Nodes that may take a pod they would not have taken before.
        self._now = 0
        self._recounted: list[Pair] = []
        # How many nodes are news to others.
        self.size = sum(self._note(pair, aged) for pair in pairs)
        self._order = [(not views.initialized(s), views.name(s)) for s in self._ground.states]
        self._known: dict[tuple[object, ...], bool] = {}
        self._able: dict[Wanted, int] = {}
        self._shy = list(self._newly_avoiding())

    def _note(self, pair: Pair, aged: AbstractSet[str]) -> bool:
        """Take down what is new about a node; whether there is anything."""
        recounted = pair[0] is None or pair[1] is None or not counts_the_same(pair[0], pair[1])
        if recounted:
            self._recounted.append(pair)
        return self._note_room(*pair, aged) or recounted

    def _note_room(self, old: StateNode | None, new: StateNode | None, aged: AbstractSet[str]) -> bool:
        key = views.provider_id(new) if new is not None else ""
        if old is not None and new is not None and key not in aged and _both_active(old, new):
            before, now = self._ground.seen(old), self._ground.seen(new)
            if _no_better(before, now):
                if (before.ports, before.attached) != (now.ports, now.attached):
                    self._other.add(now.name)
                elif before.left != now.left:
                    self._fuller[now.name] = now
                else:
                    return False
                return True
        if old is not None:
            self._other.add(views.name(old))
        place = self._ground.at.get(key)
        if place is not None:
            self._now |= 1 << place
        return True

    def matters(self, kept: Kept) -> bool:
        if not kept.kinds and (self._fuller or self._other):
            # Any node may have been the last with room for a pod; to reckon that again is quick.
            return True
        return bool(
            not kept.used.keys().isdisjoint(self._other)
            or any(_no_longer(node, kept.used) for node in self._fuller.values())
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
        if not self._recounted:
            return False
        identity = identity_of(*rule)
        known = self._known.get(identity)
        if known is None:
            share, group = self._ground.rules.share, rule[0]
            known = any(share(group, old) != share(group, new) for old, new in self._recounted)
            self._known[identity] = known
        return known

    def _newly_avoiding(self) -> Iterator[Group]:
        """Rules of pods on these nodes that others must keep away from, old ones and new ones."""
        for pair in self._recounted:
            mine = [
                dict(self._ground.rules.turned_round(state)) if state is not None else {} for state in pair
            ]
            for identity in mine[0].keys() ^ mine[1].keys():
                yield (mine[0] | mine[1])[identity]


def counts_the_same(old: StateNode, new: StateNode) -> bool:
    """Whether no rule could tell one from the other: the same node to it, with the same pods."""
    if landmark_of(old) != landmark_of(new) or present_pods(old) != present_pods(new):
        return False
    return [pod.spec.affinity for pod in shy_pods(old)] == [pod.spec.affinity for pod in shy_pods(new)]


def _both_active(old: StateNode, new: StateNode) -> bool:
    return not views.deleting(old) and not views.deleting(new)


def _no_better(old: RunningNode, new: RunningNode) -> bool:
    """Whether the node takes no pod now that it would not have taken before."""
    if (old.name, old.hostname, old.initialized) != (new.name, new.hostname, new.initialized):
        return False
    if (old.taints, old.requirements, old.limits) != (new.taints, new.requirements, new.limits):
        return False
    if old.left.keys() != new.left.keys() or any(new.left[name] > old.left[name] for name in old.left):
        return False
    attached = all(names <= new.attached.get(driver, set()) for driver, names in old.attached.items())
    return attached and all(port in new.ports for port in old.ports)


def _no_longer(node: RunningNode, used: Mapping[str, Wanted]) -> bool:
    """Whether the node was to take pods that it has no room for any more."""
    taken = used.get(node.name)
    if taken is None:
        return False
    return node.overdrawn or any(amount > node.left.get(resource, 0) for resource, amount in taken)
