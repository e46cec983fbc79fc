"""Disruption budgets of pods, as far as a reader can tell what an eviction would meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dovetail.api import predicates
from dovetail.api.bad_items import reason_of
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.meta import LabelSelector
from dovetail.api.pod import Pod

__all__ = ["PdbLimits"]

Matches = Callable[[LabelSelector | None, Mapping[str, str]], bool]


class PdbLimits:
    """All budgets of a moment. `matches` judges a selector on labels."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget], matches: Matches) -> None:
        self._matches = matches
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.namespace, []).append(budget)

    def find_blocking_now(self, pod: Pod, now: datetime) -> tuple[str, ...]:
        """The budgets that would turn down an eviction of this pod at this moment."""
        return self._find_blocking(pod, now, lambda budget: budget.status.disruptions_allowed == 0)

    def find_blocking_always(self, pod: Pod, now: datetime) -> tuple[str, ...]:
        """The budgets that turn down every eviction of this pod, whatever its company does."""
        return self._find_blocking(pod, now, _fully_blocking)

    def currently_reschedulable(self, pod: Pod, now: datetime) -> bool:
        """It will need another place, and nothing holds it where it is for good."""
        return (
            predicates.is_reschedulable(pod)
            and predicates.is_disruptable(pod, now)
            and not self.find_blocking_always(pod, now)
        )

    def _find_blocking(
        self, pod: Pod, now: datetime, blocks: Callable[[PodDisruptionBudget], bool]
    ) -> tuple[str, ...]:
        if not predicates.is_evictable(pod, now):
            return ()
        mine = [
            budget
            for budget in self._by_namespace.get(pod.namespace, ())
            if self._matches(budget.spec.selector, pod.labels) or _means_all(budget)
        ]
        if len(mine) > 1:
            # The eviction API refuses pods of several budgets, whatever these say.
            return tuple(budget.full_name for budget in mine)
        return tuple(b.full_name for b in mine if reason_of(b) or (not _spares_unready(b, pod) and blocks(b)))


def _means_all(budget: PodDisruptionBudget) -> bool:
    """A budget that is set aside and does not say which pods it is about: it may be about any of them."""
    return budget.spec.selector is None and bool(reason_of(budget))


def _spares_unready(budget: PodDisruptionBudget, pod: Pod) -> bool:
    ready = pod.status.find_condition("Ready")
    lenient = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
    return lenient and ready is not None and ready.status == "False"


def _fully_blocking(budget: PodDisruptionBudget) -> bool:
    spec = budget.spec
    return spec.max_unavailable in (0, "0%") or spec.min_available == "100%"
