"""What one kind's CRD is made of: its record, a row for every field, the rules, and how kubectl shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dovetail.api.meta import Object

Flavour = Literal["aws", "kwok"]

_EXTENSIONS = {
    "listType": "x-kubernetes-list-type",
    "listMapKeys": "x-kubernetes-list-map-keys",
    "mapType": "x-kubernetes-map-type",
    "preserveUnknownFields": "x-kubernetes-preserve-unknown-fields",
}


@dataclass(frozen=True, slots=True)
class Field:
    """What the schema says of one field beyond its type; `inner`, of a list's items or a map's values."""

    says: str
    required: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)
    inner: Mapping[str, Any] = field(default_factory=dict)


def constrained(
    says: str, *, required: bool = False, inner: Mapping[str, Any] | None = None, **schema: Any
) -> Field:
    """A row of a field table: constraints as OpenAPI spells them, Kubernetes' own without their prefix."""
    return Field(
        says, required, {_EXTENSIONS.get(key, key): value for key, value in schema.items()}, inner or {}
    )


def mounted(path: str, fields: Mapping[str, Field]) -> dict[str, Field]:
    """A shared part's rows, as they read below `path`."""
    return {f"{path}.{name}": row for name, row in fields.items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """One admission rule in both its forms: CEL for the API server, a function for everyone else.

    `at` is the field the rule is about, `[]` standing for every item of a list. A rule with `transition`
    compares with the value stored before, and has no say where there was none.
    """

    id: str
    at: str
    says: str
    cel: str
    holds: Callable[[Any, Any], bool]
    transition: bool = False
    flavour: Flavour | None = None  # None: wherever the kind is installed

    def under(self, path: str) -> Rule:
        """The same rule on a shared part that stands at `path`."""
        return replace(self, at=f"{path}.{self.at}" if self.at else path)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; those of priority 1 need `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Definition:
    """Everything a CRD says that the record alone does not."""

    record: type[Object]
    says: str
    fields: Mapping[str, Field]
    rules: tuple[Rule, ...] = ()
    columns: tuple[Column, ...] = ()
    categories: tuple[str, ...] = ("karpenter",)
    short_names: tuple[str, ...] = ()
    scale: Mapping[str, str] | None = None

    def rules_of(self, flavour: Flavour) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.flavour in (None, flavour))
