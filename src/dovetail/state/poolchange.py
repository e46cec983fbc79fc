"""What a change of pools does to nodes that run: which of them no longer are what their pool asks for.

Nodes drift when the static part of their pool changes (its hash says so), or when the pool's requirements
no longer allow the labels a node has. A node that drifted is replaced, and the pods on it are evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dovetail.api import predicates
from dovetail.api.hashes import nodepool_hash
from dovetail.api.nodepool import NodePool
from dovetail.scheduling import nodes
from dovetail.scheduling.requirements import Requirements, Values, text
from dovetail.scheduling.snapshot import StateNode

__all__ = ["Fate", "fates"]


@dataclass(frozen=True, slots=True)
class Fate:
    """A node that drifts: why, whom it would evict, and which pod keeps it for now."""

    node: str
    pool: str
    why: str
    evicted: tuple[str, ...]
    held_by: str = ""


def fates(
    running: Iterable[StateNode], before: Mapping[str, NodePool], after: Mapping[str, NodePool], now: datetime
) -> tuple[Fate, ...]:
    """Every node that the change makes drift. Pools that stay as they were change nothing."""
    changed = {name: pool for name, pool in after.items() if name in before and before[name] != pool}
    found = []
    for state in running:
        pool = changed.get(nodes.pool(state))
        if pool is None or not nodes.managed(state):
            continue
        why = _drift(state, before[pool.name], pool)
        if why:
            found.append(_fate(state, pool.name, why, now))
    return tuple(found)


def _drift(state: StateNode, before: NodePool, after: NodePool) -> str:
    if nodepool_hash(before) != nodepool_hash(after):
        return "the template of its pool changes"
    asked, has = Requirements.of(after.spec.template.spec.requirements or ()), nodes.labels(state)
    unmet = (key for key, values in asked.by_key.items() if not _met(values, has.get(key)))
    return "; ".join(f"{text(key, asked[key])} is asked, and it has {has.get(key, 'none')}" for key in unmet)


def _met(values: Values, label: str | None) -> bool:
    return values.negative if label is None else label in values


def _fate(state: StateNode, pool: str, why: str, now: datetime) -> Fate:
    moved = [pod for pod in state.pods if predicates.reschedulable(pod)]
    held = next((pod.full_name for pod in state.pods if not predicates.disruptable(pod, now)), "")
    return Fate(nodes.name(state), pool, why, tuple(pod.full_name for pod in moved), held)
