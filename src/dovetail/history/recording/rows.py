"""The rows of a recording: what a segment holds of pods, nodes and whatever else they share.

A value that may be shared is a row of a table and written once in a segment; others name it by its number.
Lists and mappings are lists and mappings of such numbers, and are written as what changed in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from dovetail.api.core import (
    NodeSpec,
    NodeStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    Service,
    StorageClass,
)
from dovetail.api.meta import LabelSelector, ObjectMeta, OwnerReference, Record
from dovetail.api.nodeclaim import NodeClaimSpec, NodeClaimStatus
from dovetail.api.nodepool import NodePoolSpec, NodePoolStatus
from dovetail.api.pod import PodSpec, PodStatus
from dovetail.scheduling.model.device_objects import ResourceClaim, ResourceSlice
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.model.snapshot_codec import decode_quantity, encode_quantity

__all__ = [
    "AS_DEFAULT",
    "TABLES",
    "ListChange",
    "LookLine",
    "MapChange",
    "ObjectRow",
    "PodRecordRow",
    "PoolRow",
    "StateNodeRow",
    "apply_list_change",
    "apply_map_change",
    "compare_lists",
    "compare_maps",
    "decode_row",
    "decode_value",
    "encode_row",
]


AS_DEFAULT: Final = -1
"""The number of a spec or status that an object of its kind has when nobody says anything."""


class ObjectRow(msgspec.Struct, array_like=True, frozen=True):
    """An object with a spec and a status: what is its own, and the numbers of what it may share."""

    metadata: ObjectMeta
    labels: int
    owners: int
    spec: int
    status: int


class PodRecordRow(msgspec.Struct, array_like=True, frozen=True):
    """A pod, and the name of the node it is bound to."""

    pod: ObjectRow
    node_name: str


class StateNodeRow(msgspec.Struct, array_like=True, frozen=True):
    """A node with its NodeClaim and the numbers of its pods; `state` is what else is known of it."""

    state: StateNode
    node: ObjectRow | None
    claim: ObjectRow | None
    pods: tuple[int, ...]


class PoolRow(msgspec.Struct, array_like=True, frozen=True):
    """A NodePool, and which of the catalogues it may buy from."""

    nodepool: ObjectRow
    catalog: int


Labels = Mapping[str, str]
# Every table of a segment, with the type of its rows; rows name rows of tables that stand before their own.
TABLES: Final[Mapping[str, Any]] = {
    "labels": Labels,
    "owners": tuple[OwnerReference, ...],
    "podSpecs": PodSpec,
    "podStatuses": PodStatus,
    "nodeSpecs": NodeSpec,
    "nodeStatuses": NodeStatus,
    "claimSpecs": NodeClaimSpec,
    "claimStatuses": NodeClaimStatus,
    "poolSpecs": NodePoolSpec,
    "poolStatuses": NodePoolStatus,
    "budgetSpecs": PodDisruptionBudgetSpec,
    "budgetStatuses": PodDisruptionBudgetStatus,
    "types": InstanceType,
    "services": Service,
    "volumeClaims": PersistentVolumeClaim,
    "volumes": PersistentVolume,
    "storageClasses": StorageClass,
    "selectors": LabelSelector,
    "slices": ResourceSlice,
    "deviceClaims": ResourceClaim,
    "pods": PodRecordRow,
    "nodes": StateNodeRow,
    "pools": PoolRow,
    "budgets": ObjectRow,
}


class ListChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What differs between two lists of numbers: those that went, and those that came, and where."""

    gone: tuple[int, ...] = ()
    put: tuple[tuple[int, tuple[int, ...]], ...] = ()
    whole: tuple[int, ...] | None = None


class MapChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What differs between two mappings from names to numbers."""

    gone: tuple[str, ...] = ()
    put: Mapping[str, int] = {}


class LookLine(Record, frozen=True):
    """One look: new rows, and what changed in the lists and mappings of the Situation before.

    `rest` is the Situation without all that has a table; there is none while that is the same. `now` is the
    time that the decision reckoned with, where that is another than the time of the look.
    """

    number: int
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    key: bool = False
    now: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    digest: str = ""
    rows: Mapping[str, Sequence[msgspec.Raw]] = {}
    lists: Mapping[str, ListChange] = {}
    maps: Mapping[str, MapChange] = {}
    catalogs: tuple[ListChange, ...] | None = None
    rest: tuple[msgspec.Raw, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything but the time is another than before."""
        return bool(
            self.key or self.rows or self.lists or self.maps or self.catalogs is not None or self.rest
        )


_ENCODER = msgspec.json.Encoder(enc_hook=encode_quantity, order="deterministic")
_DECODERS: Final = {
    name: msgspec.json.Decoder(kind, dec_hook=decode_quantity) for name, kind in TABLES.items()
}


def encode_row(value: object) -> bytes:
    """The canonical JSON of a row, or of anything that holds rows."""
    return _ENCODER.encode(value)


def decode_row(table: str, row: msgspec.Raw) -> Any:
    """The value of a row of a table; msgspec's error when it is none."""
    return _DECODERS[table].decode(row)


def decode_value(source: bytes | msgspec.Raw, kind: Any) -> Any:
    """A value of any type that a recording holds."""
    return msgspec.json.decode(source, type=kind, dec_hook=decode_quantity)


def compare_lists(before: Sequence[int], after: Sequence[int]) -> ListChange | None:
    """What turns one list into the other; None when they are equal."""
    if before == after:
        return None
    old, new = set(before), set(after)
    if len(old) < len(before) or len(new) < len(after):
        return ListChange(whole=tuple(after))
    gone = tuple(number for number in before if number not in new)
    stayed = [number for number in before if number in new]
    if stayed != [number for number in after if number in old]:
        return ListChange(whole=tuple(after))  # those that stayed stand in another order
    if len(gone) + len(after) - len(stayed) > len(after):
        return ListChange(whole=tuple(after))
    return ListChange(gone=gone, put=tuple(_find_runs(after, old)))


def _find_runs(after: Sequence[int], old: set[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The numbers that are new, as runs with the place of the first of each."""
    run: list[int] = []
    for place, number in enumerate(after):
        if number not in old:
            run.append(number)
        elif run:
            yield place - len(run), tuple(run)
            run = []
    if run:
        yield len(after) - len(run), tuple(run)


def apply_list_change(before: Sequence[int], change: ListChange) -> list[int]:
    """The list after the change."""
    if change.whole is not None:
        return list(change.whole)
    gone = set(change.gone)
    after = [number for number in before if number not in gone]
    for place, run in change.put:
        after[place:place] = run
    return after


def compare_maps(before: Mapping[str, int], after: Mapping[str, int]) -> MapChange | None:
    """What turns one mapping into the other; None when they are equal."""
    if before == after:
        return None
    gone = tuple(name for name in before if name not in after)
    return MapChange(
        gone=gone, put={name: number for name, number in after.items() if before.get(name) != number}
    )


def apply_map_change(before: Mapping[str, int], change: MapChange) -> dict[str, int]:
    """The mapping after the change."""
    gone = set(change.gone)
    return {name: number for name, number in before.items() if name not in gone} | dict(change.put)
