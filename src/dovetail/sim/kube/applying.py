"""Server-side apply: a manager states the fields it cares about; the rest stays with their owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import apply, status
from dovetail.sim.kube.core import fresh
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.shaping import schema_of, shape
from dovetail.sim.kube.types import StatusSplit
from dovetail.sim.kube.views import through
from dovetail.sim.kube.writes import envelope

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.store import Key
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.writes import Writer


def unwritten(info: TypeInfo, subresource: str) -> tuple[str, ...]:
    """The top-level parts an endpoint leaves to another one."""
    if info.status is StatusSplit.NONE:
        return ()
    return ("spec",) if subresource == "status" else ("status",)


class Applier:
    """Merges what a manager applies into what is there."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self.core = core
        self.writer = writer

    def apply(
        self, info: TypeInfo, key: Key, body: Any, options: WriteOptions, subresource: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Apply; the flag says whether the object had to be created."""
        applied = self._intent(info, key, body, options)
        record = self.core.store.get(info.storage, key)
        if record is None:
            if subresource:
                raise status.not_found(info, key[1])
            merged = self._merge(info, None, applied, options, subresource)
            return self.writer.create(info, key[0], fresh(merged), options, applied=True), True
        merged = self._merge(info, through(record, info).obj, applied, options, subresource)
        obj = envelope(info, fresh(merged))
        return self.writer.replace(info, record, obj, options, subresource, applied=True), False

    def _intent(self, info: TypeInfo, key: Key, body: Any, options: WriteOptions) -> dict[str, Any]:
        if not options.manager:
            cause = Cause("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
            raise status.invalid_kind("PatchOptions", "meta.k8s.io", "", [cause])
        if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
            raise status.bad_request("an apply must state its kind and apiVersion")
        applied = envelope(info, fresh(body))
        metadata = applied["metadata"]
        if metadata.get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        if metadata.setdefault("name", key[1]) != key[1]:
            raise status.bad_request("the name in the object does not match the name on the URL")
        if info.namespaced and metadata.setdefault("namespace", key[0]) != key[0]:
            raise status.bad_request("the namespace in the object does not match the namespace on the URL")
        return shape(info, applied, options)

    def _merge(
        self,
        info: TypeInfo,
        live: dict[str, Any] | None,
        applied: dict[str, Any],
        options: WriteOptions,
        subresource: str,
    ) -> dict[str, Any]:
        try:
            return apply.apply(
                live,
                applied,
                manager=options.manager,
                force=options.force,
                schema=schema_of(info),
                api_version=info.api_version,
                subresource=subresource,
                now=self.core.stamp(),
                ignore=unwritten(info, subresource),
            )
        except apply.ApplyConflict as error:
            raise status.apply_conflict(error.causes) from error
