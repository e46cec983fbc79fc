"""Spread, affinity and anti-affinity over a whole run.

Every rule on a pod becomes a Group; pods with the same rule share one. Required anti-affinity also
works backwards: a pod must keep away from those that want to be away from it, so each such rule has
an inverse group that counts its owners. Evaluating a pod narrows a candidate's requirements; recording
it counts the pod wherever it may land.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import NamedTuple

from dovetail.api.core import Taint
from dovetail.api.labels import HOSTNAME
from dovetail.api.pod import Pod, PodAffinity, PodAffinityTerm, Toleration, TopologySpreadConstraint
from dovetail.scheduling.model import label_selectors, state_node
from dovetail.scheduling.model.decision_cache import DecisionCache, IdentityCache
from dovetail.scheduling.model.pod_requirements import list_requirement_alternatives
from dovetail.scheduling.model.pod_shapes import Numbering, SchedulingShape
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.topology.domains import TopologyDomains
from dovetail.scheduling.topology.group import TopologyGroup, TopologyNodeFilter, TopologyType

__all__ = [
    "NarrowedDomains",
    "PresentPod",
    "Topology",
    "TopologyFacts",
    "TopologyFactsCache",
    "TopologyNode",
    "build_group_key",
    "list_anti_affinity_terms",
]

SOFT = "ScheduleAnyway"
MOST_OPTIONS = 64


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A running node, as topology sees it: labels and taints as they are, whatever its stage."""

    name: str
    labels: Mapping[str, str]
    requirements: Requirements
    taints: tuple[Taint, ...]
    active: bool

    def find_domain(self, key: str) -> str | None:
        found = self.requirements[key].only if key in self.requirements else None
        return found or (self.name if key == HOSTNAME else None)


class PlacedPods(NamedTuple):
    """Pods of one shape placed together earlier in this run, kept for groups that come up later."""

    shape: SchedulingShape
    taints: Sequence[Taint]
    requirements: Requirements
    pods: int = 1


class NarrowedDomains(NamedTuple):
    """What rules leave of a candidate's labels."""

    by_key: dict[str, Values]
    single: set[str]
    """Labels of which one value must be chosen, any of those left."""

    def list_options(self) -> list[Requirements]:
        """Every way to choose, in a fixed order. They are few: mostly one label, rarely over ten values."""
        if not self.by_key:
            return [Requirements()]
        keys = [key for key in sorted(self.single) if len(self.by_key[key]) > 1]
        chosen = product(*(sorted(self.by_key[key].names) for key in keys))
        return [
            Requirements(self.by_key | {k: Values(frozenset((v,))) for k, v in zip(keys, names, strict=True)})
            for names in islice(chosen, MOST_OPTIONS)
        ]


_UNTOUCHED = NarrowedDomains({}, set())


