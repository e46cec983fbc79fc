"""Making room: which less important pods would have to go for a pod to fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.sim.cluster.scheduler.counting import Counts
from dovetail.sim.cluster.scheduler.nodes import NodeInfo
from dovetail.sim.cluster.scheduler.pods import PodInfo

__all__ = ["Victims", "find_victims"]

Fits = Callable[[PodInfo, NodeInfo], bool]


class Victims:
    """A node, and the pods on it that would have to go."""

    def __init__(self, node: NodeInfo, pods: list[PodInfo], violations: int) -> None:
        self.node = node
        self.pods = pods
        self.violations = violations

    def cost(self) -> tuple[int, int, int, int, str]:
        """Fewest budgets broken, then the least important pods, then the fewest; the name settles ties."""
        priorities = [pod.demand.priority for pod in self.pods]
        return (self.violations, max(priorities), sum(priorities), len(self.pods), self.node.name)


def find_victims(
    pod: PodInfo, nodes: Iterable[NodeInfo], counts: Counts, fits: Fits, guarded: Callable[[PodInfo], bool]
) -> Victims | None:
    """The cheapest way to make room for the pod; None when nothing less important stands in its way."""
    candidates = [found for node in nodes if (found := _on(pod, node, counts, fits, guarded)) is not None]
    return min(candidates, key=Victims.cost, default=None)


def _on(
    pod: PodInfo, node: NodeInfo, counts: Counts, fits: Fits, guarded: Callable[[PodInfo], bool]
) -> Victims | None:
    lower = [other for other in node.pods.values() if other.demand.priority < pod.demand.priority]
    if not lower:
        return None
    for other in lower:
        _take(node, other, counts)
    victims: list[PodInfo] = []
    try:
        if not fits(pod, node):
            return None
        # Give back as many as possible: those a budget guards first, the most important first.
        order = sorted(lower, key=lambda p: (not guarded(p), -p.demand.priority, _started(p)))
        for other in order:
            _give_back(node, other, counts)
            if not fits(pod, node):
                _take(node, other, counts)
                victims.append(other)
    finally:
        for other in lower:
            if other.key not in node.pods:
                _give_back(node, other, counts)
    return Victims(node, victims, sum(guarded(v) for v in victims)) if victims else None


def _take(node: NodeInfo, pod: PodInfo, counts: Counts) -> None:
    node.remove(pod.key)
    counts.placed(pod, node, -1)


def _give_back(node: NodeInfo, pod: PodInfo, counts: Counts) -> None:
    node.add(pod)
    counts.placed(pod, node)


def _started(pod: PodInfo) -> tuple[str, str]:
    return (pod.obj.get("status") or {}).get("startTime") or "", pod.key[1]
