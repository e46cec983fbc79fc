"""What a change of pools does to nodes that run: which of them no longer are what their pool asks for.

Nodes drift when the static part of their pool changes (its hash says so), or when the pool's requirements
no longer allow the labels a node has. A node that drifted is replaced, and the pods on it are evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dovetail.api import predicates
from dovetail.api.hashes import hash_nodepool
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.requirements import Requirements, Values, describe_values
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["DriftForecast", "forecast_drift"]


@dataclass(frozen=True, slots=True)
class DriftForecast:
    """A node that drifts: why, whom it would evict, and which pod keeps it for now."""

    node: str
    pool: str
    why: str
    evicted: tuple[str, ...]
    held_by: str = ""


def forecast_drift(
    running: Iterable[StateNode], before: Mapping[str, NodePool], after: Mapping[str, NodePool], now: datetime
) -> tuple[DriftForecast, ...]:
    """Every node that the change makes drift. Pools that stay as they were change nothing."""
    changed = {name: pool for name, pool in after.items() if name in before and before[name] != pool}
    found = []
    for state in running:
        pool = changed.get(state_node.read_pool_name(state))
        if pool is None or not state_node.is_managed(state):
            continue
        why = _describe_drift(state, before[pool.name], pool)
        if why:
            found.append(_build_forecast(state, pool.name, why, now))
    return tuple(found)


def _describe_drift(state: StateNode, before: NodePool, after: NodePool) -> str:
    if hash_nodepool(before) != hash_nodepool(after):
        return "the template of its pool changes"
    asked, has = (
        Requirements.from_expressions(after.spec.template.spec.requirements or ()),
        state_node.read_labels(state),
    )
    unmet = (key for key, values in asked.by_key.items() if not _allows_label(values, has.get(key)))
    return "; ".join(
        f"{describe_values(key, asked[key])} is required, and it has {has.get(key, 'none')}" for key in unmet
    )


def _allows_label(values: Values, label: str | None) -> bool:
    return values.negative if label is None else label in values


def _build_forecast(state: StateNode, pool: str, why: str, now: datetime) -> DriftForecast:
    moved = [pod for pod in state.pods if predicates.is_reschedulable(pod)]
    held = next((pod.full_name for pod in state.pods if not predicates.is_disruptable(pod, now)), "")
    return DriftForecast(state_node.read_name(state), pool, why, tuple(pod.full_name for pod in moved), held)
