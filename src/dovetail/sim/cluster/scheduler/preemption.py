"""Making room: which less important pods would have to go for a pod to fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dovetail.sim.cluster.scheduler.node_table import NodeRow, NodeTable
from dovetail.sim.cluster.scheduler.pod_info import PodInfo
from dovetail.sim.cluster.scheduler.topology_counts import SimTopologyCounts
from dovetail.sim.kube.selectors import build_label_matcher

__all__ = ["BudgetGuards", "Preemption", "PreemptionVictims"]

Json = dict[str, Any]
Fits = Callable[[PodInfo, NodeRow], bool]


class BudgetGuards:
    """Disruption budgets: which of some pods could not all go without breaking one."""

    def __init__(self, budgets: Iterable[Json]) -> None:
        self._budgets = [
            (
                budget["metadata"]["namespace"],
                build_label_matcher(budget["spec"].get("selector")),
                budget.get("status") or {},
            )
            for budget in budgets
        ]

    def find_broken(self, pods: Sequence[PodInfo]) -> set[tuple[str, str]]:
        """Keys of the pods whose going would exceed what some budget still allows, taken in order."""
        left = [status.get("disruptionsAllowed", 0) for _, _, status in self._budgets]
        broken = set()
        for pod in pods:
            for number, (namespace, matches, status) in enumerate(self._budgets):
                if namespace != pod.namespace or not pod.labels or not matches(pod.labels):
                    continue
                if pod.key[1] in (status.get("disruptedPods") or {}):
                    continue  # already counted there
                left[number] -= 1
                if left[number] < 0:
                    broken.add(pod.key)
        return broken


class PreemptionVictims:
    """A node, and the pods on it that would have to go."""

    def __init__(self, node: NodeRow, pods: list[PodInfo], violations: int) -> None:
        self.node = node
        self.pods = pods
        self.violations = violations

    def compute_cost(self) -> tuple[int, int, int, int]:
        """Fewest budgets broken, then the least important pods, then the fewest."""
        priorities = [pod.demand.priority for pod in self.pods]
        # Priorities may be negative; the offset keeps one more victim from making a sum smaller.
        total = sum(priority + 2**31 for priority in priorities)
        return (self.violations, max(priorities), total, len(self.pods))

    def find_start_time(self) -> str:
        """When the first of the most important victims started."""
        top = max(pod.demand.priority for pod in self.pods)
        return min(_read_start(pod)[0] for pod in self.pods if pod.demand.priority == top)


class Preemption:
    """One search for room on behalf of one pod."""

    def __init__(self, table: NodeTable, counts: SimTopologyCounts, fits: Fits, guards: BudgetGuards) -> None:
        self._board = table
        self._counts = counts
        self._fits = fits
        self._guards = guards

    def find_victims(self, pod: PodInfo, nodes: Iterable[NodeRow]) -> PreemptionVictims | None:
        """The cheapest way to make room; None when nothing less important stands in the way."""
        candidates = [found for node in nodes if (found := self._find_victims_on(pod, node)) is not None]
        if not candidates:
            return None
        least = min(found.compute_cost() for found in candidates)
        cheapest = [found for found in candidates if found.compute_cost() == least]
        # Of equals the pods that started last go; after that the name settles it.
        latest = max(found.find_start_time() for found in cheapest)
        return min((f for f in cheapest if f.find_start_time() == latest), key=lambda f: f.node.name)

    def _find_victims_on(self, pod: PodInfo, node: NodeRow) -> PreemptionVictims | None:
        lower = [other for other in node.pods.values() if other.demand.priority < pod.demand.priority]
        if not lower:
            return None
        for other in lower:
            self._take_pod(node, other)
        try:
            if not self._fits(pod, node):
                return None
            return self._reprieve_pods(pod, node, lower)
        finally:
            for other in lower:
                if other.key not in node.pods:
                    self._restore_pod(node, other)

    def _reprieve_pods(self, pod: PodInfo, node: NodeRow, lower: list[PodInfo]) -> PreemptionVictims | None:
        """Give back as many as possible: those a budget guards first, then the most important."""
        by_weight = sorted(lower, key=lambda p: (-p.demand.priority, _read_start(p)))
        broken = self._guards.find_broken(by_weight)
        victims = []
        for other in sorted(by_weight, key=lambda p: p.key not in broken):
            self._restore_pod(node, other)
            if not self._fits(pod, node):
                self._take_pod(node, other)
                victims.append(other)
        violations = sum(victim.key in broken for victim in victims)
        return PreemptionVictims(node, victims, violations) if victims else None

    def _take_pod(self, node: NodeRow, pod: PodInfo) -> None:
        self._board.remove_pod(node, pod.key)
        self._counts.update_counts(pod, node, -1)

    def _restore_pod(self, node: NodeRow, pod: PodInfo) -> None:
        self._board.add_pod(node, pod)
        self._counts.update_counts(pod, node)


def _read_start(pod: PodInfo) -> tuple[str, str]:
    return (pod.obj.get("status") or {}).get("startTime") or "", pod.key[1]
