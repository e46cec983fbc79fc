"""What was found out about a node, kept for as long as nothing it depends on has changed.

A verdict depends on little: the node and its pods; where these would go, which no other node changes unless
it comes earlier in the order and has more room for one of them, or was to take some and no longer can; and
the counts of the rules that bind them. Of two worlds that differ in a few nodes, most verdicts hold in both.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from msgspec.structs import fields, replace

from dovetail.api import labels
from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.candidates import (
    Candidate,
)
from dovetail.disruption.command import SINGLE, ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import LEFT_OVER, compute_consolidation
from dovetail.disruption.simulation.simulate import list_moving_pods
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import Nano, compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.sequential.nodes import ExistingNode
from dovetail.scheduling.topology.group import TopologyGroup
from dovetail.scheduling.topology.tracker import (
    build_group_key,
    find_topology_node,
    list_anti_affinity_pods,
    list_present_pods,
)

__all__ = [
    "AskedGroup",
    "CachedVerdict",
    "NodeChanges",
    "NodePosition",
    "PodSize",
    "StatePair",
    "VerdictCache",
    "counts_the_same",
    "recall_verdict",
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
    of pod looked, None if past all nodes. Without `kinds`, free capacity alone decided it.
    """

    state: StateNode
    pods: tuple[Pod, ...]
    verdict: ConsolidationVerdict
    used: Mapping[str, PodSize]
    reach: Mapping[PodSize, NodePosition | None]
    rules: tuple[AskedGroup, ...]
    kinds: tuple[Pod, ...]


class NodeChanges:
    """Some nodes were one thing and are another now; of `aged` ones, only their age says otherwise."""

    def __init__(self, inputs: DisruptionInput, pairs: Iterable[StatePair], aged: AbstractSet[str]) -> None:
        self._base = inputs.base_state
        self._other: set[str] = set()
        self._fuller: dict[str, ExistingNode] = {}
        # Nodes that may take a pod they would not have taken before.
        self._now = 0
        self._recounted: list[StatePair] = []
        # How many nodes are news to others.
        self.size = sum(self._record_pair(pair, aged) for pair in pairs)
        self._order = [(not views.is_initialized(s), views.read_name(s)) for s in self._base.states]
        self._known: dict[tuple[object, ...], bool] = {}
        self._able: dict[PodSize, int] = {}
        self._inverse_groups = list(self._list_changed_inverse_groups())

    def _record_pair(self, pair: StatePair, aged: AbstractSet[str]) -> bool:
        """Take down what is new about a node; whether there is anything."""
        recounted = pair[0] is None or pair[1] is None or not counts_the_same(pair[0], pair[1])
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

    def affects_verdict(self, kept: CachedVerdict) -> bool:
        if not kept.kinds and (self._fuller or self._other):
            # Any node may have been the last with room for a pod; to reckon that again is quick.
            return True
        return bool(
            not kept.used.keys().isdisjoint(self._other)
            or any(_has_lost_room(node, kept.used) for node in self._fuller.values())
            or (self._now and any(self._is_in_reach(wanted, place) for wanted, place in kept.reach.items()))
            or any(self._counts_differ(rule) for rule in kept.rules)
            or any(
                group.selects_pod(pod.namespace, pod.labels)
                for group in self._inverse_groups
                for pod in kept.kinds
            )
        )

    def _is_in_reach(self, wanted: PodSize, place: NodePosition | None) -> bool:
        """Whether one of the nodes has room for such a pod now, and would have been asked."""
        able = self._able.get(wanted)
        if able is None:
            able = self._able[wanted] = self._now & ~self._base.find_full_nodes(dict(wanted))
        if place is not None and able:
            able &= (1 << bisect_left(self._order, place)) - 1
        return bool(able)

    def _counts_differ(self, rule: AskedGroup) -> bool:
        if not self._recounted:
            return False
        identity = build_group_key(*rule)
        known = self._known.get(identity)
        if known is None:
            share, group = self._base.topology.compute_share, rule[0]
            known = any(share(group, old) != share(group, new) for old, new in self._recounted)
            self._known[identity] = known
        return known

    def _list_changed_inverse_groups(self) -> Iterator[TopologyGroup]:
        """Rules of pods on these nodes that others must keep away from, old ones and new ones."""
        for pair in self._recounted:
            mine = [
                dict(self._base.topology.list_inverse_groups(state)) if state is not None else {}
                for state in pair
            ]
            for identity in mine[0].keys() ^ mine[1].keys():
                yield (mine[0] | mine[1])[identity]


def counts_the_same(old: StateNode, new: StateNode) -> bool:
    """Whether no rule could tell one from the other: the same node to it, with the same pods."""
    if find_topology_node(old) != find_topology_node(new) or list_present_pods(old) != list_present_pods(new):
        return False
    return [pod.spec.affinity for pod in list_anti_affinity_pods(old)] == [
        pod.spec.affinity for pod in list_anti_affinity_pods(new)
    ]


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


