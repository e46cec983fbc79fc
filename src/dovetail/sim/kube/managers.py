"""Who owns which field: managedFields for writes that are not applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.apply import track
from dovetail.sim.kube.applying import unwritten
from dovetail.sim.kube.shaping import schema_of

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo


class Managers:
    """Keeps managedFields. A writer that gives no name, as in-process ones do, is not tracked."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def note(
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
        fields = track(
            old,
            obj,
            manager=options.manager,
            schema=schema_of(info),
            api_version=info.api_version,
            subresource=subresource,
            now=self.core.stamp(),
            ignore=unwritten(info, subresource),
        )
        if fields:
            metadata["managedFields"] = fields
        else:
            metadata.pop("managedFields", None)
