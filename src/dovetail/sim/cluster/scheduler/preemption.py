"""Making room: which less important pods would have to go for a pod to fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.sim.cluster.scheduler.board import Board, Node
from dovetail.sim.cluster.scheduler.counting import Counts
from dovetail.sim.cluster.scheduler.pods import PodInfo

__all__ = ["Preemption", "Victims"]


class Victims:
    """A node, and the pods on it that would have to go."""

    def __init__(self, node: Node, pods: list[PodInfo], violations: int) -> None:
        self.node = node
        self.pods = pods
        self.violations = violations

    def cost(self) -> tuple[int, int, int, int, str]:
        """Fewest budgets broken, then the least important pods, then the fewest; the name settles ties."""
        priorities = [pod.demand.priority for pod in self.pods]
        return (self.violations, max(priorities), sum(priorities), len(self.pods), self.node.name)


class Preemption:
    """One search for room on behalf of one pod."""

    def __init__(
        self,
        board: Board,
        counts: Counts,
        fits: Callable[[PodInfo, Node], bool],
        guarded: Callable[[PodInfo], bool],
    ) -> None:
        self._board = board
        self._counts = counts
        self._fits = fits
        self._guarded = guarded

    def find(self, pod: PodInfo, nodes: Iterable[Node]) -> Victims | None:
        """The cheapest way to make room; None when nothing less important stands in the way."""
        candidates = [found for node in nodes if (found := self._on(pod, node)) is not None]
        return min(candidates, key=Victims.cost, default=None)

    def _on(self, pod: PodInfo, node: Node) -> Victims | None:
        lower = [other for other in node.pods.values() if other.demand.priority < pod.demand.priority]
        if not lower:
            return None
        for other in lower:
            self._take(node, other)
        victims: list[PodInfo] = []
        try:
            if not self._fits(pod, node):
                return None
            # Give back as many as possible: those a budget guards first, then the most important.
            for other in sorted(lower, key=lambda p: (not self._guarded(p), -p.demand.priority, _started(p))):
                self._give_back(node, other)
                if not self._fits(pod, node):
                    self._take(node, other)
                    victims.append(other)
        finally:
            for other in lower:
                if other.key not in node.pods:
                    self._give_back(node, other)
        return Victims(node, victims, sum(map(self._guarded, victims))) if victims else None

    def _take(self, node: Node, pod: PodInfo) -> None:
        self._board.remove(node, pod.key)
        self._counts.placed(pod, node, -1)

    def _give_back(self, node: Node, pod: PodInfo) -> None:
        self._board.add(node, pod)
        self._counts.placed(pod, node)


def _started(pod: PodInfo) -> tuple[str, str]:
    return (pod.obj.get("status") or {}).get("startTime") or "", pod.key[1]
