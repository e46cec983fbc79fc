"""One step of a drain: who must be deleted now, who may be asked to leave, and how many are still here.

Pods leave in tiers, and a tier waits until the one before it is gone:

    plain ─► daemons ─► critical ─► critical daemons

A node's deadline cuts across the tiers: a pod that could not end in time otherwise is deleted at once,
with the time that is left, whoever else is still here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.api import predicates
from dovetail.api.pod import Pod

__all__ = ["DrainStep", "drain_step", "grace_left"]

CRITICAL = ("system-cluster-critical", "system-node-critical")


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What to do now, and how many pods the drain waits for, those of later tiers included."""

    delete: tuple[tuple[Pod, int], ...] = ()
    evict: tuple[Pod, ...] = ()
    tier: tuple[Pod, ...] = ()
    waiting: int = 0

    @property
    def drained(self) -> bool:
        return self.waiting == 0


def drain_step(pods: Iterable[Pod], deadline: datetime | None, now: datetime) -> DrainStep:
    """The next step for the pods of one node."""
    waiting = [pod for pod in pods if predicates.waiting_eviction(pod, now)]
    if not waiting:
        return DrainStep()
    first = min(map(_rank, waiting))
    tier = tuple(pod for pod in waiting if _rank(pod) == first)
    return DrainStep(
        delete=_overdue(waiting, deadline, now),
        # Karpenter: pods deleted above are asked as well, if they could be (terminator.go).
        evict=tuple(pod for pod in tier if predicates.evictable(pod, now)),
        tier=tier,
        waiting=len(waiting),
    )


def grace_left(deadline: datetime, now: datetime) -> int:
    """Whole seconds to the deadline. Never 0, with which the API server would forget the pod at once."""
    return max(int((deadline - now).total_seconds()), 1)


def _overdue(pods: Iterable[Pod], deadline: datetime | None, now: datetime) -> tuple[tuple[Pod, int], ...]:
    if deadline is None:
        return ()
    grace = grace_left(deadline, now)
    late = (pod for pod in pods if predicates.forced(pod, deadline, now) and _due(pod, deadline, now))
    return tuple((pod, grace) for pod in late if _shortens(pod, grace))


def _due(pod: Pod, deadline: datetime, now: datetime) -> bool:
    """Its own time to stop would overrun the deadline. One stopping late may still turn out not to."""
    own = pod.spec.termination_grace_period_seconds
    return own is not None and now > deadline - timedelta(seconds=own)


def _shortens(pod: Pod, grace: int) -> bool:
    """Whether the delete would change anything: the API server only ever brings an end nearer."""
    granted = pod.metadata.deletion_grace_period_seconds
    return granted is None or grace < granted


def _rank(pod: Pod) -> int:
    critical = pod.spec.priority_class_name in CRITICAL
    return 2 * critical + predicates.owned_by_daemonset(pod)
