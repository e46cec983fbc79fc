"""Names, owners, conditions and generations: what all kinds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from dovetail.api.quantity import Quantity

__all__ = [
    "ABSENT_LIST",
    "ABSENT_MAP",
    "AbsentList",
    "AbsentMap",
    "Amounts",
    "Condition",
    "Kind",
    "LabelSelector",
    "LabelSelectorTerm",
    "ListMeta",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "Record",
]

Amounts = Mapping[str, Quantity]
"""Resource name to amount. Arithmetic over such lists is in quantity.py."""


class AbsentList(tuple[Any, ...]):
    """An empty list that was not written at all. The static hash tells it from one written as `[]`."""


class AbsentMap(dict[str, Any]):
    """An empty mapping that was not written at all."""


ABSENT_LIST: Final = AbsentList()
ABSENT_MAP: Final = AbsentMap()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A frozen value. Only the fields Dovetail reads; the codec keeps the others alive on the way back."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ()
    """Fields the API insists on even when they hold their default, which is otherwise left out."""


class Kind(msgspec.Struct, frozen=True):
    """The names one kind goes by on the wire."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name kubectl and RBAC use: `pods`, `nodepools.karpenter.sh`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.kind


class OwnerReference(Record, frozen=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Record, frozen=True):
    """The metadata every object carries."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class ListMeta(Record, frozen=True, rename={"continue_token": "continue"}):
    """Where a list stood when it was read, and how to read on."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = ""
    remaining_item_count: int | None = msgspec.field(default=None, name="remainingItemCount")


class Condition(Record, frozen=True):
    """One named truth about an object, and since when. The rules for changing it are in conditions.py."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("type", "status", "reason", "message")

    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class LabelSelectorTerm(Record, frozen=True):
    """One expression of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True):
    """Which objects are meant, by their labels. An empty selector means all; a missing one means none."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorTerm, ...] = ()


class Object(Record, frozen=True):
    """Anything with a name: what every top-level kind has in common."""

    KIND: ClassVar[Kind]
    MENDED: ClassVar[Callable[[Any], Any] | None] = None
    """A document without those parts that cannot be read and need not be, for kinds that have such parts:
    one object must not keep all others from being read."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations

    @property
    def full_name(self) -> str:
        """`namespace/name`, or the bare name of a cluster-wide object."""
        return (
            f"{self.metadata.namespace}/{self.metadata.name}"
            if self.metadata.namespace
            else self.metadata.name
        )

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def find_doubt(self) -> str:
        """Why an object that could be read is not to be believed; empty for nearly all."""
        return ""
