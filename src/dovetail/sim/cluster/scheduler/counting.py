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

from dovetail.sim.cluster.scheduler.board import Board, Ints, Node
from dovetail.sim.cluster.scheduler.pods import PodInfo
from dovetail.sim.kube.selectors import from_selector

__all__ = ["Counts", "Term", "with_label_keys"]

Json = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode
# Rules come and go with workloads; past this many the counts are dropped and made anew on demand.
MOST_TALLIES = 1024
NOTHING: dict[bytes, tuple[Term, Ints]] = {}


class Term:
    """One pod selector with the namespaces it means; equal terms share one tally."""

    __slots__ = ("also", "handle", "key", "leaving_too", "matches_labels", "namespaces")

    def __init__(
        self, selector: Json | None, namespaces: frozenset[str] | None, *, leaving_too: bool = True
    ) -> None:
        self.namespaces = namespaces
        self.leaving_too = leaving_too
        self.matches_labels: Callable[[dict[str, str]], bool] = (
            from_selector(selector) if selector is not None else lambda labels: False
        )
        self.also: tuple[Term, ...] = ()
        # One label that every pod it means has, to find the term by; None if there is no such label.
        labels = ((selector or {}).get("matchLabels") or {}).items()
        self.handle: tuple[str, str] | None = next(iter(labels), None)
        names = sorted(namespaces) if namespaces is not None else None
        self.key = _encode([selector, names, leaving_too])

    def and_also(self, others: tuple[Term, ...]) -> Term:
        """The pods that all of these mean together."""
        for other in others:
            self.also = (*self.also, other)
            self.key += other.key
        return self

    def matches(self, pod: PodInfo) -> bool:
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        if not self.matches_labels(pod.labels) or (pod.leaving and not self.leaving_too):
            return False
        return all(other.matches(pod) for other in self.also)


class Counts:
    """All tallies and aversions of a cluster."""

    def __init__(self, board: Board, namespaces: Callable[[Json], frozenset[str]]) -> None:
        self._board = board
        self._namespaces = namespaces
        self._tallies: dict[bytes, tuple[Term, Ints]] = {}
        self._by_handle: dict[tuple[str, str] | None, dict[bytes, tuple[Term, Ints]]] = {}
        self._averse: dict[bytes, tuple[Term, str, dict[str, int]]] = {}
        self._brothers: dict[tuple[str, str, str], Term] = {}

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

    def brothers(self, namespace: str, label: str, value: str) -> Term:
        """The pods of one workload, by the label that marks them; those on their way out apart."""
        key = (namespace, label, value)
        term = self._brothers.get(key)
        if term is None:
            if len(self._brothers) >= MOST_TALLIES:
                self._brothers.clear()
            selector = {"matchLabels": {label: value}}
            term = self._brothers[key] = Term(selector, frozenset((namespace,)), leaving_too=False)
        return term

    def tally(self, term: Term) -> Ints:
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

    def averse(self) -> Iterable[tuple[Term, str, dict[str, int]]]:
        """Anti-affinity rules of bound pods: whom they avoid, by which label, and where they hold."""
        return self._averse.values()

    def placed(self, pod: PodInfo, node: Node, by: int = 1) -> None:
        """A pod arrived on a node, or left it (by = -1)."""
        for handle in (None, *pod.labels.items()):
            for term, counts in self._by_handle.get(handle, NOTHING).values():
                if node.row < len(counts) and term.matches(pod):
                    counts[node.row] += by
        for rule in pod.demand.anti_affinity:
            self._placed_averse(pod, node, rule, by)

    def _placed_averse(self, pod: PodInfo, node: Node, rule: Json, by: int) -> None:
        term, key = self.term(rule, pod.namespace, pod.labels), rule["topologyKey"]
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
        self.relabelled()

    def relabelled(self) -> None:
        """A node's labels changed: aversions hold elsewhere now. Tallies are per row and do not mind."""
        self._averse.clear()
        for node in self._board.nodes.values() if self._board.shy else ():
            for pod in node.pods.values():
                for rule in pod.demand.anti_affinity:
                    self._placed_averse(pod, node, rule, 1)


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