# With more changes than one node in this many, finding out what still holds is not worth it.
FEW = 10
# Sizes of pods that are remembered as one; there are seldom more than some dozens.
SIZES = 10_000


class VerdictCache:
    """The verdicts of one world after another."""

    def __init__(self) -> None:
        self._inputs: DisruptionInput | None = None
        self._states: dict[str, StateNode] = {}
        self._young: frozenset[str] = frozenset()
        self._kept: dict[str, CachedVerdict] = {}
        # Candidates of whom the same pods move for as long as budgets ask for the same.
        self._lasting: set[str] = set()
        # What many verdicts have in common, so that each has it only once.
        self._rules: dict[tuple[object, ...], AskedGroup] = {}
        self._sizes: dict[PodSize, PodSize] = {}
        self.asked = 0

    def find_verdict(self, inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
        """What there is to say about the candidate in this world."""
        if not inputs.snapshot.options.ignore_dra:
            return compute_consolidation(inputs, (candidate,), SINGLE)
        if inputs is not self._inputs:
            self._move_to_input(inputs)
        key = candidate.key
        kept = self._kept.get(key)
        if kept is not None and kept.state is candidate.state and key in self._lasting:
            return kept.verdict.with_candidate(candidate)
        pods = list_moving_pods(inputs, (candidate,))
        (self._lasting.add if _is_lasting(candidate) else self._lasting.discard)(key)
        if kept is None or not _has_same_pods(kept.pods, pods) or not _is_alike(kept.state, candidate.state):
            kept = self._compute_entry(inputs, candidate, pods)
        elif kept.state is not candidate.state:
            kept = dataclasses.replace(kept, state=candidate.state, pods=pods)
        self._kept[key] = kept
        return kept.verdict.with_candidate(candidate)

    def _compute_entry(
        self, inputs: DisruptionInput, candidate: Candidate, pods: tuple[Pod, ...]
    ) -> CachedVerdict:
        self.asked += 1
        simulations: list[WhatIfScheduler] = []
        verdict = _strip_verdict(compute_consolidation(inputs, (candidate,), SINGLE, simulations))
        if not simulations:
            # Free capacity alone decided it: pods that fit on no node still fit on none.
            unplaceable = (
                pod
                for pod in pods
                if inputs.free_capacity.sum_unplaceable((pod,), {candidate.key}) is not None
            )
            reach: dict[PodSize, NodePosition | None] = {
                self._intern_size(compute_nano_requests(pod)): None for pod in unplaceable
            }
            return CachedVerdict(candidate.state, pods, verdict, {}, reach, (), ())
        asked = {build_group_key(*rule): rule for what_if in simulations for rule in what_if.topology.asked}
        rules = (self._rules.setdefault(identity, _strip_counts(rule)) for identity, rule in asked.items())
        kinds = {(id(pod.labels), pod.namespace): pod for pod in simulations[0].batch}
        # What holds up depends on all the room there was; else only on the room that was taken.
        given = _list_offered(simulations) if _checked_robustness(verdict) else _sum_taken(simulations)
        used = {name: self._intern_size(amount) for name, amount in given.items()}
        return CachedVerdict(
            candidate.state,
            pods,
            verdict,
            used,
            self._compute_reach(simulations),
            tuple(rules),
            tuple(kinds.values()),
        )

    def _compute_reach(self, simulations: Iterable[WhatIfScheduler]) -> dict[PodSize, NodePosition | None]:
        """How far each kind of pod looked: to the node it was given, or past all of them."""
        found: dict[PodSize, NodePosition | None] = {}
        for what_if in simulations:
            for pod in what_if.batch:
                wanted = self._intern_size(compute_nano_requests(pod))
                home = what_if.placements.get(pod.full_name, (None,))[0]
                place = (not home.initialized, home.name) if isinstance(home, ExistingNode) else None
                known = found.get(wanted, place)
                found[wanted] = None if known is None or place is None else max(known, place)
        return found

    def _intern_size(self, wanted: Nano) -> PodSize:
        size = frozenset(wanted.items())
        return self._sizes.setdefault(size, size)

    def _move_to_input(self, inputs: DisruptionInput) -> None:
        """Another world: keep what holds there too."""
        states = {views.read_provider_id(state): state for state in inputs.snapshot.nodes}
        young = frozenset(_list_masked_ids(inputs, inputs.base_state.young))
        before = self._inputs
        if before is None or not _has_same_budgets(before.snapshot, inputs.snapshot):
            self._lasting = set()
        if (
            before is None
            or len(states) != len(inputs.snapshot.nodes)
            or not _differs_in_nodes_only(before, inputs)
        ):
            self._kept = {}
        else:
            self._drop_outdated(inputs, states, young)
        self._inputs, self._states, self._young = inputs, states, young

    def _drop_outdated(
        self, inputs: DisruptionInput, states: dict[str, StateNode], young: frozenset[str]
    ) -> None:
        """Let go of what may have become wrong."""
        aged = young ^ self._young
        keys = {key for key in states.keys() | self._states.keys() if _is_changed(key, states, self._states)}
        pairs = [(self._states.get(key), states.get(key)) for key in keys | aged]
        if not pairs:
            return
        change = NodeChanges(inputs, pairs, aged)
        # What a pool may still buy depends on every node it has.
        if inputs.free_capacity.limited or change.size * FEW > len(states) + FEW:
            self._kept = {}
        else:
            self._kept = {key: kept for key, kept in self._kept.items() if not change.affects_verdict(kept)}
        self._rules = {build_group_key(*rule): rule for kept in self._kept.values() for rule in kept.rules}
        if len(self._sizes) > SIZES:
            self._sizes = {}


def _strip_verdict(verdict: ConsolidationVerdict) -> ConsolidationVerdict:
    """The verdict without what nobody reads of it later."""
    command = verdict.command
    if command is None or command.plan is None:
        return verdict
    plan = replace(command.plan, decisions=())
    return ConsolidationVerdict(dataclasses.replace(command, candidates=(), plan=plan), verdict.why)


def _is_lasting(candidate: Candidate) -> bool:
    return not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in candidate.pods)


