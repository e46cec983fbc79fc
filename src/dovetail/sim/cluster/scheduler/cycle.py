"""One pod against all nodes: where it may go, and what stands in the way elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dovetail.sim.cluster.scheduler.board import Board, Mask, Node
from dovetail.sim.cluster.scheduler.counting import Counts
from dovetail.sim.cluster.scheduler.filters import topology_masks
from dovetail.sim.cluster.scheduler.pods import PodInfo
from dovetail.sim.cluster.scheduler.volumes import Volumes

__all__ = ["Cycle", "refusal_text"]

PORTS = "node(s) didn't have free ports for the requested pod ports"
Promised = Callable[[PodInfo, Node], list[str]]


class Cycle:
    """One attempt. `promised` says what a node lacks once room kept for others is taken off."""

    def __init__(
        self, pod: PodInfo, board: Board, counts: Counts, volumes: Volumes, promised: Promised | None = None
    ) -> None:
        self.pod = pod
        self._board = board
        self._volumes = volumes
        self._promised = promised
        self.rules = list(topology_masks(pod, board, counts))
        # Nothing but labels, taints and room matters: the answer is the same for all pods of the shape.
        self.simple = not self.rules and volumes.empty and not volumes.taken and not pod.demand.ports

    def fitting(self) -> Mask:
        """The rows that will do, all rules together."""
        board, demand = self._board, self.pod.demand
        mask: Mask = board.alive & board.suited(demand) & board.roomy(demand)
        for _, rule in self.rules:
            mask &= rule
        if demand.ports or not self._volumes.empty or self._promised is not None:
            for node in board.nodes.values():
                if mask[node.row] and self._refusal(node):
                    mask[node.row] = False
        return mask

    def _refusal(self, node: Node) -> list[str]:
        """What speaks against one node beyond labels, taints, room and topology."""
        if self.pod.demand.ports and node.port_taken(self.pod.demand):
            return [PORTS]
        if self._promised is not None and (short := self._promised(self.pod, node)):
            return short
        why = self._volumes.verdict(node) if self._volumes.taken or not self._volumes.empty else None
        return [why] if why else []

    def objections(self, node: Node) -> list[str]:
        """Why one node will not do, as kube-scheduler words it: its first objection, all short resources."""
        why = node.verdict(self.pod.demand.spec)
        if why is not None:
            return [why]
        if self.pod.demand.ports and node.port_taken(self.pod.demand):
            return [PORTS]
        short = self._board.lacking(node, self.pod.demand) or self._refusal(node)
        return short or [words for words, rule in self.rules if not rule[node.row]][:1]

    def reasons(self) -> list[str]:
        """The objections of all nodes."""
        return [reason for node in self._board.nodes.values() for reason in self.objections(node)]


def refusal_text(nodes: int, reasons: list[str]) -> str:
    """The sentence on the pod's condition."""
    if not nodes:
        return "no nodes available to schedule pods"
    tally = sorted(f"{number} {reason}" for reason, number in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(tally)}."
