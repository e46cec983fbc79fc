"""Every node in one table: free resources and counts as columns, so that a pod is tried on all at once.

A node has a row for as long as it exists; rows of nodes that left are used again. Whatever is said
per label value (zones, hosts) is said through *codes*: each row's value of a label as a small number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.sim.cluster.node_matching import find_untolerated_taint, is_node_selected, tolerates_taint
from dovetail.sim.cluster.scheduler.pod_info import PodDemand, PodInfo, parse_amounts

__all__ = ["LabelCodes", "Mask", "NodeRow", "NodeTable"]

Json = dict[str, Any]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
CORDONED = "node(s) were unschedulable"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class NodeRow:
    """What is kept of a node beside its row."""

    __slots__ = ("labels", "name", "obj", "pods", "ports", "row", "soft_taints")

    def __init__(self, row: int, obj: Json) -> None:
        self.row = row
        self.pods: dict[tuple[str, str], PodInfo] = {}
        self.ports: list[tuple[str, str, int]] = []
        self.update_object(obj)

    def update_object(self, obj: Json) -> None:
        self.obj = obj
        self.name: str = obj["metadata"]["name"]
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        taints = obj["spec"].get("taints") or ()
        self.soft_taints: list[Json] = [t for t in taints if t.get("effect") == "PreferNoSchedule"]

    def is_port_taken(self, demand: PodDemand) -> bool:
        for address, protocol, port in demand.ports:
            for other, their_protocol, taken in self.ports:
                same = port == taken and protocol == their_protocol
                if same and (address == other or "0.0.0.0" in (address, other)):
                    return True
        return False

    def find_refusal(self, spec: Json) -> str | None:
        """Why this node can never take such a pod as both are now; None if it can."""
        tolerations = spec.get("tolerations") or ()
        if self.obj["spec"].get("unschedulable") and not any(tolerates_taint(t, CORDON) for t in tolerations):
            return CORDONED
        taint = find_untolerated_taint(spec, self.obj, ("NoSchedule", "NoExecute"))
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        return None if is_node_selected(spec, self.obj) else NODE_AFFINITY


class LabelCodes:
    """One label over all rows: each row's value as a number, -1 where the label is missing."""

    __slots__ = ("index", "of_row", "unique")

    def __init__(self, nodes: dict[str, NodeRow], rows: int, key: str) -> None:
        self.of_row: Ints = np.full(rows, -1, np.int64)
        self.index: dict[str, int] = {}
        for node in nodes.values():
            value = node.labels.get(key)
            if value is not None:
                self.of_row[node.row] = self.index.setdefault(value, len(self.index))
        # Every node has a value of its own, as with host names: a row's total is its own count.
        self.unique = len(self.index) == len(nodes)

    def sum_by_value(self, per_row: Ints, counted: Mask) -> Ints:
        """Totals per value, over the rows that count."""
        use = counted & (self.of_row >= 0)
        found = np.bincount(self.of_row[use], weights=per_row[use], minlength=len(self.index))
        return found.astype(np.int64)