def _strip_counts(rule: AskedGroup) -> AskedGroup:
    group, tolerations = rule
    return dataclasses.replace(group, counts={}, total=0), tolerations


def _sum_taken(simulations: Iterable[WhatIfScheduler]) -> dict[str, Nano]:
    """How much each node was given, at most."""
    found: dict[str, Nano] = {}
    for what_if in simulations:
        for node in what_if.filled:
            before, mine = what_if.base_state.build_node(node.index).left, found.setdefault(node.name, {})
            for name, left in node.left.items():
                mine[name] = max(mine.get(name, 0), before.get(name, 0) - left)
    return found


def _list_offered(simulations: Iterable[WhatIfScheduler]) -> dict[str, Nano]:
    """How much room the nodes had that were given something."""
    return {
        node.name: {
            name: max(0, left) for name, left in what_if.base_state.build_node(node.index).left.items()
        }
        for what_if in simulations
        for node in what_if.filled
    }


def _checked_robustness(verdict: ConsolidationVerdict) -> bool:
    """Whether it was asked what the scheduler would do."""
    return verdict.why == LEFT_OVER or (verdict.command is not None and bool(verdict.command.replacements))


def _list_masked_ids(inputs: DisruptionInput, mask: int) -> Iterator[str]:
    states = inputs.base_state.states
    return (views.read_provider_id(state) for i, state in enumerate(states) if mask >> i & 1)


def _is_changed(key: str, these: dict[str, StateNode], those: dict[str, StateNode]) -> bool:
    return these.get(key) is not those.get(key)


def _has_same_pods(these: tuple[Pod, ...], those: tuple[Pod, ...]) -> bool:
    return len(these) == len(those) and all(a is b or a == b for a, b in zip(these, those, strict=True))


def _is_alike(old: StateNode, new: StateNode) -> bool:
    """Whether taking out the one is taking out the other."""
    return old is new or (counts_the_same(old, new) and views.read_labels(old) == views.read_labels(new))


# Budgets of pods decide which pods move, and those are compared one by one.
_APART = ("nodes", "options", "budgets")
_COMPARED = tuple(each.name for each in fields(Snapshot) if each.name not in _APART)


def _differs_in_nodes_only(before: DisruptionInput, now: DisruptionInput) -> bool:
    old, new = before.snapshot, now.snapshot
    if before.spot_to_spot != now.spot_to_spot or before.base_state.batch != now.base_state.batch:
        return False
    if replace(old.options, now=new.options.now) != new.options:
        return False
    pairs = ((getattr(old, name), getattr(new, name)) for name in _COMPARED)
    return all(a is b or a == b for a, b in pairs)


def _has_same_budgets(old: Snapshot, new: Snapshot) -> bool:
    """Which pods would move depends on what budgets ask for, not on what they allow at the moment."""
    if len(old.budgets) != len(new.budgets):
        return False
    pairs = zip(old.budgets, new.budgets, strict=True)
    return all(a is b or (a.full_name == b.full_name and a.spec == b.spec) for a, b in pairs)


def recall_verdict(inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
    """The verdict on one candidate, worked out only if it was not known or may have changed."""
    return inputs.cache.get_part(VerdictCache).find_verdict(inputs, candidate)
