"""Counts that topology rules ask for, kept up to date pod by pod instead of searched.

A *tally* counts, per node, the pods a selector means (spread does not count pods on their way out,
affinity does). An *aversion* counts, per topology value, the
bound pods that hold an anti-affinity rule. Both are made the first time a rule asks and then kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dovetail.sim.cluster.scheduler.nodes import NodeInfo
from dovetail.sim.cluster.scheduler.pods import PodInfo
from dovetail.sim.kube.selectors import from_selector

__all__ = ["Counts", "Term"]

Json = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode
# Rules come and go with workloads; past this many the counts are dropped and made anew on demand.
MOST_TALLIES = 4096


class Term:
    """One pod selector with the namespaces it means; equal terms share one tally."""

    __slots__ = ("key", "leaving_too", "matches_labels", "namespaces")

    def __init__(
        self, selector: Json | None, namespaces: frozenset[str] | None, *, leaving_too: bool = True
    ) -> None:
        self.namespaces = namespaces
        self.leaving_too = leaving_too
        self.matches_labels: Callable[[dict[str, str]], bool] = (
            from_selector(selector) if selector is not None else lambda labels: False
        )
        names = sorted(namespaces) if namespaces is not None else None
        self.key = _encode([selector, names, leaving_too])

    def matches(self, pod: PodInfo) -> bool:
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return bool(self.matches_labels(pod.labels)) and (self.leaving_too or not _leaving(pod))


class Counts:
    """All tallies and aversions of a cluster."""

    def __init__(self, namespaces: Callable[[Json], frozenset[str]]) -> None:
        self._namespaces = namespaces
        self._tallies: dict[bytes, tuple[Term, dict[str, int]]] = {}
        self._averse: dict[bytes, tuple[Term, str, dict[str, int]]] = {}
        self._nodes: dict[str, NodeInfo] = {}

    def watch(self, nodes: dict[str, NodeInfo]) -> None:
        self._nodes = nodes

    def term(self, rule: Json, namespace: str, labels: dict[str, str]) -> Term:
        """The pods an affinity rule of a pod means."""
        selector = with_label_keys(rule.get("labelSelector"), rule, labels)
        names = set(rule.get("namespaces") or ())
        if (chosen := rule.get("namespaceSelector")) is not None:
            if not chosen:
                return Term(selector, None)
            names |= self._namespaces(chosen)
        elif not names:
            names = {namespace}
        return Term(selector, frozenset(names))

    def tally(self, term: Term) -> dict[str, int]:
        """Node name to how many of the term's pods are on it; nodes without any are absent."""
        found = self._tallies.get(term.key)
        if found is None:
            if len(self._tallies) >= MOST_TALLIES:
                self._tallies.clear()
            counts: dict[str, int] = {}
            for node in self._nodes.values():
                number = sum(term.matches(pod) for pod in node.pods.values())
                if number:
                    counts[node.name] = number
            found = self._tallies[term.key] = (term, counts)
        return found[1]

    def averse(self) -> Iterable[tuple[Term, str, dict[str, int]]]:
        """Anti-affinity rules of bound pods: whom they avoid, by which label, and where they hold."""
        return self._averse.values()

    def placed(self, pod: PodInfo, node: NodeInfo, by: int = 1) -> None:
        """A pod arrived on a node, or left it (by = -1)."""
        for term, counts in self._tallies.values():
            if term.matches(pod):
                _bump(counts, node.name, by)
        for rule in pod.demand.anti_affinity:
            term, key = self.term(rule, pod.namespace, pod.labels), rule["topologyKey"]
            slot = term.key + key.encode()
            entry = self._averse.setdefault(slot, (term, key, {}))
            value = node.labels.get(key)
            if value is not None:
                _bump(entry[2], value, by)
            if not entry[2]:
                self._averse.pop(slot, None)

    def forget(self) -> None:
        """Namespaces or node labels changed: count anew when asked."""
        self._tallies.clear()
        self._averse.clear()
        for node in self._nodes.values():
            for pod in node.pods.values():
                if pod.demand.anti_affinity:
                    self.placed(pod, node)


def with_label_keys(selector: Json | None, rule: Json, labels: dict[str, str]) -> Json | None:
    """The selector, narrowed by the pod's own values of matchLabelKeys and mismatchLabelKeys."""
    extra = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in rule.get(field) or ()
        if key in labels
    ]
    if not extra or selector is None:
        return selector
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *extra]}


def _bump(counts: dict[str, int], key: str, by: int) -> None:
    number = counts.get(key, 0) + by
    if number > 0:
        counts[key] = number
    else:
        counts.pop(key, None)


def _leaving(pod: PodInfo) -> bool:
    return bool(pod.obj["metadata"].get("deletionTimestamp"))
