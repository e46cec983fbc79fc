"""PodDisruptionBudgets after a change, with what each of them allows once the pods that come are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from dovetail.api import core, predicates
from dovetail.api.meta import LabelSelector
from dovetail.api.numbers import parse_integer
from dovetail.api.pod import Pod
from dovetail.scheduling.model.label_selectors import matches_selector

__all__ = ["change_budgets"]


def change_budgets(
    there: Sequence[core.PodDisruptionBudget],
    new: Iterable[core.PodDisruptionBudget],
    gone: AbstractSet[str],
    moved: Sequence[Pod],
    pods: Sequence[Pod],
) -> tuple[core.PodDisruptionBudget, ...]:
    """The budgets with new ones in place of their namesakes, and without those gone.

    Those that are other than they were, or guard a pod that comes or leaves, are counted afresh over `pods`.
    """
    named = {each.full_name: each for each in there}
    changed = {
        each.full_name: each
        for each in new
        if each.full_name not in named or named[each.full_name].spec != each.spec
    }
    named |= changed
    touched = {name for name, each in named.items() if any(_is_guarded(each, pod) for pod in moved)}
    if not (changed or gone or touched):
        return tuple(there)
    return tuple(
        _count_allowed(each, pods) if name in changed or name in touched else each
        for name, each in named.items()
        if name not in gone
    )


def _is_guarded(budget: core.PodDisruptionBudget, pod: Pod) -> bool:
    selector: LabelSelector | None = budget.spec.selector
    return pod.namespace == budget.namespace and matches_selector(selector, pod.labels)


def _count_allowed(budget: core.PodDisruptionBudget, pods: Iterable[Pod]) -> core.PodDisruptionBudget:
    """The budget with its status, where every pod that is to come has come up well."""
    guarded = [pod for pod in pods if predicates.is_active(pod) and _is_guarded(budget, pod)]
    healthy = sum(1 for pod in guarded if not _is_unready(pod))
    desired = _count_desired(budget, len(guarded))
    status = replace(
        budget.status,
        disruptions_allowed=max(0, healthy - desired),
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=len(guarded),
    )
    return replace(budget, status=status)


def _count_desired(budget: core.PodDisruptionBudget, expected: int) -> int:
    most, least = budget.spec.max_unavailable, budget.spec.min_available
    if most is not None:
        return max(0, expected - _resolve_amount(most, expected))
    return _resolve_amount(least, expected) if least is not None else 0


def _resolve_amount(amount: int | str, whole: int) -> int:
    if isinstance(amount, int):
        return amount
    share = parse_integer(amount.removesuffix("%")) or 0
    return -(-whole * share // 100)


def _is_unready(pod: Pod) -> bool:
    ready = pod.status.find_condition("Ready")
    return bool(pod.node_name) and ready is not None and ready.status != "True"
