"""One step of a drain: who must be deleted now, who may be asked to leave, and how many are still here.

Pods leave in tiers, and a tier waits until the one before it is gone:

    plain ─► daemons ─► critical ─► critical daemons

A node's deadline cuts across the tiers: a pod that could not end in time otherwise is deleted at once,
with the time that is left, whoever else is still here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.api import predicates
from dovetail.api.core import PersistentVolumeClaim, VolumeAttachment
from dovetail.api.pod import Pod, Volume
from dovetail.controllers.base import Cache

__all__ = [
    "BY_NODE",
    "DrainStep",
    "compute_grace_left",
    "index_attachment_by_node",
    "list_blocking_attachments",
    "plan_drain_step",
]

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


def plan_drain_step(pods: Iterable[Pod], deadline: datetime | None, now: datetime) -> DrainStep:
    """The next step for the pods of one node."""
    waiting = [pod for pod in pods if predicates.waiting_eviction(pod, now)]
    if not waiting:
        return DrainStep()
    first = min(map(_rank_pod, waiting))
    tier = tuple(pod for pod in waiting if _rank_pod(pod) == first)
    return DrainStep(
        delete=_list_overdue(waiting, deadline, now),
        # Karpenter: pods deleted above are asked as well, if they could be (terminator.go).
        evict=tuple(pod for pod in tier if predicates.is_evictable(pod, now)),
        tier=tier,
        waiting=len(waiting),
    )


def compute_grace_left(deadline: datetime, now: datetime) -> int:
    """Whole seconds to the deadline. Never 0, with which the API server would forget the pod at once."""
    return max(int((deadline - now).total_seconds()), 1)


def _list_overdue(
    pods: Iterable[Pod], deadline: datetime | None, now: datetime
) -> tuple[tuple[Pod, int], ...]:
    if deadline is None:
        return ()
    grace = compute_grace_left(deadline, now)
    late = (
        pod
        for pod in pods
        if predicates.must_delete_now(pod, deadline, now) and _is_overdue(pod, deadline, now)
    )
    return tuple((pod, grace) for pod in late if _shortens_grace(pod, grace))


def _is_overdue(pod: Pod, deadline: datetime, now: datetime) -> bool:
    """Its own time to stop would overrun the deadline. One stopping late may still turn out not to."""
    own = pod.spec.termination_grace_period_seconds
    return own is not None and now > deadline - timedelta(seconds=own)


def _shortens_grace(pod: Pod, grace: int) -> bool:
    """Whether the delete would change anything: the API server only ever brings an end nearer."""
    granted = pod.metadata.deletion_grace_period_seconds
    return granted is None or grace < granted


def _rank_pod(pod: Pod) -> int:
    critical = pod.spec.priority_class_name in CRITICAL
    return 2 * critical + predicates.owned_by_daemonset(pod)


BY_NODE = "nodeName"


def index_attachment_by_node(attachment: VolumeAttachment) -> tuple[str, ...]:
    """The index under which an attachment is found by its node."""
    return (attachment.spec.node_name,) if attachment.spec.node_name else ()


def list_blocking_attachments(
    node: str,
    pods: Iterable[Pod],
    attachments: Cache[VolumeAttachment],
    claims: Cache[PersistentVolumeClaim],
    now: datetime,
) -> tuple[str, ...]:
    """Attachments of the node to wait for: not those of pods that stay until the machine is gone."""
    staying = [pod for pod in pods if not predicates.is_drainable(pod, now)]
    kept = {volume for pod in staying for volume in _list_volumes_of_pod(pod, claims)}
    names = (
        attachment.name
        for attachment in attachments.by(BY_NODE, node)
        if attachment.spec.source.persistent_volume_name
        and attachment.spec.source.persistent_volume_name not in kept
    )
    return tuple(sorted(names))


def _list_volumes_of_pod(pod: Pod, claims: Cache[PersistentVolumeClaim]) -> Iterator[str]:
    for volume in pod.spec.volumes:
        name = _claim_name(pod, volume)
        claim = claims.get(name, pod.namespace) if name else None
        if claim is not None and claim.spec.volume_name:
            yield claim.spec.volume_name


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.name}-{volume.name}" if volume.ephemeral is not None else ""
