"""Annotations of objects as far as decisions read them: all others are left out of files and digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Object
from dovetail.api.pod import Pod, Volume
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode, Storage

__all__ = ["strip_annotations", "strip_object", "strip_pod", "strip_pool", "strip_state"]

# People and tools keep all sorts of things in annotations, whole manifests among them.
KEPT = labels.POD_ANNOTATIONS_READ | {labels.BIND_COMPLETED, labels.DEFAULT_STORAGE_CLASS}
KEPT_DOMAINS = (labels.KARPENTER, labels.KARPENTER_AWS, labels.KARPENTER_KWOK, labels.DOVETAIL)

O = TypeVar("O", bound=Object)  # noqa: E741 - O for object


def strip_annotations(world: Snapshot) -> Snapshot:
    """The same world with only those annotations that decisions read."""
    storage = world.storage
    return replace(
        world,
        pools=tuple(strip_pool(pool) for pool in world.pools),
        nodes=tuple(strip_state(state) for state in world.nodes),
        pods=tuple(strip_pod(pod) for pod in world.pods),
        moving=tuple(strip_pod(pod) for pod in world.moving),
        virtual=tuple(strip_pod(pod) for pod in world.virtual),
        daemons=tuple(strip_pod(pod) for pod in world.daemons),
        budgets=tuple(strip_object(budget) for budget in world.budgets),
        services=tuple(strip_object(service) for service in world.services),
        storage=Storage(
            claims={name: strip_object(claim) for name, claim in storage.claims.items()},
            volumes={name: strip_object(volume) for name, volume in storage.volumes.items()},
            classes={name: strip_object(each) for name, each in storage.classes.items()},
        ),
    )


def strip_state(state: StateNode) -> StateNode:
    """The node, its NodeClaim and its pods."""
    return replace(
        state,
        node=None if state.node is None else strip_object(state.node),
        claim=None if state.claim is None else strip_object(state.claim),
        pods=tuple(strip_pod(pod) for pod in state.pods),
    )


def strip_pool(pool: SnapshotPool) -> SnapshotPool:
    """The NodePool, and the template of its nodes."""
    nodepool = strip_object(pool.nodepool)
    template = nodepool.spec.template
    metadata = replace(template.metadata, annotations=_keep_annotations(template.metadata.annotations))
    spec = replace(nodepool.spec, template=replace(template, metadata=metadata))
    return replace(pool, nodepool=replace(nodepool, spec=spec))


def strip_pod(pod: Pod) -> Pod:
    """The pod, and the templates of its volumes."""
    bare = strip_object(pod)
    if not any(volume.ephemeral for volume in pod.spec.volumes):
        return bare
    volumes = tuple(_strip_volume(volume) for volume in pod.spec.volumes)
    return replace(bare, spec=replace(pod.spec, volumes=volumes))


def _strip_volume(volume: Volume) -> Volume:
    template = volume.ephemeral.volume_claim_template if volume.ephemeral else None
    if volume.ephemeral is None or template is None:
        return volume
    template = replace(template, metadata=replace(template.metadata, annotations={}))
    return replace(volume, ephemeral=replace(volume.ephemeral, volume_claim_template=template))


def strip_object(obj: O) -> O:
    """The object itself when nothing is left out."""
    if not obj.annotations:
        return obj
    return replace(obj, metadata=replace(obj.metadata, annotations=_keep_annotations(obj.annotations)))


def _keep_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key in KEPT or _is_ours(key)}


def _is_ours(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in KEPT_DOMAINS)
