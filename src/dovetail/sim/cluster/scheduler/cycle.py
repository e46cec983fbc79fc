"""One pod against all nodes: where it may go, and what stands in the way elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail.sim.cluster.node_matching import find_untolerated_taint, is_node_selected
from dovetail.sim.cluster.scheduler.node_table import Ints, Mask, NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo
from dovetail.sim.cluster.scheduler.topology_counts import PodTerm, SimTopologyCounts, with_label_keys
from dovetail.sim.cluster.scheduler.volumes import PodVolumes

__all__ = ["SchedulingCycle", "describe_refusal", "list_topology_masks"]

Json = dict[str, Any]
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


def list_topology_masks(
    pod: PodInfo, table: NodeTable, counts: SimTopologyCounts
) -> Iterator[tuple[str, Mask]]:
    """Each rule's mask with the words for the rows it turns down, in the order they are judged."""
    demand = pod.demand
    hard = [c for c in demand.spread if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]
    for constraint in hard:
        codes = table.get_codes(constraint["topologyKey"])
        yield SPREAD_LABEL, codes.of_row >= 0
        yield SPREAD, _filter_spread(pod, constraint, hard, table, counts)
    if demand.affinity:
        yield AFFINITY, _filter_affinity(pod, table, counts)
    for rule in demand.anti_affinity:
        yield (
            ANTI_AFFINITY,
            ~_find_near_rows(rule, counts.build_term(rule, pod.namespace, pod.labels), table, counts),
        )
    for term, key, values in counts.list_aversions():
        if term.matches(pod):
            yield EXISTING_ANTI_AFFINITY, ~_find_rows_with_value(table, key, values)


def _filter_spread(
    pod: PodInfo, constraint: Json, hard: list[Json], table: NodeTable, counts: SimTopologyCounts
) -> Mask:
    codes = table.get_codes(constraint["topologyKey"])
    selector = with_label_keys(constraint.get("labelSelector"), constraint, pod.labels)
    term = PodTerm(selector, frozenset((pod.namespace,)), leaving_too=False)
    counted = _find_counted_rows(pod, constraint, hard, table)
    sums = codes.sum_by_value(counts.count_pods(term), counted)
    domains = np.unique(codes.of_row[counted & (codes.of_row >= 0)])
    least = int(sums[domains].min()) if len(domains) else 0
    if len(domains) < (constraint.get("minDomains") or 0):
        least = 0
    after = sums + (1 if term.matches(pod) else 0) - least
    return _select_by_code(codes.of_row, after <= constraint["maxSkew"])


def _find_counted_rows(pod: PodInfo, constraint: Json, hard: list[Json], table: NodeTable) -> Mask:
    """Rows whose pods count: they have every key, and the pod could be meant for them as far as asked."""
    mask = table.alive.copy()
    for other in hard:
        mask &= table.get_codes(other["topologyKey"]).of_row >= 0
    spec = pod.demand.spec
    asks_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and _chooses_nodes(spec)
    asks_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    if asks_affinity or asks_taints:
        for node in table.nodes.values():
            if asks_affinity and not is_node_selected(spec, node.obj):
                mask[node.row] = False
            if (
                asks_taints
                and find_untolerated_taint(spec, node.obj, ("NoSchedule", "NoExecute")) is not None
            ):
                mask[node.row] = False
    return mask


def _chooses_nodes(spec: Json) -> bool:
    return bool(spec.get("nodeSelector") or (spec.get("affinity") or {}).get("nodeAffinity"))


def _filter_affinity(pod: PodInfo, table: NodeTable, counts: SimTopologyCounts) -> Mask:
    """Near pods that every rule means together: one that satisfies half the rules helps nobody."""
    rules = pod.demand.affinity
    first, *rest = (counts.build_term(rule, pod.namespace, pod.labels) for rule in rules)
    together = first.and_also(tuple(rest))
    labelled, near, alone = table.alive.copy(), table.alive.copy(), True
    for rule in rules:
        labelled &= table.get_codes(rule["topologyKey"]).of_row >= 0
        mask = _find_near_rows(rule, together, table, counts)
        near &= mask
        alone = alone and not mask.any()
    # The first pod of a set that wants to be together may start anywhere with the labels.
    return labelled if alone and together.matches(pod) else near


