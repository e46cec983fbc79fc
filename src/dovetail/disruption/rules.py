"""Topology rules for many trials: counted once over the whole world, less the nodes a trial takes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from dovetail.api.pod import Toleration
from dovetail.disruption.tally import Tally
from dovetail.scheduling.domains import Universe
from dovetail.scheduling.groups import Group
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.shapes import Numbering, Shape
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.scheduling.topology import (
    Landmark,
    Topology,
    avoiding,
    identity_of,
    landmark_of,
    present_pods,
    shy_pods,
)

__all__ = ["Rules", "TrialTopology"]

Identity = tuple[object, ...]


@dataclass
class Share:
    """What one node adds to a rule: the domain it makes known, and pods counted in domains."""

    known: str | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    owners: int = 0
    """Pods there that others must keep away from, by this rule."""


@dataclass
class Counts:
    """A rule over the whole world. `fixed` are domains that pools could make, whatever nodes there are."""

    fixed: AbstractSet[str]
    known: Counter[str]
    counted: Counter[str] = field(default_factory=Counter)
    owners: int = 0

    @cached_property
    def domains(self) -> Mapping[str, object]:
        """Every domain there is, with no node out; that nodes know of it is what most rules share."""
        return self.known if self.known.keys() >= self.fixed else {**self.known, **dict.fromkeys(self.fixed)}

    @cached_property
    def total(self) -> int:
        return self.counted.total()

    def fill(self, group: Group, out: Sequence[Share]) -> None:
        """Give a group these counts, less the shares of nodes that are out."""
        counts, total = dict(self.counted), self.total
        for share in out:
            for domain, number in share.counted.items():
                counts[domain] -= number
                total -= number
        concerned = {share.known for share in out} | {domain for share in out for domain in share.counted}
        gone: set[str] = set()
        for name in concerned:
            if name is None or name in self.fixed or counts.get(name):
                continue
            if self.known[name] == sum(share.known == name for share in out):
                counts.pop(name, None)
                gone.add(name)
        group.counts, group.total = Tally(self.domains, counts, gone), total


class Rules:
    """Every rule that was asked about, counted over all nodes; `batch` are the pods that are placed anew."""

    def __init__(self, snapshot: Snapshot, universe: Universe, batch: AbstractSet[str]) -> None:
        self.snapshot = snapshot
        self.universe = universe
        self.batch = batch
        self._labels = Numbering()
        self._counts: dict[Identity, Counts] = {}
        self._by_nodes: dict[tuple[str, object], Counter[str]] = {}
        self._kept_away: dict[tuple[str, int], list[Group]] = {}
        self._bare = Topology(Snapshot(namespaces=snapshot.namespaces), universe, frozenset())
        # Terms are told apart by identity: the snapshot holds on to them.
        self._by_term: dict[tuple[str, int], tuple[Identity, Group]] = {}

    @cached_property
    def _landmarks(self) -> list[tuple[StateNode, Landmark]]:
        found = ((state, landmark_of(state)) for state in self.snapshot.nodes)
        return [(state, landmark) for state, landmark in found if landmark is not None]

    @cached_property
    def _residents(self) -> dict[tuple[str, int], list[Landmark]]:
        """Where pods that rules cannot tell apart run: one entry per pod."""
        found: dict[tuple[str, int], list[Landmark]] = {}
        for state, landmark in self._landmarks:
            for name, namespace, labels in present_pods(state):
                if name not in self.batch:
                    found.setdefault((namespace, self._labels.number(labels)), []).append(landmark)
        return found

    @cached_property
    def _by_label(self) -> dict[tuple[str, str, str], list[tuple[str, int]]]:
        """The residents that have a label, by namespace, key and value: most rules ask for a few."""
        found: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
        for namespace, number in self._residents:
            for key, value in self._labels.rows[number].items():
                found.setdefault((namespace, key, value), []).append((namespace, number))
        return found

    def _who(self, group: Group) -> Iterator[tuple[str, int]]:
        """The residents that a rule might count."""
        asked = group.selector.match_labels if group.selector is not None else {}
        for key, value in asked.items():
            for namespace in group.namespaces:
                yield from self._by_label.get((namespace, key, value), ())
            return
        yield from self._residents

    @cached_property
    def inverse(self) -> dict[Identity, tuple[Group, Counts]]:
        """The rules of running pods that others must keep away from them."""
        found: dict[Identity, tuple[Group, Counts]] = {}
        for state, landmark in self._landmarks:
            for identity, group in self.turned_round(state):
                known = found.get(identity)
                if known is None:
                    known = found[identity] = group, self._known(group, None)
                domain = landmark.domain(group.key)
                known[1].owners += 1
                if domain is not None:
                    known[1].counted[domain] += 1
        return found

    def turned_round(self, state: StateNode) -> Iterator[tuple[Identity, Group]]:
        """For each pod of a node and each of its terms, who must keep away from it."""
        for pod in shy_pods(state):
            for term in avoiding(pod) if pod.full_name not in self.batch else ():
                known = self._by_term.get((pod.namespace, id(term)))
                if known is None:
                    group = self._bare.turned_round(pod.namespace, term)
                    known = self._by_term[pod.namespace, id(term)] = identity_of(group, None), group
                yield known

    def keeping_away(self, shape: Shape) -> list[Group]:
        """The rules of running pods that bind a shape of pod."""
        if not self.inverse:
            return []
        key = shape.namespace, self._labels.number(shape.labels)
        known = self._kept_away.get(key)
        if known is None:
            every = (group for group, _ in self.inverse.values())
            known = self._kept_away[key] = [g for g in every if g.selects(shape.namespace, shape.labels)]
        return known

    def counts(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> Counts:
        identity = identity_of(group, tolerations)
        if group.inverse and identity in self.inverse:
            return self.inverse[identity][1]
        found = self._counts.get(identity)
        if found is None:
            found = self._counts[identity] = self._known(group, tolerations)
            if not group.inverse:
                self._count(group, found)
        return found

    def _known(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> Counts:
        universe, key = self.universe, group.key
        fixed = universe.all(key) if tolerations is None else universe.tolerated(key, tolerations)
        return Counts(frozenset(fixed), self._known_by_nodes(group))

    def _known_by_nodes(self, group: Group) -> Counter[str]:
        """How many nodes make each domain known, counted once for all rules that look at the same nodes."""
        which = group.key, group.filter.key
        found = self._by_nodes.get(which)
        if found is None:
            found = self._by_nodes[which] = Counter()
            for _, landmark in self._landmarks:
                if landmark.active and group.filter.accepts(landmark.taints, landmark.requirements):
                    domain = landmark.requirements[group.key].only
                    if domain is not None:
                        found[domain] += 1
        return found

    def _count(self, group: Group, into: Counts) -> None:
        rows = self._labels.rows
        for namespace, number in self._who(group):
            if namespace in group.namespaces and matches(group.selector, rows[number]):
                for landmark in self._residents[namespace, number]:
                    domain = landmark.domain(group.key)
                    if domain is not None and group.filter.accepts(landmark.taints, landmark.requirements):
                        into.counted[domain] += 1

    def share(self, group: Group, state: StateNode | None) -> Share:
        """What one node adds to a rule."""
        landmark = landmark_of(state) if state is not None else None
        if state is None or landmark is None:
            return Share()
        accepted = group.filter.accepts(landmark.taints, landmark.requirements)
        known = landmark.requirements[group.key].only if accepted and landmark.active else None
        domain = landmark.domain(group.key)
        if group.inverse:
            owners = self._owners(group, state)
            return Share(known, {domain: owners} if domain is not None and owners else {}, owners)
        number = 0
        if accepted and domain is not None:
            number = sum(
                name not in self.batch and group.selects(namespace, labels)
                for name, namespace, labels in present_pods(state)
            )
        return Share(known, {domain: number} if domain is not None and number else {})

    def _owners(self, group: Group, state: StateNode) -> int:
        mine = identity_of(group, None)
        return sum(identity == mine for identity, _ in self.turned_round(state))


class TrialTopology(Topology):
    """The groups of one trial, filled from what is known of the whole world."""

    def __init__(self, rules: Rules, out: Sequence[StateNode]) -> None:
        snapshot = rules.snapshot
        super().__init__(
            Snapshot(namespaces=snapshot.namespaces, options=snapshot.options), rules.universe, frozenset()
        )
        self._rules = rules
        self._out = out
        self.asked: list[tuple[Group, tuple[Toleration, ...] | None]] = []

    def constraints(self, shape: Shape) -> list[tuple[Group, bool]]:
        if shape.owned is None:
            for group in self._rules.keeping_away(shape):
                self._wake(group)
        return super().constraints(shape)

    def _wake(self, group: Group) -> None:
        """A rule of running pods binds someone in this trial, unless all who have it are out."""
        counts = self._rules.counts(group, None)
        if counts.owners > sum(self._rules.share(group, state).owners for state in self._out):
            self._shared(replace(group, counts={}, total=0), None)

    def _count_running(self, group: Group, tolerations: tuple[Toleration, ...] | None) -> None:
        self.asked.append((group, tolerations))
        shares = [self._rules.share(group, state) for state in self._out]
        self._rules.counts(group, tolerations).fill(group, shares)
