"""Spread, affinity and anti-affinity over a whole run.

Every rule on a pod becomes a Group; pods with the same rule share one. Required anti-affinity also
works backwards: a pod must keep away from those that want to be away from it, so each such rule has
an inverse group that counts its owners. Evaluating a pod narrows a candidate's requirements; recording
it counts the pod wherever it may land.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import NamedTuple

from dovetail.api.core import Taint
from dovetail.api.labels import HOSTNAME
from dovetail.api.pod import Pod, PodAffinity, PodAffinityTerm, Toleration, TopologySpreadConstraint
from dovetail.scheduling import nodes, selectors
from dovetail.scheduling.domains import Universe
from dovetail.scheduling.groups import Group, NodeFilter, Rule
from dovetail.scheduling.pods import alternatives
from dovetail.scheduling.remembered import Remembered
from dovetail.scheduling.requirements import Requirements, Values
from dovetail.scheduling.shapes import Numbering, Shape
from dovetail.scheduling.snapshot import Snapshot, StateNode

__all__ = [
    "Landmark",
    "Narrowed",
    "Topology",
    "avoiding",
    "identity_of",
    "landmark_of",
    "present_pods",
    "shy_pods",
]

SOFT = "ScheduleAnyway"
MOST_OPTIONS = 64


@dataclass(frozen=True, slots=True)
class Landmark:
    """A running node, as topology sees it: labels and taints as they are, whatever its stage."""

    name: str
    labels: Mapping[str, str]
    requirements: Requirements
    taints: tuple[Taint, ...]
    active: bool

    def domain(self, key: str) -> str | None:
        found = self.requirements[key].only if key in self.requirements else None
        return found or (self.name if key == HOSTNAME else None)


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod placed earlier in this run, kept for groups that come up later."""

    shape: Shape
    taints: Sequence[Taint]
    requirements: Requirements


class Narrowed(NamedTuple):
    """What rules leave of a candidate's labels."""

    by_key: dict[str, Values]
    single: set[str]
    """Labels of which one value must be chosen, any of those left."""

    def options(self) -> list[Requirements]:
        """Every way to choose, in a fixed order. They are few: mostly one label, rarely over ten values."""
        if not self.by_key:
            return [Requirements()]
        keys = [key for key in sorted(self.single) if len(self.by_key[key]) > 1]
        chosen = product(*(sorted(self.by_key[key].names) for key in keys))
        return [
            Requirements(self.by_key | {k: Values(frozenset((v,))) for k, v in zip(keys, names, strict=True)})
            for names in islice(chosen, MOST_OPTIONS)
        ]


_UNTOUCHED = Narrowed({}, set())


