"""Who owns which field: managedFields for writes that are not applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo


class Managers:
    """Keeps managedFields. A writer that gives no name, as in-process ones do, is not tracked."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def created(self, info: TypeInfo, obj: dict[str, Any], options: WriteOptions) -> None:
        """Note the creator."""

    def updated(
        self,
        info: TypeInfo,
        obj: dict[str, Any],
        old: dict[str, Any],
        options: WriteOptions,
        subresource: str,
    ) -> None:
        """Note who changed what."""
