"""What a change of pools and node classes does to nodes that run: which of them no longer are what is asked.

Nodes drift when the static part of their pool or class changes (its hash says so), or when the pool's
requirements no longer allow the labels a node has. A node that drifted is replaced, and the pods on it are
evicted. A node that is no longer ahead of its pool is at rest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import conditions, labels, predicates, reasons
from dovetail.api.hashes import NODEPOOL_HASH_VERSION, hash_nodepool
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.requirements import Requirements, Values, describe_values
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["DriftForecast", "forecast_drift", "mark_drift"]

# What the drift of a pool is called on claims; other reasons come from the cloud and are not forgotten here.
POOL_REASONS = frozenset((reasons.NODEPOOL_DRIFTED, reasons.REQUIREMENTS_DRIFTED))
CLASS_WHY = "its node class changes"


@dataclass(frozen=True, slots=True)
class DriftForecast:
    """A node that drifts: why, whom it would evict, and which pod keeps it for now."""

    node: str
    pool: str
    why: str
    evicted: tuple[str, ...]
    held_by: str = ""


def forecast_drift(
    running: Iterable[StateNode],
    before: Mapping[str, NodePool],
    after: Mapping[str, NodePool],
    now: datetime,
    classes: frozenset[str] = frozenset(),
) -> tuple[DriftForecast, ...]:
    """Every node that the change makes drift. Pools that stay as they were change nothing.

    `classes` are the names of node classes whose hash changes.
    """
    changed = {name: pool for name, pool in after.items() if name in before and before[name] != pool}
    found = []
    for state in running:
        claim, pool = state.claim, state_node.read_pool_name(state)
        if claim is None:
            continue
        why = _describe_drift(state, claim, before[pool], changed[pool]) if pool in changed else ""
        if not why and claim.spec.node_class_ref.name in classes:
            why = CLASS_WHY
        if why and not conditions.is_true(claim, conditions.DRIFTED):
            found.append(_build_forecast(state, pool, why, now))
    return tuple(found)


def mark_drift(
    state: StateNode,
    forecast: DriftForecast | None,
    before: NodePool | None,
    after: NodePool | None,
    now: datetime,
) -> StateNode:
    """The node with its claim's condition as the controller will set it after the change."""
    claim = state.claim
    if claim is None:
        return state
    if forecast is not None:
        reason = reasons.NODECLASS_DRIFT if forecast.why == CLASS_WHY else reasons.NODEPOOL_DRIFTED
        return replace(state, claim=conditions.set_true(claim, conditions.DRIFTED, now, reason, reason))
    drifted = conditions.find_condition(claim, conditions.DRIFTED)
    if (
        drifted is None
        or drifted.reason not in POOL_REASONS
        or before is None
        or after is None
        or before == after
    ):
        return state
    if _describe_drift(state, claim, before, after):
        return state
    return replace(state, claim=conditions.clear_condition(claim, conditions.DRIFTED))


def _describe_drift(state: StateNode, claim: NodeClaim, before: NodePool, after: NodePool) -> str:
    if _has_other_hash(claim, before, after):
        return "the template of its pool changes"
    asked, has = (
        Requirements.from_expressions(after.spec.template.spec.requirements or ()),
        state_node.read_labels(state),
    )
    unmet = (key for key, values in asked.by_key.items() if not _allows_label(values, has.get(key)))
    return "; ".join(
        f"{describe_values(key, asked[key])} is required, and it has {has.get(key, 'none')}" for key in unmet
    )


def _has_other_hash(claim: NodeClaim, before: NodePool, after: NodePool) -> bool:
    """Whether the claim was made of another template; where it does not say, whether the template changes.

    A snapshot's file does not tell an empty list from none, so that this alone is no change of a template.
    """
    known = claim.annotations.get(labels.NODEPOOL_HASH)
    if known is not None and claim.annotations.get(labels.NODEPOOL_HASH_VERSION) == NODEPOOL_HASH_VERSION:
        return known != hash_nodepool(after)
    if hash_nodepool(before) == hash_nodepool(after):
        return False
    old, new = before.spec.template, after.spec.template
    return replace(new, spec=replace(new.spec, requirements=old.spec.requirements)) != old


def _allows_label(values: Values, label: str | None) -> bool:
    return values.negative if label is None else label in values


def _build_forecast(state: StateNode, pool: str, why: str, now: datetime) -> DriftForecast:
    moved = [pod for pod in state.pods if predicates.is_reschedulable(pod)]
    held = next((pod.full_name for pod in state.pods if not predicates.is_disruptable(pod, now)), "")
    return DriftForecast(state_node.read_name(state), pool, why, tuple(pod.full_name for pod in moved), held)
