"""managedFields: which manager changed which fields of an object, noted at every write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.patch.server_side_apply import track_fields
from dovetail.sim.kube.schema.prune import find_schema
from dovetail.sim.kube.types import StatusSplit

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.types import TypeInfo


def list_unwritten_parts(info: TypeInfo, subresource: str) -> tuple[str, ...]:
    """The top-level parts an endpoint leaves to another one."""
    if info.status is StatusSplit.NONE:
        return ()
    return ("spec",) if subresource == "status" else ("status",)


class FieldManagers:
    """Keeps managedFields. A writer that gives no name, as in-process ones do, is not tracked."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def note_changes(
        self,
        info: TypeInfo,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        options: WriteOptions,
        subresource: str = "",
    ) -> None:
        """Note in the object who changed what since the old state."""
        metadata = obj["metadata"]
        if not options.manager:
            return
        fields = track_fields(
            old,
            obj,
            manager=options.manager,
            schema=find_schema(info),
            api_version=info.api_version,
            subresource=subresource,
            now=self.core.format_now(),
            ignore=list_unwritten_parts(info, subresource),
        )
        if fields:
            metadata["managedFields"] = fields
        else:
            metadata.pop("managedFields", None)
