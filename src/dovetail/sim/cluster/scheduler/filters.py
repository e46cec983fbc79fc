"""Topology rules as kube-scheduler judges them: spread, affinity, anti-affinity both ways.

Each gives a mask over all rows: where the pod may go as far as that rule is concerned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.sim.cluster.fitting import node_selected, untolerated
from dovetail.sim.cluster.scheduler.board import Board, Ints, Mask
from dovetail.sim.cluster.scheduler.counting import Counts, Term, with_label_keys
from dovetail.sim.cluster.scheduler.pods import PodInfo

__all__ = ["topology_masks"]

Json = dict[str, Any]
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


def topology_masks(pod: PodInfo, board: Board, counts: Counts) -> Iterator[tuple[str, Mask]]:
    """Each rule's mask with the words for the rows it turns down, in the order they are judged."""
    demand = pod.demand
    hard = [c for c in demand.spread if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]
    for constraint in hard:
        codes = board.codes(constraint["topologyKey"])
        yield SPREAD_LABEL, codes.of_row >= 0
        yield SPREAD, _spread(pod, constraint, hard, board, counts)
    if demand.affinity:
        yield AFFINITY, _affinity(pod, board, counts)
    for rule in demand.anti_affinity:
        yield ANTI_AFFINITY, ~_near(rule, counts.term(rule, pod.namespace, pod.labels), board, counts)
    for term, key, values in counts.averse():
        if term.matches(pod):
            yield EXISTING_ANTI_AFFINITY, ~_with_value(board, key, values)


def _spread(pod: PodInfo, constraint: Json, hard: list[Json], board: Board, counts: Counts) -> Mask:
    codes = board.codes(constraint["topologyKey"])
    selector = with_label_keys(constraint.get("labelSelector"), constraint, pod.labels)
    term = Term(selector, frozenset((pod.namespace,)), leaving_too=False)
    counted = _counted(pod, constraint, hard, board)
    sums = codes.sums(counts.tally(term), counted)
    domains = np.unique(codes.of_row[counted & (codes.of_row >= 0)])
    least = int(sums[domains].min()) if len(domains) else 0
    if len(domains) < (constraint.get("minDomains") or 0):
        least = 0
    after = sums + (1 if term.matches(pod) else 0) - least
    return _by_code(codes.of_row, after <= constraint["maxSkew"])


def _counted(pod: PodInfo, constraint: Json, hard: list[Json], board: Board) -> Mask:
    """Rows whose pods count: they have every key, and the pod could be meant for them as far as asked."""
    mask = board.alive.copy()
    for other in hard:
        mask &= board.codes(other["topologyKey"]).of_row >= 0
    spec = pod.demand.spec
    asks_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and _chooses(spec)
    asks_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    if asks_affinity or asks_taints:
        for node in board.nodes.values():
            if asks_affinity and not node_selected(spec, node.obj):
                mask[node.row] = False
            if asks_taints and untolerated(spec, node.obj, ("NoSchedule", "NoExecute")) is not None:
                mask[node.row] = False
    return mask


def _chooses(spec: Json) -> bool:
    return bool(spec.get("nodeSelector") or (spec.get("affinity") or {}).get("nodeAffinity"))


def _affinity(pod: PodInfo, board: Board, counts: Counts) -> Mask:
    """Near pods that every rule means together: one that satisfies half the rules helps nobody."""
    rules = pod.demand.affinity
    first, *rest = (counts.term(rule, pod.namespace, pod.labels) for rule in rules)
    together = first.and_also(tuple(rest))
    labelled, near, alone = board.alive.copy(), board.alive.copy(), True
    for rule in rules:
        labelled &= board.codes(rule["topologyKey"]).of_row >= 0
        mask = _near(rule, together, board, counts)
        near &= mask
        alone = alone and not mask.any()
    # The first pod of a set that wants to be together may start anywhere with the labels.
    return labelled if alone and together.matches(pod) else near


def _near(rule: Json, term: Term, board: Board, counts: Counts) -> Mask:
    codes = board.codes(rule["topologyKey"])
    return _by_code(codes.of_row, codes.sums(counts.tally(term), board.alive) > 0)


def _with_value(board: Board, key: str, values: dict[str, int]) -> Mask:
    codes = board.codes(key)
    held = np.zeros(len(codes.index), np.bool_)
    for value in values:
        if value in codes.index:
            held[codes.index[value]] = True
    return _by_code(codes.of_row, held)


def _by_code(of_row: Ints, per_value: Mask) -> Mask:
    """Rows whose value of a label is one of the chosen; rows without the label are not."""
    if not len(per_value):
        return np.zeros(len(of_row), np.bool_)
    mask: Mask = per_value[of_row] & (of_row >= 0)
    return mask
