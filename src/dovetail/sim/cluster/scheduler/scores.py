"""Which of the nodes that will do is best: emptier, better balanced, better liked, more spread."""

from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.fitting import selector_term_matches, tolerates
from dovetail.sim.cluster.scheduler.counting import Counts, Term, with_label_keys
from dovetail.sim.cluster.scheduler.nodes import NodeInfo
from dovetail.sim.cluster.scheduler.pods import PodInfo

__all__ = ["best"]

Json = dict[str, Any]


def best(pod: PodInfo, nodes: list[NodeInfo], counts: Counts) -> NodeInfo:
    """The node with the highest score; among equals the first by name."""
    if len(nodes) == 1:
        return nodes[0]
    totals = [_room_scores(pod, node) for node in nodes]
    for weight, scores in (
        (2, _preferred_labels(pod, nodes)),
        (2, _preferred_company(pod, nodes, counts)),
        (2, _soft_spread(pod, nodes, counts)),
        (3, _soft_taints(pod, nodes)),
    ):
        if scores is not None:
            totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    return min(zip(nodes, totals, strict=True), key=lambda pair: (-pair[1], pair[0].name))[0]


def _room_scores(pod: PodInfo, node: NodeInfo) -> float:
    """Least allocated plus balanced allocation, each out of a hundred."""
    fractions = []
    for index, name in ((0, "cpu"), (1, "memory")):
        size = node.size.get(name, 0)
        if size:
            fractions.append(min((node.scored[index] + pod.demand.scored[index]) / size, 1.0))
    if not fractions:
        return 0.0
    emptiness = sum(1 - f for f in fractions) / len(fractions)
    unevenness = abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0
    return 100 * emptiness + 100 * (1 - unevenness)


def _preferred_labels(pod: PodInfo, nodes: list[NodeInfo]) -> list[float] | None:
    terms = pod.demand.node_affinity_preferred
    if not terms:
        return None
    raw = [
        float(sum(t["weight"] for t in terms if selector_term_matches(t["preference"], node.node)))
        for node in nodes
    ]
    return _stretched(raw)


def _preferred_company(pod: PodInfo, nodes: list[NodeInfo], counts: Counts) -> list[float] | None:
    rules = [(r, 1) for r in pod.demand.preferred_affinity] + [
        (r, -1) for r in pod.demand.preferred_anti_affinity
    ]
    if not rules:
        return None
    raw = [0.0] * len(nodes)
    for rule, sign in rules:
        term = counts.term(rule["podAffinityTerm"], pod.namespace, pod.labels)
        values = _by_value(counts.tally(term), rule["podAffinityTerm"]["topologyKey"], nodes)
        for i, node in enumerate(nodes):
            value = node.labels.get(rule["podAffinityTerm"]["topologyKey"], "")
            raw[i] += sign * rule["weight"] * values.get(value, 0)
    return _stretched(raw)


def _soft_spread(pod: PodInfo, nodes: list[NodeInfo], counts: Counts) -> list[float] | None:
    soft = [c for c in pod.demand.spread if c.get("whenUnsatisfiable") == "ScheduleAnyway"]
    if not pod.demand.spread:
        soft = _default_spread(pod)
    if not soft:
        return None
    raw = [0.0] * len(nodes)
    for constraint in soft:
        selector = with_label_keys(constraint.get("labelSelector"), constraint, pod.labels)
        tally = counts.tally(Term(selector, frozenset((pod.namespace,)), leaving_too=False))
        values = _by_value(tally, constraint["topologyKey"], nodes)
        for i, node in enumerate(nodes):
            raw[i] -= values.get(node.labels.get(constraint["topologyKey"], ""), 0)
    return _stretched(raw)


def _default_spread(pod: PodInfo) -> list[Json]:
    """Pods of one workload spread by default over hosts and zones, without insisting."""
    mark = next((k for k in ("pod-template-hash", "controller-revision-hash") if k in pod.labels), None)
    if mark is None:
        return []
    selector = {"matchLabels": {mark: pod.labels[mark]}}
    return [
        {"topologyKey": key, "labelSelector": selector}
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def _soft_taints(pod: PodInfo, nodes: list[NodeInfo]) -> list[float] | None:
    tolerations = pod.demand.spec.get("tolerations") or ()
    raw = [
        -float(
            sum(
                taint.get("effect") == "PreferNoSchedule"
                and not any(tolerates(t, taint) for t in tolerations)
                for taint in node.node["spec"].get("taints") or ()
            )
        )
        for node in nodes
    ]
    return _stretched(raw) if any(raw) else None


def _by_value(tally: dict[str, int], key: str, nodes: list[NodeInfo]) -> dict[str, int]:
    values: dict[str, int] = {}
    if tally:
        for node in nodes:
            number = tally.get(node.name)
            if number:
                value = node.labels.get(key, "")
                values[value] = values.get(value, 0) + number
    return values


def _stretched(raw: list[float]) -> list[float]:
    """Scores moved onto 0 to 100; all equal counts as nothing."""
    low, high = min(raw), max(raw)
    return [100 * (r - low) / (high - low) for r in raw] if high > low else [0.0] * len(raw)
