"""The file of a snapshot, and the choice between it and the live cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Object
from dovetail.api.pod import Pod, Volume
from dovetail.app.cluster_source import ClusterSource, SeenCluster
from dovetail.errors import BadInput
from dovetail.scheduling.model import snapshot_codec
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode, Storage

__all__ = ["FORMAT", "encode_snapshot", "find_cluster", "read_snapshot", "strip_annotations"]

STDIN = "-"
FORMAT = "dovetail-snapshot/1"
ADVICE = "take one with `dovetail snapshot -o FILE`"
# People and tools keep all sorts of things in annotations, whole manifests among them.
KEPT = labels.POD_ANNOTATIONS_READ | {labels.BIND_COMPLETED, labels.DEFAULT_STORAGE_CLASS}
KEPT_DOMAINS = (labels.KARPENTER, labels.KARPENTER_AWS, labels.KARPENTER_KWOK, labels.DOVETAIL)

O = TypeVar("O", bound=Object)  # noqa: E741 - O for object


def find_cluster(file: str, where: ClusterSource, remark: Callable[[str], None]) -> SeenCluster:
    """The cluster in the file, or the live one as it is now; `remark` is told of what could not be read."""
    if file:
        where.exclude_snapshot()
        return read_snapshot(file)
    # It takes all of Dovetail to see as Dovetail does; a file can do without.
    from dovetail.app.live_cluster import read_cluster

    return read_cluster(where, remark)


def encode_snapshot(world: Snapshot, excluded_zones: frozenset[str] = frozenset()) -> bytes:
    """The snapshot's own bytes, which say in addition how to read them and which zones are shifted away."""
    parts = msgspec.json.decode(
        snapshot_codec.encode_snapshot(strip_annotations(world)), type=dict[str, msgspec.Raw]
    )
    zones = {"excluded_zones": sorted(excluded_zones)} if excluded_zones else {}
    return msgspec.json.encode({"format": FORMAT} | zones | parts) + b"\n"


class _Head(msgspec.Struct):
    format: str
    excluded_zones: frozenset[str] = frozenset()


def read_snapshot(path: str) -> SeenCluster:
    """The cluster in a file; BadInput says what is wrong with the file."""
    name = "stdin" if path == STDIN else path
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"reading the snapshot {name}: {why.lower()}; {ADVICE}") from error
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(f"reading the snapshot {name}: it is not one; {ADVICE}") from error
    if head.format != FORMAT:
        raise BadInput(
            f"reading the snapshot {name}: its format is {head.format!r} and this version reads {FORMAT!r}; "
            "take it again with this version"
        )
    try:
        return SeenCluster(snapshot_codec.decode_snapshot(data), excluded_zones=head.excluded_zones)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise BadInput(f"reading the snapshot {name}: it is damaged ({error}); {ADVICE}") from error


def strip_annotations(world: Snapshot) -> Snapshot:
    """The same world with only those annotations that decisions read."""
    storage = world.storage
    return replace(
        world,
        pools=tuple(_strip_pool(pool) for pool in world.pools),
        nodes=tuple(_strip_node(state) for state in world.nodes),
        pods=tuple(_strip_pod(pod) for pod in world.pods),
        moving=tuple(_strip_pod(pod) for pod in world.moving),
        virtual=tuple(_strip_pod(pod) for pod in world.virtual),
        daemons=tuple(_strip_pod(pod) for pod in world.daemons),
        budgets=tuple(_strip_object(budget) for budget in world.budgets),
        services=tuple(_strip_object(service) for service in world.services),
        storage=Storage(
            claims={name: _strip_object(claim) for name, claim in storage.claims.items()},
            volumes={name: _strip_object(volume) for name, volume in storage.volumes.items()},
            classes={name: _strip_object(each) for name, each in storage.classes.items()},
        ),
    )


def _strip_node(state: StateNode) -> StateNode:
    return replace(
        state,
        node=None if state.node is None else _strip_object(state.node),
        claim=None if state.claim is None else _strip_object(state.claim),
        pods=tuple(_strip_pod(pod) for pod in state.pods),
    )


def _strip_pool(pool: SnapshotPool) -> SnapshotPool:
    nodepool = _strip_object(pool.nodepool)
    template = nodepool.spec.template
    metadata = replace(template.metadata, annotations=_keep_annotations(template.metadata.annotations))
    spec = replace(nodepool.spec, template=replace(template, metadata=metadata))
    return replace(pool, nodepool=replace(nodepool, spec=spec))


def _strip_pod(pod: Pod) -> Pod:
    bare = _strip_object(pod)
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


def _strip_object(obj: O) -> O:
    if not obj.annotations:
        return obj
    return replace(obj, metadata=replace(obj.metadata, annotations=_keep_annotations(obj.annotations)))


def _keep_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key in KEPT or _is_ours(key)}


def _is_ours(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in KEPT_DOMAINS)
