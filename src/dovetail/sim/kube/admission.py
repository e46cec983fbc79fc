"""What the server itself adds to, and asks of, every object before it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.schema import Cause

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo


class Admission:
    """Defaults, mutations and validations, per kind."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def check_namespace(self, info: TypeInfo, metadata: dict[str, Any]) -> None:
        """Refuse to create where nothing may be created."""
        namespace = metadata.get("namespace", "")
        if not info.namespaced:
            return
        found = self.core.find("namespaces", "", namespace)
        if found is None:
            raise status.namespace_not_found(namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise status.terminating(info, metadata.get("name", ""), namespace)

    def admit(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None, options: WriteOptions
    ) -> dict[str, Any]:
        """The object with defaults filled and the server's own mutations made."""
        if info.schema is not None:
            obj = info.schema.default(obj)
        return obj

    def admit_status(self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        """The same for a write of status."""
        return info.schema.default(obj) if info.schema is not None else obj

    def causes(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None, subresource: str = ""
    ) -> list[Cause]:
        """What is wrong with the object."""
        return info.schema.validate(obj, old) if info.schema is not None else []

    def review(
        self,
        info: TypeInfo,
        obj: dict[str, Any] | None,
        old: dict[str, Any] | None,
        operation: str,
        options: WriteOptions,
    ) -> None:
        """Ask the admission policies in the store."""
