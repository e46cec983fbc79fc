"""Topology rules as kube-scheduler judges them: spread, affinity, anti-affinity both ways.

Each is prepared once per attempt and then asked of every node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.sim.cluster.fitting import node_selected, untolerated
from dovetail.sim.cluster.scheduler.counting import Counts, Term, with_label_keys
from dovetail.sim.cluster.scheduler.nodes import NodeInfo
from dovetail.sim.cluster.scheduler.pods import PodInfo

__all__ = ["Topology"]

Json = dict[str, Any]
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class Topology:
    """Every topology rule that one pod's placement is bound by, in one attempt."""

    def __init__(self, pod: PodInfo, nodes: Iterable[NodeInfo], counts: Counts) -> None:
        self.pod = pod
        nodes = list(nodes)
        hard = [
            c for c in pod.demand.spread if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = [c["topologyKey"] for c in hard]
        self._spread = [_Spread(pod, c, nodes, counts, keys) for c in hard]
        self._affinity = [_Affinity(pod, rule, nodes, counts) for rule in pod.demand.affinity]
        self._first = bool(self._affinity) and all(a.nobody and a.term.matches(pod) for a in self._affinity)
        self._anti = [_Affinity(pod, rule, nodes, counts) for rule in pod.demand.anti_affinity]
        self._averse = [(key, values) for term, key, values in counts.averse() if term.matches(pod)]

    @property
    def empty(self) -> bool:
        return not (self._spread or self._affinity or self._anti or self._averse)

    def verdict(self, node: NodeInfo) -> str | None:
        """Why the node will not do; None if it will."""
        labels = node.labels
        for spread in self._spread:
            why = spread.verdict(labels)
            if why:
                return why
        if self._affinity and not self._near(labels):
            return AFFINITY
        for rule in self._anti:
            value = labels.get(rule.key)
            if value is not None and rule.values.get(value):
                return ANTI_AFFINITY
        for key, values in self._averse:
            value = labels.get(key)
            if value is not None and values.get(value):
                return EXISTING_ANTI_AFFINITY
        return None

    def _near(self, labels: dict[str, str]) -> bool:
        if any(rule.key not in labels for rule in self._affinity):
            return False
        # The first pod of a set that wants to be together may start anywhere with the labels.
        return self._first or all(rule.values.get(labels[rule.key]) for rule in self._affinity)


class _Affinity:
    def __init__(self, pod: PodInfo, rule: Json, nodes: list[NodeInfo], counts: Counts) -> None:
        self.key: str = rule["topologyKey"]
        self.term: Term = counts.term(rule, pod.namespace, pod.labels)
        tally = counts.tally(self.term)
        self.values: dict[str, int] = {}
        if tally:
            for node in nodes:
                number = tally.get(node.name)
                value = node.labels.get(self.key)
                if number and value is not None:
                    self.values[value] = self.values.get(value, 0) + number
        self.nobody = not self.values


class _Spread:
    def __init__(
        self, pod: PodInfo, constraint: Json, nodes: list[NodeInfo], counts: Counts, keys: list[str]
    ) -> None:
        self.key: str = constraint["topologyKey"]
        self.skew: int = constraint["maxSkew"]
        selector = with_label_keys(constraint.get("labelSelector"), constraint, pod.labels)
        term = Term(selector, frozenset((pod.namespace,)), leaving_too=False)
        self.self_match = term.matches(pod)
        tally = counts.tally(term)
        self.values: dict[str, int] = {}
        for node in nodes:
            if _counts_in(pod, node, constraint, keys):
                value = node.labels[self.key]
                self.values[value] = self.values.get(value, 0) + tally.get(node.name, 0)
        self.least = min(self.values.values(), default=0)
        domains = constraint.get("minDomains")
        if domains and len(self.values) < domains:
            self.least = 0

    def verdict(self, labels: dict[str, str]) -> str | None:
        value = labels.get(self.key)
        if value is None:
            return SPREAD_LABEL
        skew = self.values.get(value, 0) + (1 if self.self_match else 0) - self.least
        return SPREAD if skew > self.skew else None


def _counts_in(pod: PodInfo, node: NodeInfo, constraint: Json, keys: list[str]) -> bool:
    """Whether a node's pods count: it has every key, and the pod could be meant for it as far as asked."""
    if any(key not in node.labels for key in keys):
        return False
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_selected(
        pod.demand.spec, node.node
    ):
        return False
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
        return untolerated(pod.demand.spec, node.node, ("NoSchedule", "NoExecute")) is None
    return True