def _find_near_rows(rule: Json, term: PodTerm, table: NodeTable, counts: SimTopologyCounts) -> Mask:
    codes = table.get_codes(rule["topologyKey"])
    return _select_by_code(codes.of_row, codes.sum_by_value(counts.count_pods(term), table.alive) > 0)


def _find_rows_with_value(table: NodeTable, key: str, values: dict[str, int]) -> Mask:
    codes = table.get_codes(key)
    held = np.zeros(len(codes.index), np.bool_)
    for value in values:
        if value in codes.index:
            held[codes.index[value]] = True
    return _select_by_code(codes.of_row, held)


def _select_by_code(of_row: Ints, per_value: Mask) -> Mask:
    """Rows whose value of a label is one of the chosen; rows without the label are not."""
    if not len(per_value):
        return np.zeros(len(of_row), np.bool_)
    mask: Mask = per_value[of_row] & (of_row >= 0)
    return mask


PORTS = "node(s) didn't have free ports for the requested pod ports"
Promised = Callable[[PodInfo, NodeRow], list[str]]


class SchedulingCycle:
    """One attempt. `promised` says what a node lacks once room kept for others is taken off."""

    def __init__(
        self,
        pod: PodInfo,
        table: NodeTable,
        counts: SimTopologyCounts,
        volumes: PodVolumes,
        promised: Promised | None = None,
    ) -> None:
        self.pod = pod
        self._board = table
        self._volumes = volumes
        self._promised = promised
        self.rules = list(list_topology_masks(pod, table, counts))
        # Nothing but labels, taints and room matters: the answer is the same for all pods of the shape.
        self.simple = not self.rules and volumes.empty and not volumes.taken and not pod.demand.ports

    def find_fitting_rows(self) -> Mask:
        """The rows that will do, all rules together."""
        table, demand = self._board, self.pod.demand
        mask: Mask = table.alive & table.find_suited_rows(demand) & table.find_roomy_rows(demand)
        for _, rule in self.rules:
            mask &= rule
        if demand.ports or not self._volumes.empty or self._promised is not None:
            for node in table.nodes.values():
                if mask[node.row] and self._list_refusals(node):
                    mask[node.row] = False
        return mask

    def _list_refusals(self, node: NodeRow) -> list[str]:
        """What speaks against one node beyond labels, taints, room and topology."""
        if self.pod.demand.ports and node.is_port_taken(self.pod.demand):
            return [PORTS]
        if self._promised is not None and (short := self._promised(self.pod, node)):
            return short
        why = self._volumes.find_refusal(node) if self._volumes.taken or not self._volumes.empty else None
        return [why] if why else []

    def list_objections(self, node: NodeRow) -> list[str]:
        """Why one node will not do, as kube-scheduler words it: its first objection, all short resources."""
        why = node.find_refusal(self.pod.demand.spec)
        if why is not None:
            return [why]
        if self.pod.demand.ports and node.is_port_taken(self.pod.demand):
            return [PORTS]
        short = self._board.list_lacking(node, self.pod.demand) or self._list_refusals(node)
        return short or [words for words, rule in self.rules if not rule[node.row]][:1]

    def list_reasons(self) -> list[str]:
        """The objections of all nodes."""
        return [reason for node in self._board.nodes.values() for reason in self.list_objections(node)]


def describe_refusal(nodes: int, reasons: list[str]) -> str:
    """The sentence on the pod's condition."""
    if not nodes:
        return "no nodes available to schedule pods"
    tally = sorted(f"{number} {reason}" for reason, number in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(tally)}."