class Topology:
    """All groups of a run."""

    def __init__(
        self, snapshot: Snapshot, universe: TopologyDomains, batch: AbstractSet[str], cache: DecisionCache
    ) -> None:
        self.universe = universe
        self.preferences = snapshot.options.preferences == "Respect"
        self.namespaces = snapshot.namespaces
        self._facts = cache.get_part(TopologyFactsCache)
        about = cache.get_part(_StateIndexCache).index_states(snapshot.nodes, self._facts)
        self.landmarks = about.landmarks
        self.groups: list[TopologyGroup] = []
        self.inverse: list[TopologyGroup] = []
        self._known: dict[tuple[object, ...], TopologyGroup] = {}
        self._of_specs: dict[
            tuple[int, str, int], tuple[SchedulingShape, list[TopologyGroup], list[TopologyGroup]]
        ] = {}
        self._placed: list[PlacedPods] = []
        self._states, self._batch = snapshot.nodes, batch
        self._residents: list[_Residents] | None = None
        for landmark, shy in about.avoided:
            self._count_avoiding_pods(landmark, shy)

    # What a pod is bound by

    def find_constraints(self, shape: SchedulingShape) -> list[tuple[TopologyGroup, bool]]:
        """The groups that bind a pod, each with whether the pod itself counts in it."""
        if shape.owned is None:
            shape.owned, shape.avoids = self._find_own_groups(shape)
            own = shape.namespace, shape.labels
            for group in shape.owned:
                self._bind_shape(shape, group, group.selects_pod(*own))
        while shape.seen_inverse < len(self.inverse):
            group = self.inverse[shape.seen_inverse]
            shape.seen_inverse += 1
            if group.selects_pod(shape.namespace, shape.labels):
                self._bind_shape(shape, group, True)
        return shape.constraints

    @staticmethod
    def _bind_shape(shape: SchedulingShape, group: TopologyGroup, itself: bool) -> None:
        shape.constraints.append((group, itself))
        cap = group.compute_host_cap(itself)
        if cap is None:
            shape.rules.append((group, itself))
        else:
            shape.host_caps.append((group, cap))

    def _find_own_groups(self, shape: SchedulingShape) -> tuple[list[TopologyGroup], list[TopologyGroup]]:
        """The groups a shape's own rules make and, inverse, those it makes for others. Most have no rules."""
        spec = shape.spec
        if not spec.topology_spread_constraints and spec.affinity is None:
            return [], []
        by_labels = any(rule.match_label_keys for rule in spec.topology_spread_constraints)
        key = (id(spec), shape.namespace, id(shape.labels) if by_labels else 0)
        known = self._of_specs.get(key)
        if known is None:
            owned, avoids = list(self._list_own_groups(shape)), list(self._list_inverse_groups(shape))
            known = self._of_specs[key] = shape, owned, avoids  # the shape keeps spec and labels alive
        return known[1], known[2]

    def _list_own_groups(self, shape: SchedulingShape) -> Iterator[TopologyGroup]:
        found: dict[int, TopologyGroup] = {}
        for rule in shape.spec.topology_spread_constraints:
            if self.preferences or rule.when_unsatisfiable != SOFT:
                group = self._find_spread_group(shape, rule)
                found[id(group)] = group
        affinity = shape.spec.affinity
        for kind, part in (
            (TopologyType.AFFINITY, affinity.pod_affinity if affinity else None),
            (TopologyType.ANTI_AFFINITY, affinity.pod_anti_affinity if affinity else None),
        ):
            for term in self._list_affinity_terms(part):
                group = self._find_affinity_group(shape, kind, term)
                found[id(group)] = group
        yield from found.values()

    def _list_affinity_terms(self, part: PodAffinity | None) -> Iterator[PodAffinityTerm]:
        if part is None:
            return
        yield from part.required
        if self.preferences:
            yield from (each.pod_affinity_term for each in part.preferred)

    def _find_spread_group(self, shape: SchedulingShape, rule: TopologySpreadConstraint) -> TopologyGroup:
        own = {key: shape.labels[key] for key in rule.match_label_keys if key in shape.labels}
        selector = label_selectors.add_labels(rule.label_selector, own)
        honor_taints = rule.node_taints_policy == "Honor"
        honor_affinity = rule.node_affinity_policy != "Ignore"
        nodes_in = TopologyNodeFilter(
            tuple(term for term in list_requirement_alternatives(shape.spec)) if honor_affinity else (),
            honor_taints,
            shape.tolerations if honor_taints else (),
        )
        group = TopologyGroup(
            TopologyType.SPREAD,
            rule.topology_key,
            frozenset((shape.namespace,)),
            selector,
            rule.max_skew,
            rule.min_domains,
            nodes_in,
        )
        return self._share_group(group, shape.tolerations if honor_taints else None)

    def _find_affinity_group(
        self, shape: SchedulingShape, rule: TopologyType, term: PodAffinityTerm
    ) -> TopologyGroup:
        spaces = self._list_namespaces(shape.namespace, term)
        group = TopologyGroup(rule, term.topology_key, spaces, term.label_selector)
        return self._share_group(group, shape.tolerations)

    def _list_inverse_groups(self, shape: SchedulingShape) -> Iterator[TopologyGroup]:
        affinity = shape.spec.affinity
        if affinity is None or affinity.pod_anti_affinity is None:
            return
        for term in affinity.pod_anti_affinity.required:
            yield self._find_inverse_group(shape.namespace, term)

    def _find_inverse_group(self, namespace: str, term: PodAffinityTerm) -> TopologyGroup:
        return self._share_group(self.build_inverse_group(namespace, term), None)

    def build_inverse_group(self, namespace: str, term: PodAffinityTerm) -> TopologyGroup:
        """Who must keep away from a pod of this namespace that has the term; nothing is counted yet."""
        spaces = self._list_namespaces(namespace, term)
        return TopologyGroup(
            TopologyType.ANTI_AFFINITY, term.topology_key, spaces, term.label_selector, inverse=True
        )

    def _list_namespaces(self, namespace: str, term: PodAffinityTerm) -> frozenset[str]:
        """The namespaces an affinity term speaks of."""
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (namespace,))
        matching = (
            name
            for name, labels in self.namespaces.items()
            if label_selectors.matches_selector(term.namespace_selector, labels)
        )
        return frozenset((*matching, *term.namespaces))

    def _share_group(self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> TopologyGroup:
        """The group with this rule: the one that is there already, or this one with its first counts."""
        identity = build_group_key(group, tolerations)
        known = self._known.get(identity)
        if known is None:
            known = self._known[identity] = group
            self._start_counts(group, tolerations)
            (self.inverse if group.inverse else self.groups).append(group)
        return known

    def _start_counts(self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> None:
        self._count_existing_pods(group, tolerations)
        if group.inverse:
            return
        for placement in self._placed:
            if group.selects_pod(placement.shape.namespace, placement.shape.labels):
                _count_pods(group, placement.taints, placement.requirements, placement.pods)

    def _count_existing_pods(self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> None:
        universe, key = self.universe, group.key
        group.register_domains(
            universe.list_domains(key)
            if tolerations is None
            else universe.list_tolerated_domains(key, tolerations)
        )
        for landmark in self.landmarks:
            if landmark is not None and landmark.active and self._accepts_node(group, landmark):
                domain = landmark.requirements[group.key].only
                if domain is not None:
                    group.register_domains((domain,))
        if group.inverse:
            return
        if self._residents is None:  # most batches have no rules, and never ask
            self._residents = list(self._group_residents())
        for residents in self._residents:
            if group.selects_pod(residents.namespace, residents.labels):
                self._count_residents(group, residents.on)

    def _group_residents(self) -> Iterable[_Residents]:
        found: dict[tuple[str, int], _Residents] = {}
        labels = Numbering()
        for state, landmark in zip(self._states, self.landmarks, strict=True):
            if landmark is None:
                continue
            for name, namespace, own in self._facts.find_facts(state).present_pods:
                if name in self._batch:
                    continue
                key = namespace, labels.number_value(own)
                known = found.get(key)
                if known is None:
                    known = found[key] = _Residents(namespace, own, [])
                known.on.append(landmark)
        return found.values()

    def _accepts_node(self, group: TopologyGroup, landmark: TopologyNode) -> bool:
        return group.filter.accepts_node(landmark.taints, landmark.requirements)

    def _count_residents(self, group: TopologyGroup, on: Sequence[TopologyNode]) -> None:
        for landmark in on:
            domain = landmark.find_domain(group.key)
            if domain is not None and self._accepts_node(group, landmark):
                group.record_pods(domain)

    def _count_avoiding_pods(self, landmark: TopologyNode, shy: Sequence[Pod]) -> None:
        """Running pods that want to be away from others are kept away from."""
        for pod in shy:
            if pod.full_name in self._batch:
                continue
            for term in list_anti_affinity_terms(pod):
                group = self._find_inverse_group(pod.namespace, term)
                domain = landmark.find_domain(group.key)
                if domain is not None:
                    group.record_pods(domain)

    # Deciding and recording

    def narrow_domains(
        self, shape: SchedulingShape, requirements: Requirements
    ) -> NarrowedDomains | TopologyGroup:
        """What the pod's rules leave of a candidate's labels, or the rule that leaves nothing.

        Rules that cap a host are not asked here: places look at those first. Until somebody is placed,
        candidates with the same labels get the same answer.
        """
        self.find_constraints(shape)
        if not shape.rules:
            return _UNTOUCHED
        if shape.narrowed_at != len(self._placed):
            shape.narrowed_at = len(self._placed)
            shape.narrowed.clear()
        view = tuple(requirements[group.key] for group, _ in shape.rules)
        found = shape.narrowed.get(view)
        if found is None:
            found = shape.narrowed[view] = self._compute_narrowed(shape, requirements)
        assert isinstance(found, NarrowedDomains | TopologyGroup)
        return found

    @staticmethod
    def _compute_narrowed(
        shape: SchedulingShape, requirements: Requirements
    ) -> NarrowedDomains | TopologyGroup:
        """Karpenter: each rule is asked about the candidate as it is, not as rules before have left it."""
        narrowed: dict[str, Values] = {}
        single: set[str] = set()
        for group, itself in shape.rules:
            key = group.key
            node = requirements[key]
            allowed = group.find_allowed_domains(itself, shape.strict[key], node)
            if allowed is None:
                return group
            if allowed.domains is not node:
                known = narrowed.get(key)
                narrowed[key] = allowed.domains if known is None else known & allowed.domains
            if allowed.one:
                single.add(key)
        return NarrowedDomains(narrowed, single)

    def record_pods(
        self, shape: SchedulingShape, taints: Sequence[Taint], requirements: Requirements, pods: int = 1
    ) -> None:
        """Count a pod that has found its place, or so many of one shape that have found the same."""
        while shape.seen_groups < len(self.groups):
            group = self.groups[shape.seen_groups]
            shape.seen_groups += 1
            if group.selects_pod(shape.namespace, shape.labels):
                shape.counted_in.append(group)
        for group in shape.counted_in:
            _count_pods(group, taints, requirements, pods)
        for group in shape.avoids:
            for domain in _list_possible_domains(requirements[group.key]):
                group.record_pods(domain, pods)
        self._placed.append(PlacedPods(shape, taints, requirements, pods))


def build_group_key(group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> tuple[object, ...]:
    """What makes two rules one: groups of one identity share their counts."""
    return (
        group.rule,
        group.key,
        group.inverse,
        group.namespaces,
        label_selectors.build_selector_key(group.selector),
        group.max_skew,
        group.min_domains,
        group.filter.key,
        tolerations,
    )


def _count_pods(group: TopologyGroup, taints: Sequence[Taint], requirements: Requirements, pods: int) -> None:
    """A pod counts where it surely is; for those that must keep away from it, wherever it may be."""
    if not group.filter.accepts_node(taints, requirements):
        return
    values = requirements[group.key]
    if group.rule is TopologyType.ANTI_AFFINITY:
        for each in _list_possible_domains(values):
            group.record_pods(each, pods)
    elif (domain := values.only) is not None:
        group.record_pods(domain, pods)


def _list_possible_domains(values: Values) -> Iterable[str]:
    return () if values.open else values.names


@dataclass(frozen=True, slots=True)
class _Residents:
    """Running pods that topology cannot tell apart, and the nodes they are on, one entry per pod."""

    namespace: str
    labels: Mapping[str, str]
    on: list[TopologyNode]


PresentPod = tuple[str, str, Mapping[str, str]]
"""A pod's full name, namespace and labels."""


class TopologyFacts:
    """What topology reads of a node and its pods, each computed when it is first asked for."""

    def __init__(self, state: StateNode) -> None:
        self._state = state

    @cached_property
    def node(self) -> TopologyNode | None:
        """The node as topology sees it; None while there is only a NodeClaim."""
        node = self._state.node
        if node is None:
            return None
        labels = Requirements.from_labels(node.labels)
        active = not state_node.is_deleting(self._state)
        return TopologyNode(node.name, node.labels, labels, node.spec.taints, active)

    @cached_property
    def anti_affinity_pods(self) -> tuple[Pod, ...]:
        """The pods of the node that must be kept away from others.

        The scheduler keeps others away from a terminating pod until it is gone, so it counts here as well.
        """
        state = self._state
        found = (pod for pod in state_node.list_running_pods(state.pods) if list_anti_affinity_terms(pod))
        return tuple(found)

    @cached_property
    def present_pods(self) -> tuple[PresentPod, ...]:
        """The pods of the node that count: neither finished nor on their way out."""
        state = self._state
        found = (pod for pod in state_node.list_running_pods(state.pods) if not pod.deleting)
        return tuple((pod.full_name, pod.namespace, pod.labels) for pod in found)


class TopologyFactsCache(IdentityCache[TopologyFacts]):
    """The facts of every node that rules were asked about."""

    def find_facts(self, state: StateNode) -> TopologyFacts:
        return self.get(state) or self.put(TopologyFacts(state), state)


class _StateIndex(NamedTuple):
    """What topology sees of the nodes of a snapshot, whoever waits."""

    landmarks: tuple[TopologyNode | None, ...]
    avoided: tuple[tuple[TopologyNode, tuple[Pod, ...]], ...]
    """Nodes with pods that must be kept away from others."""


class _StateIndexCache(IdentityCache[_StateIndex]):
    """The index of the nodes of each snapshot."""

    def index_states(self, states: tuple[StateNode, ...], cache: TopologyFactsCache) -> _StateIndex:
        known = self.get(states)
        if known is None:
            facts = [cache.find_facts(state) for state in states]
            pairs = ((each.node, each.anti_affinity_pods) for each in facts)
            avoided = tuple((landmark, shy) for landmark, shy in pairs if landmark is not None and shy)
            known = self.put(_StateIndex(tuple(each.node for each in facts), avoided), states)
        return known


def list_anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
