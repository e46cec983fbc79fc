"""Topology rules for many what-ifs: counted once over the whole world, less the nodes a what-if takes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from dovetail.api.pod import Toleration
from dovetail.disruption.simulation.residents import ResidentIndex, ResidentKind
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.pod_shapes import Numbering, SchedulingShape
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.topology.domains import TopologyDomains
from dovetail.scheduling.topology.group import TopologyGroup
from dovetail.scheduling.topology.tracker import (
    Topology,
    TopologyFactsCache,
    TopologyNode,
    build_group_key,
    list_anti_affinity_terms,
)

__all__ = ["BaseTopology", "SparseCounts", "WhatIfTopology"]


class SparseCounts(dict[str, int]):
    """A dict in which every domain that is known and not gone has none until something is counted there.

    What is known is shared by all rules that look at the same nodes, and is not copied.
    """

    __slots__ = ("_gone", "_known")

    def __init__(
        self, known: Mapping[str, object], counted: Mapping[str, int], gone: AbstractSet[str] = frozenset()
    ) -> None:
        super().__init__(counted)
        self._known = known
        self._gone = gone

    def __missing__(self, domain: str) -> int:
        if domain in self:
            return 0
        raise KeyError(domain)

    def __contains__(self, domain: object) -> bool:
        return super().__contains__(domain) or (domain in self._known and domain not in self._gone)

    def get(self, domain: str, default: Any = None) -> Any:
        found = super().get(domain)
        return found if found is not None else 0 if domain in self else default

    def setdefault(self, domain: str, default: int = 0) -> int:
        if domain not in self:
            self[domain] = default
        return self[domain]

    def _list_uncounted(self) -> Iterator[str]:
        counted = super().__contains__
        return (each for each in self._known if each not in self._gone and not counted(each))

    def __iter__(self) -> Iterator[str]:
        return chain(super().__iter__(), self._list_uncounted())

    def __len__(self) -> int:
        listed = sum(1 for each in self._gone if each in self._known)
        more = sum(1 for each in super().__iter__() if each not in self._known or each in self._gone)
        return len(self._known) - listed + more

    def keys(self) -> Any:
        return dict.fromkeys(self).keys()

    def values(self) -> Any:
        return dict(self).values()

    def items(self) -> Any:
        return ((each, self[each]) for each in self)


Identity = tuple[object, ...]


@dataclass
class NodeShare:
    """What one node adds to a rule: the domain it makes known, and pods counted in domains."""

    known: str | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    owners: int = 0
    """Pods there that others must keep away from, by this rule."""


@dataclass
class TopologyCounts:
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

    def fill_group(self, group: TopologyGroup, out: Sequence[NodeShare]) -> None:
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
        group.counts, group.total = SparseCounts(self.domains, counts, gone), total


class BaseTopology:
    """Every rule that was asked about, counted over all nodes; `batch` are the pods that are placed anew."""

    def __init__(
        self, snapshot: Snapshot, universe: TopologyDomains, batch: AbstractSet[str], cache: DecisionCache
    ) -> None:
        self.snapshot = snapshot
        self.cache = cache
        self.facts = cache.get_part(TopologyFactsCache)
        self.universe = universe
        self.batch = batch
        cache.get_part(ResidentIndex).follow(snapshot.nodes, batch, self.facts)
        self._labels = Numbering()
        self._counts: dict[Identity, TopologyCounts] = {}
        self._by_nodes: dict[tuple[str, object], Counter[str]] = {}
        self._kept_away: dict[tuple[str, int], list[TopologyGroup]] = {}
        self._bare = Topology(Snapshot(namespaces=snapshot.namespaces), universe, frozenset(), cache)
        # Terms are told apart by identity: the snapshot holds on to them.
        self._by_term: dict[tuple[str, int], tuple[Identity, TopologyGroup]] = {}

    @cached_property
    def _landmarks(self) -> list[tuple[StateNode, TopologyNode]]:
        found = ((state, self.facts.find_facts(state).node) for state in self.snapshot.nodes)
        return [(state, landmark) for state, landmark in found if landmark is not None]

    @property
    def _residents(self) -> ResidentIndex:
        """Where pods run, but for those that are placed anew."""
        index = self.cache.get_part(ResidentIndex)
        index.move_to(self.snapshot.nodes, self.batch, self.facts)
        return index

    @cached_property
    def inverse(self) -> dict[Identity, tuple[TopologyGroup, TopologyCounts]]:
        """The rules of running pods that others must keep away from them."""
        found: dict[Identity, tuple[TopologyGroup, TopologyCounts]] = {}
        for state, landmark in self._landmarks:
            for identity, group in self.list_inverse_groups(state):
                known = found.get(identity)
                if known is None:
                    known = found[identity] = group, self._build_counts(group, None)
                domain = landmark.find_domain(group.key)
                known[1].owners += 1
                if domain is not None:
                    known[1].counted[domain] += 1
        return found

    def list_inverse_groups(self, state: StateNode) -> Iterator[tuple[Identity, TopologyGroup]]:
        """For each pod of a node and each of its terms, who must keep away from it."""
        for pod in self.facts.find_facts(state).anti_affinity_pods:
            for term in list_anti_affinity_terms(pod) if pod.full_name not in self.batch else ():
                known = self._by_term.get((pod.namespace, id(term)))
                if known is None:
                    group = self._bare.build_inverse_group(pod.namespace, term)
                    known = self._by_term[pod.namespace, id(term)] = build_group_key(group, None), group
                yield known

    def list_binding_groups(self, shape: SchedulingShape) -> list[TopologyGroup]:
        """The rules of running pods that bind a shape of pod."""
        if not self.inverse:
            return []
        key = shape.namespace, self._labels.number_value(shape.labels)
        known = self._kept_away.get(key)
        if known is None:
            every = (group for group, _ in self.inverse.values())
            known = self._kept_away[key] = [g for g in every if g.selects_pod(shape.namespace, shape.labels)]
        return known

    def find_counts(self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> TopologyCounts:
        identity = build_group_key(group, tolerations)
        if group.inverse and identity in self.inverse:
            return self.inverse[identity][1]
        found = self._counts.get(identity)
        if found is None:
            found = self._counts[identity] = self._build_counts(group, tolerations)
            if not group.inverse:
                self._count_residents(group, found)
        return found

    def _build_counts(
        self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None
    ) -> TopologyCounts:
        universe, key = self.universe, group.key
        fixed = (
            universe.list_domains(key)
            if tolerations is None
            else universe.list_tolerated_domains(key, tolerations)
        )
        return TopologyCounts(frozenset(fixed), self._count_nodes_by_domain(group))

    def _count_nodes_by_domain(self, group: TopologyGroup) -> Counter[str]:
        """How many nodes make each domain known, counted once for all rules that look at the same nodes."""
        which = group.key, group.filter.key
        found = self._by_nodes.get(which)
        if found is None:
            found = self._by_nodes[which] = Counter()
            for _, landmark in self._landmarks:
                if landmark.active and group.filter.accepts_node(landmark.taints, landmark.requirements):
                    domain = landmark.requirements[group.key].only
                    if domain is not None:
                        found[domain] += 1
        return found

    def _count_residents(self, group: TopologyGroup, into: TopologyCounts) -> None:
        residents = self._residents
        for kind in _list_countable_kinds(residents, group):
            if group.selects_pod(kind[0], residents.read_labels(kind)):
                for landmark, pods in residents.list_nodes(kind):
                    domain = landmark.find_domain(group.key)
                    if domain is not None and group.filter.accepts_node(
                        landmark.taints, landmark.requirements
                    ):
                        into.counted[domain] += pods

    def compute_share(self, group: TopologyGroup, state: StateNode | None) -> NodeShare:
        """What one node adds to a rule."""
        if state is None:
            return NodeShare()
        facts = self.facts.find_facts(state)
        landmark = facts.node
        if landmark is None:
            return NodeShare()
        accepted = group.filter.accepts_node(landmark.taints, landmark.requirements)
        known = landmark.requirements[group.key].only if accepted and landmark.active else None
        domain = landmark.find_domain(group.key)
        if group.inverse:
            owners = self._count_owners(group, state)
            return NodeShare(known, {domain: owners} if domain is not None and owners else {}, owners)
        number = 0
        if accepted and domain is not None:
            number = sum(
                name not in self.batch and group.selects_pod(namespace, labels)
                for name, namespace, labels in facts.present_pods
            )
        return NodeShare(known, {domain: number} if domain is not None and number else {})

    def _count_owners(self, group: TopologyGroup, state: StateNode) -> int:
        mine = build_group_key(group, None)
        return sum(identity == mine for identity, _ in self.list_inverse_groups(state))


def _list_countable_kinds(residents: ResidentIndex, group: TopologyGroup) -> Iterator[ResidentKind]:
    """The kinds of pods that a rule might count."""
    asked = group.selector.match_labels if group.selector is not None else {}
    for key, value in asked.items():
        for namespace in group.namespaces:
            yield from residents.list_with_label(namespace, key, value)
        return
    yield from residents.list_kinds()


class WhatIfTopology(Topology):
    """The groups of one what-if, filled from what is known of the whole world."""

    def __init__(self, rules: BaseTopology, out: Sequence[StateNode]) -> None:
        snapshot = rules.snapshot
        bare = Snapshot(namespaces=snapshot.namespaces, options=snapshot.options)
        super().__init__(bare, rules.universe, frozenset(), rules.cache)
        self._rules = rules
        self._out = out
        self.asked: list[tuple[TopologyGroup, tuple[Toleration, ...] | None]] = []

    def find_constraints(self, shape: SchedulingShape) -> list[tuple[TopologyGroup, bool]]:
        if shape.owned is None:
            for group in self._rules.list_binding_groups(shape):
                self._wake_group(group)
        return super().find_constraints(shape)

    def _wake_group(self, group: TopologyGroup) -> None:
        """A rule of running pods binds someone in this what-if, unless all who have it are out."""
        counts = self._rules.find_counts(group, None)
        if counts.owners > sum(self._rules.compute_share(group, state).owners for state in self._out):
            self._share_group(replace(group, counts={}, total=0), None)

    def _count_existing_pods(self, group: TopologyGroup, tolerations: tuple[Toleration, ...] | None) -> None:
        self.asked.append((group, tolerations))
        shares = [self._rules.compute_share(group, state) for state in self._out]
        self._rules.find_counts(group, tolerations).fill_group(group, shares)
