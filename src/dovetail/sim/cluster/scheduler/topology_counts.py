"""Counts that topology rules ask for, kept up to date pod by pod instead of searched.

A *tally* counts, per row, the pods a selector means (spread does not count pods on their way out,
affinity does). An *aversion* counts, per label value, the bound pods that hold an anti-affinity rule.
Both are made the first time a rule asks and then kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from dovetail.sim.cluster.scheduler.node_table import Ints, NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo
from dovetail.sim.kube.selectors import build_label_matcher

__all__ = ["PodTerm", "SimTopologyCounts", "with_label_keys"]

Json = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode
# Rules come and go with workloads; past this many the counts are dropped and made anew on demand.
MOST_TALLIES = 1024
NOTHING: dict[bytes, tuple[PodTerm, Ints]] = {}


class PodTerm:
    """One pod selector with the namespaces it means; equal terms share one tally."""

    __slots__ = ("also", "handle", "key", "leaving_too", "matches_labels", "namespaces")

    def __init__(
        self, selector: Json | None, namespaces: frozenset[str] | None, *, leaving_too: bool = True
    ) -> None:
        self.namespaces = namespaces
        self.leaving_too = leaving_too
        self.matches_labels: Callable[[dict[str, str]], bool] = (
            build_label_matcher(selector) if selector is not None else lambda labels: False
        )
        self.also: tuple[PodTerm, ...] = ()
        # One label that every pod it means has, to find the term by; None if there is no such label.
        labels = ((selector or {}).get("matchLabels") or {}).items()
        self.handle: tuple[str, str] | None = next(iter(labels), None)
        names = sorted(namespaces) if namespaces is not None else None
        self.key = _encode([selector, names, leaving_too])

    def and_also(self, others: tuple[PodTerm, ...]) -> PodTerm:
        """The pods that all of these mean together."""
        for other in others:
            self.also = (*self.also, other)
            self.key += other.key
        return self

    def matches(self, pod: PodInfo) -> bool:
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        if not self.matches_labels(pod.labels) or (pod.terminating and not self.leaving_too):
            return False
        return all(other.matches(pod) for other in self.also)


class SimTopologyCounts:
    """All tallies and aversions of a cluster."""

    def __init__(self, table: NodeTable, namespaces: Callable[[Json], frozenset[str]]) -> None:
        self._board = table
        self._namespaces = namespaces
        self._tallies: dict[bytes, tuple[PodTerm, Ints]] = {}
        self._by_handle: dict[tuple[str, str] | None, dict[bytes, tuple[PodTerm, Ints]]] = {}
        self._averse: dict[bytes, tuple[PodTerm, str, dict[str, int]]] = {}
        self._brothers: dict[tuple[str, str, str], PodTerm] = {}

    def build_term(self, rule: Json, namespace: str, labels: dict[str, str]) -> PodTerm:
        """The pods an affinity rule of a pod means."""
        selector = with_label_keys(rule.get("labelSelector"), rule, labels)
        names = set(rule.get("namespaces") or ())
        if (chosen := rule.get("namespaceSelector")) is not None:
            if not chosen:
                return PodTerm(selector, None)
            names |= self._namespaces(chosen)
        elif not names:
            names = {namespace}
        return PodTerm(selector, frozenset(names))

    def find_workload_term(self, namespace: str, label: str, value: str) -> PodTerm:
        """The pods of one workload, by the label that marks them; those on their way out apart."""
        key = (namespace, label, value)
        term = self._brothers.get(key)
        if term is None:
            if len(self._brothers) >= MOST_TALLIES:
                self._brothers.clear()
            selector = {"matchLabels": {label: value}}
            term = self._brothers[key] = PodTerm(selector, frozenset((namespace,)), leaving_too=False)
        return term

    def count_pods(self, term: PodTerm) -> Ints:
        """Per row, how many of the term's pods are on it."""
        found = self._tallies.get(term.key)
        if found is None or len(found[1]) != self._board.rows:
            if len(self._tallies) >= MOST_TALLIES:
                self._tallies.clear()
                self._by_handle.clear()
            counts: Ints = np.zeros(self._board.rows, np.int64)
            for node in self._board.nodes.values():
                counts[node.row] = sum(map(term.matches, node.pods.values()))
            found = self._tallies[term.key] = (term, counts)
            self._by_handle.setdefault(term.handle, {})[term.key] = found
        return found[1]

    def list_aversions(self) -> Iterable[tuple[PodTerm, str, dict[str, int]]]:
        """Anti-affinity rules of bound pods: whom they avoid, by which label, and where they hold."""
        return self._averse.values()

    def update_counts(self, pod: PodInfo, node: NodeRow, by: int = 1) -> None:
        """A pod arrived on a node, or left it (by = -1)."""
        for handle in (None, *pod.labels.items()):
            for term, counts in self._by_handle.get(handle, NOTHING).values():
                if node.row < len(counts) and term.matches(pod):
                    counts[node.row] += by
        for rule in pod.demand.anti_affinity:
            self._update_aversion(pod, node, rule, by)

    def _update_aversion(self, pod: PodInfo, node: NodeRow, rule: Json, by: int) -> None:
        term, key = self.build_term(rule, pod.namespace, pod.labels), rule["topologyKey"]
        slot = term.key + key.encode()
        values = self._averse.setdefault(slot, (term, key, {}))[2]
        value = node.labels.get(key)
        if value is not None:
            values[value] = values.get(value, 0) + by
            if values[value] <= 0:
                del values[value]
        if not values:
            self._averse.pop(slot, None)

    def forget(self) -> None:
        """Namespaces changed: count anew when asked."""
        self._tallies.clear()
        self._by_handle.clear()
        self.recount_aversions()

    def recount_aversions(self) -> None:
        """A node's labels changed: aversions hold elsewhere now. Tallies are per row and do not mind."""
        self._averse.clear()
        for node in self._board.nodes.values() if self._board.shy else ():
            for pod in node.pods.values():
                for rule in pod.demand.anti_affinity:
                    self._update_aversion(pod, node, rule, 1)


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
