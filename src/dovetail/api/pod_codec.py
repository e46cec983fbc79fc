"""Pods from the wire, small and quick: a large cluster has hundreds of thousands of them.

Pods of one owner are nearly the same, so what they share is kept once and decoded once. A pod's document is
cut up but not read: its labels, its tolerations and so on stay bytes, to be compared with those of the shapes
its owner is known to have. Only a new shape is decoded to records. Equal parts that are spelled differently
become two shapes, so a mistake here costs memory and never meaning.

What is dropped on the way in, because nothing here reads it: `generateName`, annotations other than
`labels.POD_ANNOTATIONS_READ`, volumes that are not claims, and the kubelet's progress conditions.
None of it is lost on a write: changes are laid over the document as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr, replace

from dovetail.api import labels
from dovetail.api.meta import Condition, ObjectMeta, OwnerReference, Record
from dovetail.api.pod import Affinity, Pod, PodSpec, PodStatus
from dovetail.api.wire import read_json

__all__ = ["Interner", "WirePod", "pod_from_wire"]

PROGRESS: Final = frozenset(("PodReadyToStartContainers", "Initialized", "ContainersReady"))
"""Steps of a pod's start; whether it is scheduled and Ready says all that is needed of them."""

NOTHING: Final = Raw()
NULL: Final = Raw(b"null")
NO_LABELS: Final[Mapping[str, str]] = {}


class WireAnnotations(
    Record,
    frozen=True,
    rename={
        "do_not_disrupt": labels.DO_NOT_DISRUPT,
        "deletion_cost": labels.POD_DELETION_COST,
        "buffer_pod": labels.BUFFER_FAKE_POD,
        "buffer_name": labels.BUFFER_NAME,
        "buffer_namespace": labels.BUFFER_NAMESPACE,
    },
):
    """The annotations we read. As fields rather than a mapping, so that the others cost nothing."""

    do_not_disrupt: str | None = None
    deletion_cost: str | None = None
    buffer_pod: str | None = None
    buffer_name: str | None = None
    buffer_namespace: str | None = None


NO_ANNOTATIONS: Final = WireAnnotations()


