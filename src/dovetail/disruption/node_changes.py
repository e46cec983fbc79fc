"""What changed between two inputs, and which verdicts on nodes that affects.

A verdict depends on little: the node and its pods; where these would go, which no other node changes unless
it comes earlier in the order and has more room for one of them, or was to take some and no longer can; and
the counts of the rules that bind them. Of two worlds that differ in a few nodes, most verdicts hold in both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.command import ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.sequential.nodes import ExistingNode
from dovetail.scheduling.topology.group import TopologyGroup
from dovetail.scheduling.topology.tracker import PresentPod, TopologyFactsCache

__all__ = [
    "AskedGroup",
    "CachedVerdict",
    "NodeChanges",
    "NodePosition",
    "PodSize",
    "StatePair",
    "counts_the_same",
]

NodePosition = tuple[bool, str]
"""Where a node stands in the order in which nodes are tried."""
PodSize = frozenset[tuple[str, int]]
AskedGroup = tuple[TopologyGroup, tuple[Toleration, ...] | None]
StatePair = tuple[StateNode | None, StateNode | None]
"""A node as it was and as it is."""


@dataclass(frozen=True, slots=True)
class CachedVerdict:
    """A verdict and all it depends on.

    `used` are the nodes that were to take pods, with how much; `reach` says how far in the order each kind
    of pod looked, None if past all nodes; `rules` are numbers of rules that bound them. Without `kinds`, free
    capacity alone decided it.
    """

    state: StateNode
    pods: tuple[Pod, ...]
    verdict: ConsolidationVerdict
    brief: ConsolidationVerdict
    used: Mapping[str, PodSize]
    reach: Mapping[PodSize, NodePosition | None]
    rules: frozenset[int]
    kinds: tuple[Pod, ...]


class NodeChanges:
    """Some nodes were one thing and are another now; of `aged` ones, only their age says otherwise."""

    def __init__(
        self,
        inputs: DisruptionInput,
        pairs: Iterable[StatePair],
        aged: AbstractSet[str],
    ) -> None:
        self._base = inputs.base_state
        self._other: set[str] = set()
        self._fuller: dict[str, ExistingNode] = {}
        # Nodes that may take a pod they would not have taken before.
        self._now = 0
        self._recounted: list[StatePair] = []
        # How many nodes are news to others.
        self.size = sum(self._record_pair(pair, aged) for pair in pairs)
        self._order = [(not views.is_initialized(s), views.read_name(s)) for s in self._base.states]
        self._inverse_groups = list(self._list_changed_inverse_groups())

    def _record_pair(self, pair: StatePair, aged: AbstractSet[str]) -> bool:
        """Take down what is new about a node; whether there is anything."""
        facts, (old, new) = self._base.topology.facts, pair
        recounted = old is None or new is None or not counts_the_same(facts, old, new)
        if recounted:
            self._recounted.append(pair)
        return self._record_room(*pair, aged) or recounted

    def _record_room(self, old: StateNode | None, new: StateNode | None, aged: AbstractSet[str]) -> bool:
        key = views.read_provider_id(new) if new is not None else ""
        if old is not None and new is not None and key not in aged and _are_both_active(old, new):
            before, now = self._base.build_node_of(old), self._base.build_node_of(new)
            if _takes_no_more(before, now):
                if (before.ports, before.attached) != (now.ports, now.attached):
                    self._other.add(now.name)
                elif before.left != now.left:
                    self._fuller[now.name] = now
                else:
                    return False
                return True
        if old is not None:
            self._other.add(views.read_name(old))
        place = self._base.at.get(key)
        if place is not None:
            self._now |= 1 << place
        return True

    def drop_affected(
        self, kept: Mapping[str, CachedVerdict], rules: Mapping[int, AskedGroup]
    ) -> dict[str, CachedVerdict]:
        """The verdicts that still hold; `rules` are all they depend on, by number."""
        recounted = self._find_recounted_rules(rules)
        # Room that was made matters to those who have a pod for it.
        sizes = frozenset[PodSize]().union(*(each.reach for each in kept.values())) if self._now else ()
        able = {size: self._now & ~self._base.find_full_nodes(dict(size)) for size in sizes}
        able = {size: nodes for size, nodes in able.items() if nodes}
        return {
            key: each
            for key, each in kept.items()
            if recounted.isdisjoint(each.rules) and not self._affects_verdict(each, able)
        }

    def _affects_verdict(self, kept: CachedVerdict, able: Mapping[PodSize, int]) -> bool:
        if not kept.kinds and (self._fuller or self._other):
            # Any node may have been the last with room for a pod; to reckon that again is quick.
            return True
        return bool(
            not kept.used.keys().isdisjoint(self._other)
            or any(_has_lost_room(node, kept.used) for node in self._fuller.values())
            or (not able.keys().isdisjoint(kept.reach) and self._is_in_reach(kept.reach, able))
            or any(
                group.selects_pod(pod.namespace, pod.labels)
                for group in self._inverse_groups
                for pod in kept.kinds
            )
        )

    def _is_in_reach(self, reach: Mapping[PodSize, NodePosition | None], able: Mapping[PodSize, int]) -> bool:
        """Whether a node that has room for such a pod now would have been asked."""
        for wanted, place in reach.items():
            nodes = able.get(wanted, 0)
            if place is not None and nodes:
                nodes &= (1 << bisect_left(self._order, place)) - 1
            if nodes:
                return True
        return False

    def _find_recounted_rules(self, rules: Mapping[int, AskedGroup]) -> frozenset[int]:
        """The rules that count something else on these nodes now."""
        share = self._base.topology.compute_share
        found: set[int] = set()
        for old, new in self._recounted:
            moved = self._list_moved_pods(old, new)
            found.update(
                number
                for number, (group, _) in rules.items()
                if (moved is None or group.inverse or _selects_any(group, moved))
                and share(group, old) != share(group, new)
            )
        return frozenset(found)

    def _list_moved_pods(self, old: StateNode | None, new: StateNode | None) -> list[PresentPod] | None:
        """The pods that came or went; None where the node itself looks different."""
        if old is None or new is None:
            return None
        before, now = (self._base.topology.facts.find_facts(each) for each in (old, new))
        if before.node != now.node:
            return None
        gone = [pod for pod in before.present_pods if pod not in now.present_pods]
        return gone + [pod for pod in now.present_pods if pod not in before.present_pods]

    def _list_changed_inverse_groups(self) -> Iterator[TopologyGroup]:
        """Rules of pods on these nodes that others must keep away from, old ones and new ones."""
        for pair in self._recounted:
            mine = [
                dict(self._base.topology.list_inverse_groups(state)) if state is not None else {}
                for state in pair
            ]
            for identity in mine[0].keys() ^ mine[1].keys():
                yield (mine[0] | mine[1])[identity]


def counts_the_same(cache: TopologyFactsCache, old: StateNode, new: StateNode) -> bool:
    """Whether no rule could tell one from the other: the same node to it, with the same pods."""
    before, now = cache.find_facts(old), cache.find_facts(new)
    if before.node != now.node or before.present_pods != now.present_pods:
        return False
    return [pod.spec.affinity for pod in before.anti_affinity_pods] == [
        pod.spec.affinity for pod in now.anti_affinity_pods
    ]


def _selects_any(group: TopologyGroup, pods: Iterable[PresentPod]) -> bool:
    return any(group.selects_pod(namespace, labels) for _, namespace, labels in pods)


def _are_both_active(old: StateNode, new: StateNode) -> bool:
    return not views.is_deleting(old) and not views.is_deleting(new)


def _takes_no_more(old: ExistingNode, new: ExistingNode) -> bool:
    """Whether the node takes no pod now that it would not have taken before."""
    if (old.name, old.hostname, old.initialized) != (new.name, new.hostname, new.initialized):
        return False
    if (old.taints, old.requirements, old.limits) != (new.taints, new.requirements, new.limits):
        return False
    if old.left.keys() != new.left.keys() or any(new.left[name] > old.left[name] for name in old.left):
        return False
    attached = all(names <= new.attached.get(driver, set()) for driver, names in old.attached.items())
    return attached and all(port in new.ports for port in old.ports)


def _has_lost_room(node: ExistingNode, used: Mapping[str, PodSize]) -> bool:
    """Whether the node was to take pods that it has no room for any more."""
    taken = used.get(node.name)
    if taken is None:
        return False
    return node.overdrawn or any(amount > node.left.get(resource, 0) for resource, amount in taken)
