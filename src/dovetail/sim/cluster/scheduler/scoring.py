"""Which of the nodes that will do is best: emptier, better balanced, better liked, more spread."""

from __future__ import annotations

import numpy as np

from dovetail.sim.cluster.node_matching import selector_term_matches, tolerates_taint
from dovetail.sim.cluster.scheduler.node_table import Floats, Ints, Mask, NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo
from dovetail.sim.cluster.scheduler.topology_counts import PodTerm, SimTopologyCounts, with_label_keys

__all__ = ["choose_best_node"]

DEFAULT_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


def choose_best_node(pod: PodInfo, fitting: Mask, table: NodeTable, counts: SimTopologyCounts) -> NodeRow:
    """The node with the highest score; among equals the first by name."""
    rows = np.flatnonzero(fitting)
    totals = _score_room(pod, rows, table)
    for weight, scores in (
        (2, _score_preferred_labels(pod, rows, table)),
        (2, _score_preferred_company(pod, rows, table, counts)),
        (2, _score_soft_spread(pod, rows, table, counts)),
        (3, _score_soft_taints(pod, rows, table)),
    ):
        if scores is not None:
            totals = totals + weight * scores
    winners = rows[totals >= totals.max() - 1e-9].tolist()
    return min(map(table.get_node, winners), key=lambda node: node.name)


def _score_room(pod: PodInfo, rows: Ints, table: NodeTable) -> Floats:
    """Least allocated plus balanced allocation, each out of a hundred."""
    size, taken = table.size[rows, 1:3], table.scored[rows] + pod.demand.scored
    share = np.minimum(np.divide(taken, size, out=np.ones_like(taken), where=size > 0), 1.0)
    cpu, memory = share[:, 0], share[:, 1]
    scores: Floats = 200 - 50 * (cpu + memory + np.abs(cpu - memory))
    return scores


def _score_preferred_labels(pod: PodInfo, rows: Ints, table: NodeTable) -> Floats | None:
    terms = pod.demand.node_affinity_preferred
    if not terms:
        return None
    raw = np.zeros(table.rows)
    for node in table.nodes.values():
        raw[node.row] = sum(t["weight"] for t in terms if selector_term_matches(t["preference"], node.obj))
    return _stretch_scores(raw[rows])


def _score_preferred_company(
    pod: PodInfo, rows: Ints, table: NodeTable, counts: SimTopologyCounts
) -> Floats | None:
    rules = [(r, 1) for r in pod.demand.preferred_affinity]
    rules += [(r, -1) for r in pod.demand.preferred_anti_affinity]
    if not rules:
        return None
    raw = np.zeros(len(rows))
    for rule, sign in rules:
        inner = rule["podAffinityTerm"]
        tally = counts.count_pods(counts.build_term(inner, pod.namespace, pod.labels))
        raw += sign * rule["weight"] * _count_per_value(tally, inner["topologyKey"], rows, table)
    return _stretch_scores(raw)


def _score_soft_spread(
    pod: PodInfo, rows: Ints, table: NodeTable, counts: SimTopologyCounts
) -> Floats | None:
    if not pod.demand.spread:
        return _score_default_spread(pod, rows, table, counts)
    soft = [c for c in pod.demand.spread if c.get("whenUnsatisfiable") == "ScheduleAnyway"]
    if not soft:
        return None
    raw = np.zeros(len(rows))
    for constraint in soft:
        selector = with_label_keys(constraint.get("labelSelector"), constraint, pod.labels)
        tally = counts.count_pods(PodTerm(selector, frozenset((pod.namespace,)), leaving_too=False))
        raw -= _count_per_value(tally, constraint["topologyKey"], rows, table)
    return _stretch_scores(raw)


def _score_default_spread(
    pod: PodInfo, rows: Ints, table: NodeTable, counts: SimTopologyCounts
) -> Floats | None:
    """Pods of one workload spread by default over hosts and zones, without insisting."""
    for mark in ("pod-template-hash", "controller-revision-hash"):
        if mark in pod.labels:
            tally = counts.count_pods(counts.find_workload_term(pod.namespace, mark, pod.labels[mark]))
            hosts, zones = (_count_per_value(tally, key, rows, table) for key in DEFAULT_KEYS)
            return _stretch_scores(-hosts - zones)
    return None


def _score_soft_taints(pod: PodInfo, rows: Ints, table: NodeTable) -> Floats | None:
    tainted = table.list_softly_tainted()
    if not tainted:
        return None
    tolerations = pod.demand.spec.get("tolerations") or ()
    raw = np.zeros(table.rows)
    for node in tainted:
        raw[node.row] = -sum(
            not any(tolerates_taint(t, taint) for t in tolerations) for taint in node.soft_taints
        )
    return _stretch_scores(raw[rows]) if raw.any() else None


def _count_per_value(tally: Ints, key: str, rows: Ints, table: NodeTable) -> Floats:
    """For each row, how many counted pods share its value of a label."""
    codes = table.get_codes(key)
    if not codes.index:
        return np.zeros(len(rows))
    if codes.unique:
        return tally[rows].astype(np.float64)
    sums = codes.sum_by_value(tally, table.alive)
    found: Floats = np.where(codes.of_row[rows] >= 0, sums[codes.of_row[rows]], 0).astype(np.float64)
    return found


def _stretch_scores(raw: Floats) -> Floats:
    """Scores moved onto 0 to 100; all equal counts as nothing."""
    low, high = raw.min(), raw.max()
    return 100 * (raw - low) / (high - low) if high > low else np.zeros_like(raw)
