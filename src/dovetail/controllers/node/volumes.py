"""Which volumes must come off a node before its machine may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dovetail.api import predicates
from dovetail.api.core import PersistentVolumeClaim, VolumeAttachment
from dovetail.api.pod import Pod, Volume
from dovetail.controllers.base import Cache

__all__ = ["BY_NODE", "blocking_attachments", "node_of_attachment"]

BY_NODE = "nodeName"


def node_of_attachment(attachment: VolumeAttachment) -> tuple[str, ...]:
    """The index under which an attachment is found by its node."""
    return (attachment.spec.node_name,) if attachment.spec.node_name else ()


def blocking_attachments(
    node: str,
    pods: Iterable[Pod],
    attachments: Cache[VolumeAttachment],
    claims: Cache[PersistentVolumeClaim],
    now: datetime,
) -> tuple[str, ...]:
    """Attachments of the node to wait for: not those of pods that stay until the machine is gone."""
    staying = [pod for pod in pods if not predicates.drainable(pod, now)]
    kept = {volume for pod in staying for volume in _volumes_of(pod, claims)}
    names = (
        attachment.name
        for attachment in attachments.by(BY_NODE, node)
        if attachment.spec.source.persistent_volume_name
        and attachment.spec.source.persistent_volume_name not in kept
    )
    return tuple(sorted(names))


def _volumes_of(pod: Pod, claims: Cache[PersistentVolumeClaim]) -> Iterator[str]:
    for volume in pod.spec.volumes:
        name = _claim_name(pod, volume)
        claim = claims.get(name, pod.namespace) if name else None
        if claim is not None and claim.spec.volume_name:
            yield claim.spec.volume_name


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.name}-{volume.name}" if volume.ephemeral is not None else ""
