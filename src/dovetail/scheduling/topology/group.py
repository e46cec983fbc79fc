"""One rule about where pods may lie relative to each other: counting pods per domain of one label.

Spread, affinity and anti-affinity are three ways to read the same counts. A group knows nothing of
nodes or claims: it is told domains, and answers with those it allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dovetail.api.core import Taint
from dovetail.api.labels import HOSTNAME
from dovetail.api.meta import LabelSelector
from dovetail.api.pod import Toleration
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.requirements import Requirements, Values, describe_values
from dovetail.scheduling.model.taints import tolerates_all

__all__ = ["AllowedDomains", "TopologyGroup", "TopologyNodeFilter", "TopologyType"]


class TopologyType(StrEnum):
    """What a group's counts mean."""

    SPREAD = "topology spread"
    AFFINITY = "pod affinity"
    ANTI_AFFINITY = "pod anti-affinity"


@dataclass(frozen=True, slots=True)
class TopologyNodeFilter:
    """Which nodes take part in a spread: by default those the pod's node affinity allows."""

    terms: tuple[Requirements, ...] = ()
    """Any of these must hold; none at all means every node takes part."""
    taints: bool = False
    tolerations: tuple[Toleration, ...] = ()

    def accepts_node(self, taints: Sequence[Taint], labels: Requirements) -> bool:
        if self.taints and not tolerates_all(taints, self.tolerations):
            return False
        # Karpenter: labels a new node has not settled are never excused here (topologynodefilter.go).
        for term in self.terms:  # asked for every pod that is placed, so it is spelled out
            if labels.is_compatible(term):
                return True
        return not self.terms

    @property
    def key(self) -> tuple[object, ...]:
        terms = tuple(tuple(sorted(term.by_key.items(), key=lambda item: item[0])) for term in self.terms)
        return terms, self.tolerations if self.taints else None


class AllowedDomains(NamedTuple):
    """Domains open to a pod; when only `one` of them may be kept, they are equally good to the rule."""

    domains: Values
    one: bool = False


@dataclass(slots=True, eq=False)
class TopologyGroup:
    """Pods that count together, and how many of them are in each domain."""

    rule: TopologyType
    key: str
    namespaces: frozenset[str]
    selector: LabelSelector | None
    max_skew: int = 0
    min_domains: int | None = None
    filter: TopologyNodeFilter = field(default_factory=TopologyNodeFilter)
    inverse: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def register_domains(self, domains: Iterable[str]) -> None:
        """Domains that exist, even if nothing is there yet."""
        for domain in domains:
            self.counts.setdefault(domain, 0)

    def record_pods(self, domain: str, pods: int = 1) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + pods
        self.total += pods

    def selects_pod(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces and matches_selector(self.selector, labels)

    def find_allowed_domains(self, itself: bool, pod: Values, node: Values) -> AllowedDomains | None:
        """The domains open to a pod (which counts `itself` or not) on a node; None when there are none."""
        if self.rule is TopologyType.SPREAD:
            return self._find_spread_domains(itself, pod, node)
        if self.rule is TopologyType.AFFINITY:
            return self._find_affinity_domains(itself, pod, node)
        return self._find_anti_affinity_domains(pod, node)

    def compute_host_cap(self, itself: bool) -> int | None:
        """The most pods of the group a host may have when such a pod arrives; None if hosts do not matter."""
        if self.key != HOSTNAME or self.rule is TopologyType.AFFINITY:
            return None
        return 0 if self.rule is TopologyType.ANTI_AFFINITY else self.max_skew - (1 if itself else 0)

    def _find_spread_domains(self, itself: bool, pod: Values, node: Values) -> AllowedDomains | None:
        more = 1 if itself else 0
        if self.key == HOSTNAME and (host := node.only) is not None:
            # A fresh node can always be made, so the emptiest host has none.
            return AllowedDomains(node) if self.counts.get(host, 0) + more <= self.max_skew else None
        least = self.find_lowest_count(pod)
        valid = [(n, name) for name, n in self._list_known_domains(node) if n + more - least <= self.max_skew]
        if not valid:
            return None
        fewest = min(valid)[0]
        return AllowedDomains(Values(frozenset(name for n, name in valid if n == fewest)), one=True)

    def find_lowest_count(self, pod: Values) -> int:
        """The lowest count among the domains the pod may use; none at all if they are too few."""
        counts = [count for domain, count in self.counts.items() if domain in pod]
        if self.min_domains is not None and len(counts) < self.min_domains:
            return 0
        return min(counts, default=0)

    def _list_known_domains(self, node: Values) -> Iterable[tuple[str, int]]:
        if not node.open and len(node.names) < len(self.counts):
            return ((name, self.counts[name]) for name in node.names if name in self.counts)
        return ((name, count) for name, count in self.counts.items() if name in node)

    def _find_affinity_domains(self, itself: bool, pod: Values, node: Values) -> AllowedDomains | None:
        if self.key == HOSTNAME and (host := node.only) is not None:
            if host not in pod:
                return None
            return (
                AllowedDomains(node) if self.counts.get(host, 0) or self._is_first_pod(itself, pod) else None
            )
        found = frozenset(name for name, count in self._list_known_domains(node) if count and name in pod)
        if found:
            return AllowedDomains(Values(found))
        return self._choose_first_domain(pod, node) if self._is_first_pod(itself, pod) else None

    def _is_first_pod(self, itself: bool, pod: Values) -> bool:
        """Whether the pod may be the first: it wants to be near its own kind, and none is in reach."""
        if not itself:
            return False
        return not self.total or not any(count and name in pod for name, count in self.counts.items())

    def _choose_first_domain(self, pod: Values, node: Values) -> AllowedDomains | None:
        allowed = frozenset(name for name in self.counts if name in pod)
        shared = frozenset(name for name in allowed if name in node)
        return AllowedDomains(Values(shared or allowed), one=True) if allowed else None

    def _find_anti_affinity_domains(self, pod: Values, node: Values) -> AllowedDomains | None:
        if self.key == HOSTNAME and (host := node.only) is not None:
            return AllowedDomains(node) if not self.counts.get(host) else None
        found = frozenset(name for name, count in self._list_known_domains(node) if not count and name in pod)
        return AllowedDomains(Values(found)) if found else None

    def describe_unsatisfiable(self, pod: Values, node: Values, empty: Iterable[str] = ()) -> str:
        """Karpenter's words, its missing bracket included; `empty` are further domains without pods."""
        known = dict.fromkeys(empty, 0) | self.counts
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(known.items()))
        return (
            f"unsatisfiable topology constraint for {self.rule}, key={self.key} (counts = {counts}, "
            f"podDomains = {describe_values(self.key, pod)}, nodeDomains = {describe_values(self.key, node)}"
        )
