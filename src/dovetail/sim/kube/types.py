"""What the server knows about each kind: its names, its verbs and the rules its objects live by.

A `TypeInfo` is one served version of one resource. Versions that share data share a `storage`
key, so an object written through one is seen through the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.api.schema.object_schema import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
READ_WRITE = ("get", "patch", "update")


class Generation(Enum):
    """Which changes count as a new generation of an object."""

    NONE = "the kind has no generation"
    SPEC = "anything outside metadata and status"
    ALL = "anything outside metadata"


class StatusSplit(Enum):
    """How the main endpoint and `/status` share an object between them."""

    NONE = "one endpoint writes everything"
    SPEC = "each keeps the other's half; /status leaves labels alone"
    OPEN = "each keeps the other's half; /status may change labels and annotations"
    CUSTOM = "/status writes status and nothing else"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A resource below a resource; `group` and `version` are set when its kind lives elsewhere."""

    name: str
    kind: str
    verbs: tuple[str, ...] = READ_WRITE
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class CrdColumn:
    """A column a CRD asks to be printed."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a custom resource keeps what the scale subresource shows (`.spec.replicas`)."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True)
class TypeInfo:
    """One served version of one resource.

    `selectable_fields` come on top of metadata.name and metadata.namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    generation: Generation = Generation.NONE
    status: StatusSplit = StatusSplit.NONE
    selectable_fields: tuple[str, ...] = ()
    printer_columns: tuple[CrdColumn, ...] = ()
    schema: Schema | None = field(default=None, compare=False, repr=False)
    scale: ScalePaths | None = None
    graceful_delete: bool = False
    create_on_update: bool = False
    custom: bool = False
    deprecated: bool = False
    deprecation_warning: str = ""
    # Whether only a webhook can turn an object of another version into this one.
    needs_webhook: bool = False
    storage: str = ""

    def __post_init__(self) -> None:
        fill = object.__setattr__
        fill(self, "singular", self.singular or self.kind.lower())
        fill(self, "list_kind", self.list_kind or f"{self.kind}List")
        fill(self, "storage", self.storage or self.resource)

    @cached_property
    def api_version(self) -> str:
        """The `apiVersion` its objects carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """`plural.group`, or just the plural in the core group: the name the rest of the world uses."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def stored(self) -> bool:
        """Whether objects of the kind are kept; reviews and bindings are answered and forgotten."""
        return "get" in self.verbs

    def find_subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the type has one."""
        return next((sub for sub in self.subresources if sub.name == name), None)


class UnknownResource(LookupError):
    """No served type has that name."""


class TypeRegistry:
    """Every served type. `revision` moves with each change, so documents built from it can be cached."""

    def __init__(self, types: Iterable[TypeInfo] = ()) -> None:
        self.revision = 0
        self._types: dict[tuple[str, str, str], TypeInfo] = {}
        self._by_resource: dict[str, list[TypeInfo]] = {}
        self._versions: dict[str, tuple[str, ...]] = {}
        self.add(types)

    def add(self, types: Iterable[TypeInfo]) -> None:
        """Serve these types, in place of earlier ones of the same names."""
        for info in types:
            self._types[info.group, info.version, info.plural] = info
        self._rebuild_index()

    def remove(self, resource: str) -> None:
        """Stop serving every version of a resource."""
        self._types = {key: info for key, info in self._types.items() if info.resource != resource}
        self._rebuild_index()

    def replace(self, resource: str, types: Iterable[TypeInfo]) -> None:
        """Serve exactly these versions of a resource from now on."""
        self._types = {key: info for key, info in self._types.items() if info.resource != resource}
        self.add(types)

    def _rebuild_index(self) -> None:
        self.revision += 1
        self._by_resource = {}
        self._versions = {}
        for info in self._types.values():
            self._by_resource.setdefault(info.resource, []).append(info)
        for infos in self._by_resource.values():
            infos.sort(key=lambda info: version_preference(info.version))

    def find_type(self, group: str, version: str, plural: str) -> TypeInfo | None:
        """The type at a path, or None."""
        return self._types.get((group, version, plural))

    def resolve_resource(self, resource: str) -> TypeInfo:
        """The preferred version of `plural[.group]`."""
        infos = self._by_resource.get(resource)
        if not infos:
            raise UnknownResource(resource)
        return infos[0]

    def find_by_kind(self, api_version: str, kind: str) -> TypeInfo | None:
        """The stored type whose objects carry this apiVersion and kind."""
        return next(
            (
                info
                for info in self._types.values()
                if info.kind == kind and info.api_version == api_version and info.stored
            ),
            None,
        )

    def list_groups(self) -> tuple[str, ...]:
        """Named groups in the order they were first served (the core group is not among them)."""
        return tuple(dict.fromkeys(info.group for info in self._types.values() if info.group))

    def list_versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group, preferred first."""
        known = self._versions.get(group)
        if known is None:
            found = {info.version for info in self._types.values() if info.group == group}
            known = self._versions[group] = tuple(sorted(found, key=version_preference))
        return known

    def list_types(self, group: str, version: str) -> tuple[TypeInfo, ...]:
        """The types of a group version, by plural."""
        found = [i for i in self._types.values() if i.group == group and i.version == version]
        return tuple(sorted(found, key=lambda info: info.plural))

    def list_all(self) -> tuple[TypeInfo, ...]:
        """Every served type."""
        return tuple(self._types.values())


def version_preference(version: str) -> tuple[int, int, int, str]:
    """A sort key: GA before beta before alpha, then higher numbers first, odd names last."""
    head, digits = version[:1], version[1:]
    if head != "v" or not digits[:1].isdigit():
        return (3, 0, 0, version)
    for rank, word in ((1, "beta"), (2, "alpha")):
        major, found, minor = digits.partition(word)
        if found and major.isdigit() and minor.isdigit():
            return (rank, -int(major), -int(minor), "")
    return (0, -int(digits), 0, "") if digits.isdigit() else (3, 0, 0, version)
