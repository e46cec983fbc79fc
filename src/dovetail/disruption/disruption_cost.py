"""What a disruption costs: pods by their importance, nodes by their pods and their remaining life."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.api.labels import POD_DELETION_COST
from dovetail.api.pod import Pod

__all__ = [
    "compute_eviction_cost",
    "compute_lifetime_remaining",
    "compute_node_cost",
    "compute_reschedule_cost",
    "find_unreadable_cost",
]

BASE = 1.0
MOST = 10.0


def compute_eviction_cost(pod: Pod) -> float:
    """1 for an ordinary pod; more for one that matters, less, even below 0, for one that does not."""
    cost = BASE + _read_deletion_cost(pod) / 2**27 + (pod.spec.priority or 0) / 2**25
    return max(-MOST, min(MOST, cost))


def find_unreadable_cost(pod: Pod) -> str | None:
    """The deletion cost as it is written, if it is no number and therefore counts as not given."""
    text = pod.annotations.get(POD_DELETION_COST)
    return text if text is not None and _parse_cost(text) is None else None


def _read_deletion_cost(pod: Pod) -> float:
    return _parse_cost(pod.annotations.get(POD_DELETION_COST, "")) or 0.0


def _parse_cost(text: str) -> float | None:
    try:
        cost = float(text) if _is_go_float(text) else None
    except ValueError:
        return None
    # Upstream lets NaN through, and then nothing compares; here it counts as not given.
    return None if cost is None or math.isnan(cost) else cost


def _is_go_float(text: str) -> bool:
    """Python also takes surrounding blanks, which Go does not."""
    return bool(text) and text == text.strip()


def compute_reschedule_cost(pods: Iterable[Pod]) -> float:
    """What moving these pods costs, the node itself counted as one; never below that."""
    return BASE + sum(max(0.0, compute_eviction_cost(pod)) for pod in pods)


def compute_node_cost(pods: Iterable[Pod], remaining: float) -> float:
    """All pods of a node, negative costs included, weighed by how long the node would still live."""
    return sum(map(compute_eviction_cost, pods)) * remaining


def compute_lifetime_remaining(expire_after: timedelta | None, created: datetime, now: datetime) -> float:
    """The share of its life a claim still has before it; all of it when it never expires."""
    if expire_after is None:
        return 1.0
    if expire_after <= timedelta():
        return 0.0
    return max(0.0, min(1.0, (expire_after - (now - created)) / expire_after))
