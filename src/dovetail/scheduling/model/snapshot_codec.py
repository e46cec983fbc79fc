"""A snapshot as bytes and back. Parts that many pods share are written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta, Record
from dovetail.api.pod import Pod, PodSpec, PodStatus
from dovetail.api.quantity import Quantity
from dovetail.scheduling.model.pod_shapes import Numbering
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = ["decode_quantity", "decode_snapshot", "encode_part", "encode_quantity", "encode_snapshot"]


class PodRow(msgspec.Struct, array_like=True, frozen=True):
    """One pod: what is its own, and where to find what it shares."""

    metadata: ObjectMeta
    labels: int
    spec: int
    status: int
    node_name: str


class EncodedSnapshot(Record, frozen=True):
    """The snapshot without its pods, the pods as rows, and the tables the rows point into."""

    snapshot: Snapshot
    specs: tuple[PodSpec, ...] = ()
    statuses: tuple[PodStatus, ...] = ()
    labels: tuple[Mapping[str, str], ...] = ()
    pods: tuple[PodRow, ...] = ()
    moving: tuple[PodRow, ...] = ()
    virtual: tuple[PodRow, ...] = ()
    daemons: tuple[PodRow, ...] = ()
    on_nodes: tuple[tuple[PodRow, ...], ...] = ()


def encode_quantity(value: Any) -> Any:
    """The hook of encoders for parts of a snapshot."""
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"a snapshot cannot hold a {type(value).__name__}")


def decode_quantity(kind: type, value: Any) -> Any:
    """The hook of decoders for parts of a snapshot."""
    if kind is Quantity:
        return Quantity.parse_clamped(value)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=encode_quantity, order="deterministic")
_decoder = msgspec.json.Decoder(EncodedSnapshot, dec_hook=decode_quantity)


def encode_part(part: Any) -> bytes:
    """The canonical JSON of a part of a snapshot."""
    return _encoder.encode(part)


class _Writer:
    def __init__(self) -> None:
        self.specs, self.statuses, self.labels = Numbering(), Numbering(), Numbering()

    def encode_pods(self, pods: tuple[Pod, ...]) -> tuple[PodRow, ...]:
        return tuple(self.encode_pod(pod) for pod in pods)

    def encode_pod(self, pod: Pod) -> PodRow:
        return PodRow(
            replace(pod.metadata, labels={}),
            self.labels.number_value(pod.metadata.labels),
            self.specs.number_value(pod.spec),
            self.statuses.number_value(pod.status),
            pod.node_name,
        )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The same world gives the same bytes."""
    writer = _Writer()
    wire = EncodedSnapshot(
        snapshot=_drop_pods(snapshot),
        pods=writer.encode_pods(snapshot.pods),
        moving=writer.encode_pods(snapshot.moving),
        virtual=writer.encode_pods(snapshot.virtual),
        daemons=writer.encode_pods(snapshot.daemons),
        on_nodes=tuple(writer.encode_pods(node.pods) for node in snapshot.nodes),
    )
    return _encoder.encode(
        replace(
            wire,
            specs=tuple(writer.specs.rows),
            statuses=tuple(writer.statuses.rows),
            labels=tuple(writer.labels.rows),
        )
    )


def _drop_pods(snapshot: Snapshot) -> Snapshot:
    nodes = tuple(replace(node, pods=()) for node in snapshot.nodes)
    return replace(snapshot, pods=(), moving=(), virtual=(), daemons=(), nodes=nodes)


def decode_snapshot(source: bytes) -> Snapshot:
    """The world those bytes describe."""
    wire = _decoder.decode(source)

    def pods(rows: tuple[PodRow, ...]) -> tuple[Pod, ...]:
        return tuple(
            Pod(
                metadata=replace(row.metadata, labels=wire.labels[row.labels]),
                spec=wire.specs[row.spec],
                status=wire.statuses[row.status],
                node_name=row.node_name,
            )
            for row in rows
        )

    nodes: tuple[StateNode, ...] = tuple(
        replace(node, pods=pods(rows)) for node, rows in zip(wire.snapshot.nodes, wire.on_nodes, strict=True)
    )
    return replace(
        wire.snapshot,
        nodes=nodes,
        pods=pods(wire.pods),
        moving=pods(wire.moving),
        virtual=pods(wire.virtual),
        daemons=pods(wire.daemons),
    )