class WirePart(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Part of a pod's document, cut up. Unlike a Record it may be edited: nobody else sees it."""


class WireMeta(WirePart):
    """Metadata, without what pods do not need of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Raw = NOTHING
    annotations: WireAnnotations | None = NO_ANNOTATIONS
    finalizers: tuple[str, ...] | None = ()
    owner_references: Raw = NOTHING


class WireContainer(WirePart):
    """The parts of a container that count; its mounts name the pod's own token volume, so not all of it."""

    name: str = ""
    resources: Raw = NOTHING
    ports: Raw = NOTHING
    restart_policy: str | None = None


class WireVolume(WirePart):
    """A volume; only claims are kept."""

    name: str = ""
    persistent_volume_claim: Raw = NOTHING
    ephemeral: Raw = NOTHING


class WireSpec(WirePart):
    """The fields of PodSpec, and the node."""

    node_name: str | None = None
    affinity: Raw = NOTHING
    containers: list[WireContainer] | None = None
    init_containers: list[WireContainer] | None = None
    volumes: list[WireVolume] | None = None
    node_selector: Raw = NOTHING
    tolerations: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    resources: Raw = NOTHING
    overhead: Raw = NOTHING
    resource_claims: Raw = NOTHING
    scheduling_gates: Raw = NOTHING
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    host_network: bool | None = None
    termination_grace_period_seconds: int | None = None


class WireContainerStatus(WirePart):
    """What a container was given."""

    name: str = ""
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class WireStatus(WirePart):
    """The fields of PodStatus."""

    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str | None = None
    start_time: datetime | None = None
    resize: str | None = None
    resources: Raw = NOTHING
    container_statuses: list[WireContainerStatus] | None = None
    init_container_statuses: list[WireContainerStatus] | None = None
    resource_claim_statuses: Raw = NOTHING


class WirePod(WirePart):
    """A pod, cut up."""

    metadata: WireMeta = msgspec.field(default_factory=WireMeta)
    spec: WireSpec = msgspec.field(default_factory=WireSpec)
    status: WireStatus | None = None


class InternedShape:
    """What the pods of one owner have in common: as bytes, to compare, and as records, to share."""

    __slots__ = ("given", "meta", "spec", "status", "wire_affinity", "wire_labels", "wire_spec")

    def __init__(self, meta: WireMeta, spec: WireSpec, affinity: Raw, status: WireStatus) -> None:
        # Read from bytes of our own: parts of the document as it arrived would keep all of it in memory.
        document = msgspec.json.encode(spec)
        self.wire_spec = read_json(WireSpec, document)
        self.wire_labels = meta.labels.copy()
        self.wire_affinity = affinity.copy() if affinity else NOTHING
        self.spec = replace(read_json(PodSpec, document), affinity=_read_affinity(affinity))
        self.meta = ObjectMeta(
            namespace=meta.namespace,
            labels=_read_labels(meta.labels),
            annotations=NO_LABELS,
            owner_references=_read_owners(meta.owner_references),
        )
        given = msgspec.json.encode(_keep_shared_parts(status))
        self.given = _list_shared_parts(read_json(WireStatus, given))
        self.status = read_json(PodStatus, given)


class Texts(dict[str, str]):
    """Each text once. Looking one up adds it."""

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __missing__(self, text: str) -> str:
        if len(self) >= self.most:
            self.clear()
        self[text] = text
        return text


class Interner:
    """The shapes seen so far, by owner. Beyond a bound it forgets the oldest; then only sharing suffers."""

    __slots__ = ("_shapes", "most_owners", "most_shapes", "text")

    def __init__(self, most_owners: int = 20_000, most_shapes: int = 4, most_texts: int = 100_000) -> None:
        self.most_owners = most_owners
        self.most_shapes = most_shapes
        self._shapes: dict[bytes, list[InternedShape]] = {}
        self.text = Texts(most_texts).__getitem__
        """The one copy of a text that many pods have, such as a node's name."""

    def __len__(self) -> int:
        return sum(map(len, self._shapes.values()))

    def find_shape(self, meta: WireMeta, spec: WireSpec, affinity: Raw, status: WireStatus) -> InternedShape:
        """The shape with this spec; labels, affinity and status are the first such pod's."""
        # Pods without an owner share what they can within their namespace.
        key = bytes(meta.owner_references) or meta.namespace.encode()
        known = self._shapes.get(key)
        if known is not None:
            for shape in known:
                if shape.wire_spec == spec:
                    return shape
        return self._keep_shape(key, InternedShape(meta, spec, affinity, status))

    def _keep_shape(self, key: bytes, shape: InternedShape) -> InternedShape:
        known = self._shapes.setdefault(key, [])
        if len(known) >= self.most_shapes:
            del known[0]
        known.append(shape)
        if len(self._shapes) > self.most_owners:
            del self._shapes[next(iter(self._shapes))]
        return shape


def pod_from_wire(wire: WirePod, table: Interner) -> Pod:
    """The pod, holding the shared copy of whatever it shares."""
    meta, spec, status = wire.metadata, wire.spec, wire.status or WireStatus()
    node, affinity = spec.node_name, spec.affinity
    # What is the pod's own is taken out, and what is left is the shape. Daemon pods, each pinned to its
    # node, differ in their affinity alone.
    spec.node_name = None
    spec.affinity = NOTHING
    if spec.volumes:
        spec.volumes = [v for v in spec.volumes if v.persistent_volume_claim or v.ephemeral] or None
    shape = table.find_shape(meta, spec, affinity, status)
    same = affinity is shape.wire_affinity or affinity == shape.wire_affinity
    return Pod(
        metadata=_build_metadata(meta, shape, table),
        spec=shape.spec if same else replace(shape.spec, affinity=_read_affinity(affinity)),
        status=_build_status(status, shape, table),
        node_name=table.text(node) if node else "",
    )


def _build_metadata(meta: WireMeta, shape: InternedShape, table: Interner) -> ObjectMeta:
    metadata = replace(
        shape.meta,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        creation_timestamp=meta.creation_timestamp,
    )
    if (
        meta.labels == shape.wire_labels
        and meta.annotations is NO_ANNOTATIONS
        and meta.deletion_timestamp is None
        and meta.deletion_grace_period_seconds is None
        and not meta.finalizers
    ):
        return metadata
    return replace(
        metadata,
        labels=_shared_texts(meta.labels, table) if meta.labels != shape.wire_labels else metadata.labels,
        annotations=_read_annotations(meta.annotations),
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        finalizers=meta.finalizers or (),
    )


def _build_status(status: WireStatus, shape: InternedShape, table: Interner) -> PodStatus:
    same = _list_shared_parts(status) == shape.given
    own = replace(
        shape.status if same else read_json(PodStatus, msgspec.json.encode(_keep_shared_parts(status))),
        phase=table.text(status.phase),
        conditions=_intern_conditions(status.conditions, table) if status.conditions else (),
        start_time=status.start_time,
    )
    if status.nominated_node_name or status.resize:
        own = replace(own, nominated_node_name=status.nominated_node_name or "", resize=status.resize or "")
    return own


def _list_shared_parts(status: WireStatus) -> tuple[object, ...]:
    """What pods of one shape share of their status, while no resize is under way."""
    return (
        status.container_statuses,
        status.init_container_statuses,
        status.resources,
        status.resource_claim_statuses,
    )


def _keep_shared_parts(status: WireStatus) -> WireStatus:
    """Those parts alone."""
    return WireStatus(
        resources=status.resources,
        container_statuses=status.container_statuses,
        init_container_statuses=status.init_container_statuses,
        resource_claim_statuses=status.resource_claim_statuses,
    )


def _intern_conditions(conditions: list[Condition], table: Interner) -> tuple[Condition, ...]:
    kept = []
    for condition in conditions:
        kind = condition.type
        if kind in PROGRESS:
            continue
        # Fresh from the decoder and not yet shown to anyone, so this edits nothing under a reader's feet.
        force_setattr(condition, "type", table.text(kind))
        force_setattr(condition, "status", table.text(condition.status))
        if condition.reason:
            force_setattr(condition, "reason", table.text(condition.reason))
        if condition.message:
            force_setattr(condition, "message", table.text(condition.message))
        kept.append(condition)
    return tuple(kept)


def _read_owners(document: Raw) -> tuple[OwnerReference, ...]:
    return read_json(tuple[OwnerReference, ...], document) if document and document != NULL else ()


def _read_affinity(document: Raw) -> Affinity | None:
    return read_json(Affinity, document) if document and document != NULL else None


def _read_labels(document: Raw) -> Mapping[str, str]:
    return read_json(dict[str, str], document) if document and document != NULL else NO_LABELS


def _shared_texts(document: Raw, table: Interner) -> Mapping[str, str]:
    return {table.text(key): table.text(value) for key, value in _read_labels(document).items()}


def _read_annotations(own: WireAnnotations | None) -> Mapping[str, str]:
    if own is None or own == NO_ANNOTATIONS:
        return NO_LABELS
    annotations: dict[str, str] = msgspec.to_builtins(own)
    return annotations