class NodeTable:
    """All nodes and what is on them."""

    def __init__(self, rows: int = 64) -> None:
        self.nodes: dict[str, NodeRow] = {}
        self._free: list[int] = []
        self.names: dict[str, int] = {"pods": 0, "cpu": 1, "memory": 2}
        self.alive: Mask = np.zeros(rows, np.bool_)
        self.size: Ints = np.zeros((rows, 8), np.int64)
        self.used: Ints = np.zeros((rows, 8), np.int64)
        self.scored: Floats = np.zeros((rows, 2))
        self._codes: dict[str, LabelCodes] = {}
        self._static: dict[int, Mask] = {}
        self._by_row: dict[int, NodeRow] = {}
        self._soft: list[NodeRow] | None = None
        self._demands: dict[int, tuple[Ints, Ints]] = {}
        # Pods that avoid others: without any, nobody need look for them.
        self.shy = 0

    @property
    def rows(self) -> int:
        return len(self.alive)

    # Nodes

    def put(self, obj: Json) -> NodeRow:
        """A node appeared or changed."""
        name = obj["metadata"]["name"]
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeRow(self._take_row(), obj)
            self._by_row[node.row] = node
            self.alive[node.row] = True
        else:
            node.update_object(obj)
        status = obj.get("status") or {}
        size = parse_amounts(status.get("allocatable") or status.get("capacity") or {})
        self.size[node.row] = 0
        for resource, amount in size.items():
            column = self._find_column(resource)  # may widen the table: before anything is indexed
            self.size[node.row, column] = amount
        self._forget_derived()
        return node

    def _forget_derived(self) -> None:
        """What was worked out of the nodes as they were."""
        self._codes.clear()
        self._static.clear()
        self._soft = None

    def drop(self, name: str) -> NodeRow | None:
        node = self.nodes.pop(name, None)
        if node is not None:
            for column in (self.size, self.used, self.scored):
                column[node.row] = 0
            self.alive[node.row] = False
            del self._by_row[node.row]
            self._free.append(node.row)
            self._forget_derived()
        return node

    def list_softly_tainted(self) -> list[NodeRow]:
        """Nodes that would rather not have just any pod."""
        if self._soft is None:
            self._soft = [node for node in self.nodes.values() if node.soft_taints]
        return self._soft

    def get_node(self, row: int) -> NodeRow:
        """The node of a row in use."""
        return self._by_row[row]

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = len(self.nodes)
        if row >= self.rows:
            more = self.rows
            self.alive = np.concatenate([self.alive, np.zeros(more, np.bool_)])
            self.size = np.concatenate([self.size, np.zeros((more, self.size.shape[1]), np.int64)])
            self.used = np.concatenate([self.used, np.zeros((more, self.used.shape[1]), np.int64)])
            self.scored = np.concatenate([self.scored, np.zeros((more, 2))])
        return row

    def _find_column(self, resource: str) -> int:
        column = self.names.setdefault(resource, len(self.names))
        if column >= self.size.shape[1]:
            wider = np.zeros((self.rows, self.size.shape[1]), np.int64)
            self.size = np.concatenate([self.size, wider], axis=1)
            self.used = np.concatenate([self.used, wider], axis=1)
        return column

    # Pods

    def index_demand(self, demand: PodDemand) -> tuple[Ints, Ints]:
        """Columns and amounts a pod takes, itself counted as one of `pods`."""
        known = self._demands.get(demand.number)
        if known is None:
            wanted = {"pods": 1} | {name: a for name, a in demand.requests.items() if a}
            columns = np.array([self._find_column(name) for name in wanted], np.int64)
            known = self._demands[demand.number] = (columns, np.array(list(wanted.values()), np.int64))
        return known

    def add_pod(self, node: NodeRow, pod: PodInfo) -> None:
        if pod.key in node.pods:
            self.remove_pod(node, pod.key)
        node.pods[pod.key] = pod
        self._charge_row(node, pod, 1)
        node.ports += pod.demand.ports

    def remove_pod(self, node: NodeRow, key: tuple[str, str]) -> PodInfo | None:
        pod = node.pods.pop(key, None)
        if pod is not None:
            self._charge_row(node, pod, -1)
            for port in pod.demand.ports:
                node.ports.remove(port)
        return pod

    def _charge_row(self, node: NodeRow, pod: PodInfo, sign: int) -> None:
        columns, wanted = self.index_demand(pod.demand)
        self.shy += sign if pod.demand.anti_affinity else 0
        self.used[node.row, columns] += sign * wanted
        self.scored[node.row, 0] += sign * pod.demand.scored[0]
        self.scored[node.row, 1] += sign * pod.demand.scored[1]

    # Judging all rows at once

    def get_codes(self, key: str) -> LabelCodes:
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = LabelCodes(self.nodes, self.rows, key)
        return found

    def find_suited_rows(self, demand: PodDemand) -> Mask:
        """Rows whose labels and taints accept the shape; remembered until a node changes."""
        mask = self._static.get(demand.number)
        if mask is None:
            mask = np.zeros(self.rows, np.bool_)
            for node in self.nodes.values():
                mask[node.row] = node.find_refusal(demand.spec) is None
            self._static[demand.number] = mask
        return mask

    def find_roomy_rows(self, demand: PodDemand) -> Mask:
        """Rows with enough of everything left."""
        columns, wanted = self.index_demand(demand)
        free = self.size[:, columns] - self.used[:, columns]
        return np.asarray((free >= wanted).all(axis=1), np.bool_)

    def list_lacking(self, node: NodeRow, demand: PodDemand) -> list[str]:
        """Which resources a node is short of, as kube-scheduler words it."""
        columns, wanted = self.index_demand(demand)
        free = self.size[node.row, columns] - self.used[node.row, columns]
        short = {int(column) for column, lack in zip(columns, free < wanted, strict=True) if lack}
        words = {0: "Too many pods"}
        return [words.get(c, f"Insufficient {name}") for name, c in self.names.items() if c in short]