class Topology:
    """All groups of a run."""

    def __init__(self, snapshot: Snapshot, universe: Universe, batch: frozenset[str]) -> None:
        self.universe = universe
        self.preferences = snapshot.options.preferences == "Respect"
        self.namespaces = snapshot.namespaces
        about = _about(snapshot.nodes)
        self.landmarks = about.landmarks
        self.groups: list[Group] = []
        self.inverse: list[Group] = []
        self._known: dict[tuple[object, ...], Group] = {}
        self._placed: list[Placement] = []
        self._states, self._batch = snapshot.nodes, batch
        self._residents: list[_Residents] | None = None
        for landmark, shy in about.avoided:
            self._avoided_by(landmark, shy)

    # What a pod is bound by

    def constraints(self, shape: Shape) -> list[tuple[Group, bool]]:
        """The groups that bind a pod, each with whether the pod itself counts in it."""
        if shape.owned is None:
            shape.owned = list(self._own(shape))
            shape.avoids = list(self._inverse_of(shape))
            own = shape.namespace, shape.labels
            for group in shape.owned:
                self._bind(shape, group, group.selects(*own))
        while shape.seen_inverse < len(self.inverse):
            group = self.inverse[shape.seen_inverse]
            shape.seen_inverse += 1
            if group.selects(shape.namespace, shape.labels):
                self._bind(shape, group, True)
        return shape.constraints

    @staticmethod
    def _bind(shape: Shape, group: Group, itself: bool) -> None:
        shape.constraints.append((group, itself))
        cap = group.host_cap(itself)
        if cap is None:
            shape.rules.append((group, itself))
        else:
            shape.host_caps.append((group, cap))

    def _own(self, shape: Shape) -> Iterator[Group]:
        found: dict[int, Group] = {}
        for rule in shape.spec.topology_spread_constraints:
            if self.preferences or rule.when_unsatisfiable != SOFT:
                group = self._spread(shape, rule)
                found[id(group)] = group
        affinity = shape.spec.affinity
        for kind, part in (
            (Rule.AFFINITY, affinity.pod_affinity if affinity else None),
            (Rule.ANTI_AFFINITY, affinity.pod_anti_affinity if affinity else None),
        ):
            for term in self._terms(part):
                group = self._affinity(shape, kind, term)
                found[id(group)] = group
        yield from found.values()

    def _terms(self, part: PodAffinity | None) -> Iterator[PodAffinityTerm]:
        if part is None:
            return
        yield from part.required
        if self.preferences:
            yield from (each.pod_affinity_term for each in part.preferred)

    def _spread(self, shape: Shape, rule: TopologySpreadConstraint) -> Group:
        own = {key: shape.labels[key] for key in rule.match_label_keys if key in shape.labels}
        selector = selectors.with_labels(rule.label_selector, own)
        honor_taints = rule.node_taints_policy == "Honor"
        honor_affinity = rule.node_affinity_policy != "Ignore"
        nodes_in = NodeFilter(
            tuple(term for term in alternatives(shape.spec)) if honor_affinity else (),
            honor_taints,
            shape.tolerations if honor_taints else (),
        )
        group = Group(
            Rule.SPREAD,
            rule.topology_key,
            frozenset((shape.namespace,)),
            selector,
            rule.max_skew,
            rule.min_domains,
            nodes_in,
        )
        return self._shared(group, shape.tolerations if honor_taints else None)

    def _affinity(self, shape: Shape, rule: Rule, term: PodAffinityTerm) -> Group:
        spaces = self._spaces(shape.namespace, term)
        group = Group(rule, term.topology_key, spaces, term.label_selector)
        return self._shared(group, shape.tolerations)

    def _inverse_of(self, shape: Shape) -> Iterator[Group]:
        affinity = shape.spec.affinity
        if affinity is None or affinity.pod_anti_affinity is None:
            return
        for term in affinity.pod_anti_affinity.required:
            yield self._inverse_group(shape.namespace, term)

    def _inverse_group(self, namespace: str, term: PodAffinityTerm) -> Group:
        return self._shared(self.turned_round(namespace, term), None)

    def turned_round(self, namespace: str, term: PodAffinityTerm) -> Group:
        """Who must keep away from a pod of this namespace that has the term; nothing is counted yet."""
        spaces = self._spaces(namespace, term)
        return Group(Rule.ANTI_AFFINITY, term.topology_key, spaces, term.label_selector, inverse=True)

    def _spaces(self, namespace: str, term: PodAffinityTerm) -> frozenset[str]:
        """The namespaces an affinity term speaks of."""
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (namespace,))
        matching = (
            name
            for name, labels in self.namespaces.items()
            if selectors.matches(term.namespace_selector, labels)
        )
        return frozenset((*matching, *term.namespaces))

    def _shared(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> Group:
        """The group with this rule: the one that is there already, or this one with its first counts."""
        identity = identity_of(group, tolerations)
        known = self._known.get(identity)
        if known is None:
            known = self._known[identity] = group
            self._start(group, tolerations)
            (self.inverse if group.inverse else self.groups).append(group)
        return known

    def _start(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> None:
        self._count_running(group, tolerations)
        if group.inverse:
            return
        for placement in self._placed:
            if group.selects(placement.shape.namespace, placement.shape.labels):
                _count(group, placement.taints, placement.requirements)

    def _count_running(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> None:
        universe, key = self.universe, group.key
        group.register(universe.all(key) if tolerations is None else universe.tolerated(key, tolerations))
        for landmark in self.landmarks:
            if landmark is not None and landmark.active and self._takes_part(group, landmark):
                domain = landmark.requirements[group.key].only
                if domain is not None:
                    group.register((domain,))
        if group.inverse:
            return
        if self._residents is None:  # most batches have no rules, and never ask
            self._residents = list(_residents(self._states, self.landmarks, self._batch))
        for residents in self._residents:
            if group.selects(residents.namespace, residents.labels):
                self._count_residents(group, residents.on)

    def _takes_part(self, group: Group, landmark: Landmark) -> bool:
        return group.filter.accepts(landmark.taints, landmark.requirements)

    def _count_residents(self, group: Group, on: Sequence[Landmark]) -> None:
        for landmark in on:
            domain = landmark.domain(group.key)
            if domain is not None and self._takes_part(group, landmark):
                group.count(domain)

    def _avoided_by(self, landmark: Landmark, shy: Sequence[Pod]) -> None:
        """Running pods that want to be away from others are kept away from."""
        for pod in shy:
            if pod.full_name in self._batch:
                continue
            for term in avoiding(pod):
                group = self._inverse_group(pod.namespace, term)
                domain = landmark.domain(group.key)
                if domain is not None:
                    group.count(domain)

    # Deciding and recording

    def narrow(self, shape: Shape, requirements: Requirements) -> Narrowed | Group:
        """What the pod's rules leave of a candidate's labels, or the rule that leaves nothing.

        Rules that cap a host are not asked here: places look at those first. Until somebody is placed,
        candidates with the same labels get the same answer.
        """
        self.constraints(shape)
        if not shape.rules:
            return _UNTOUCHED
        if shape.narrowed_at != len(self._placed):
            shape.narrowed_at = len(self._placed)
            shape.narrowed.clear()
        view = tuple(requirements[group.key] for group, _ in shape.rules)
        found = shape.narrowed.get(view)
        if found is None:
            found = shape.narrowed[view] = self._narrow(shape, requirements)
        assert isinstance(found, Narrowed | Group)
        return found

    @staticmethod
    def _narrow(shape: Shape, requirements: Requirements) -> Narrowed | Group:
        """Karpenter: each rule is asked about the candidate as it is, not as rules before have left it."""
        narrowed: dict[str, Values] = {}
        single: set[str] = set()
        for group, itself in shape.rules:
            key = group.key
            node = requirements[key]
            allowed = group.allowed(itself, shape.strict[key], node)
            if allowed is None:
                return group
            if allowed.domains is not node:
                known = narrowed.get(key)
                narrowed[key] = allowed.domains if known is None else known & allowed.domains
            if allowed.one:
                single.add(key)
        return Narrowed(narrowed, single)

    def record(self, shape: Shape, taints: Sequence[Taint], requirements: Requirements) -> None:
        """Count a pod that has found its place."""
        while shape.seen_groups < len(self.groups):
            group = self.groups[shape.seen_groups]
            shape.seen_groups += 1
            if group.selects(shape.namespace, shape.labels):
                shape.counted_in.append(group)
        for group in shape.counted_in:
            _count(group, taints, requirements)
        for group in shape.avoids:
            for domain in _possible(requirements[group.key]):
                group.count(domain)
        self._placed.append(Placement(shape, taints, requirements))


def identity_of(group: Group, tolerations: tuple[Toleration, ...] | None) -> tuple[object, ...]:
    """What makes two rules one: groups of one identity share their counts."""
    return (
        group.rule,
        group.key,
        group.inverse,
        group.namespaces,
        selectors.key_of(group.selector),
        group.max_skew,
        group.min_domains,
        group.filter.key,
        tolerations,
    )


def _count(group: Group, taints: Sequence[Taint], requirements: Requirements) -> None:
    """A pod counts where it surely is; for those that must keep away from it, wherever it may be."""
    if not group.filter.accepts(taints, requirements):
        return
    values = requirements[group.key]
    if group.rule is Rule.ANTI_AFFINITY:
        for each in _possible(values):
            group.count(each)
    elif (domain := values.only) is not None:
        group.count(domain)


def _possible(values: Values) -> Iterable[str]:
    return () if values.open else values.names


@dataclass(frozen=True, slots=True)
class _Residents:
    """Running pods that topology cannot tell apart, and the nodes they are on, one entry per pod."""

    namespace: str
    labels: Mapping[str, str]
    on: list[Landmark]


_LANDMARKS: Remembered[Landmark] = Remembered()
_SHY: Remembered[tuple[Pod, ...]] = Remembered()
Present = tuple[str, str, Mapping[str, str]]
"""A pod's full name, namespace and labels."""
_PRESENT: Remembered[tuple[Present, ...]] = Remembered()


def landmark_of(state: StateNode) -> Landmark | None:
    if state.node is None:
        return None
    known = _LANDMARKS.get(state)
    if known is None:
        node = state.node
        labels = Requirements.labels(node.labels)
        active = not nodes.deleting(state)
        known = _LANDMARKS.put(Landmark(node.name, node.labels, labels, node.spec.taints, active), state)
    return known


class _About(NamedTuple):
    """What topology sees of the nodes of a snapshot, whoever waits."""

    landmarks: tuple[Landmark | None, ...]
    avoided: tuple[tuple[Landmark, tuple[Pod, ...]], ...]
    """Nodes with pods that must be kept away from others."""


_ABOUT: Remembered[_About] = Remembered()


def _about(states: tuple[StateNode, ...]) -> _About:
    known = _ABOUT.get(states)
    if known is None:
        landmarks = tuple(map(landmark_of, states))
        pairs = zip(landmarks, map(shy_pods, states), strict=True)
        avoided = tuple((landmark, shy) for landmark, shy in pairs if landmark is not None and shy)
        known = _ABOUT.put(_About(landmarks, avoided), states)
    return known


def avoiding(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()


def shy_pods(state: StateNode) -> tuple[Pod, ...]:
    """The pods of a node that must be kept away from others.

    The scheduler keeps others away from a terminating pod until it is gone, so it counts here as well.
    """
    known = _SHY.get(state)
    if known is None:
        found = (pod for pod in nodes.running(state.pods) if avoiding(pod))
        known = _SHY.put(tuple(found), state)
    return known


def present_pods(state: StateNode) -> tuple[Present, ...]:
    """The pods of a node that count: neither finished nor on their way out."""
    known = _PRESENT.get(state)
    if known is None:
        found = (pod for pod in nodes.running(state.pods) if not pod.deleting)
        known = _PRESENT.put(tuple((pod.full_name, pod.namespace, pod.labels) for pod in found), state)
    return known


def _residents(
    states: Sequence[StateNode], landmarks: Sequence[Landmark | None], batch: frozenset[str]
) -> Iterable[_Residents]:
    found: dict[tuple[str, int], _Residents] = {}
    labels = Numbering()
    for state, landmark in zip(states, landmarks, strict=True):
        for name, namespace, own in present_pods(state) if landmark is not None else ():
            if name in batch:
                continue
            key = namespace, labels.number(own)
            known = found.get(key)
            if known is None:
                known = found[key] = _Residents(namespace, own, [])
            assert landmark is not None
            known.on.append(landmark)
    return found.values()
