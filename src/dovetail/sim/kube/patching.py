"""PATCH: apply the patch to the stored object, then let the update pipeline judge the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dovetail.sim.kube import patch as patches
from dovetail.sim.kube import status
from dovetail.sim.kube.core import fresh
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.shaping import check_types, schema_of
from dovetail.sim.kube.views import through
from dovetail.sim.kube.writes import envelope

if TYPE_CHECKING:
    from dovetail.sim.kube.applying import Applier
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.store import Key, Record
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.writes import Writer

PatchKind = Literal["merge", "json", "strategic", "apply"]


class Patcher:
    """The verb that changes part of an object."""

    def __init__(self, core: Core, writer: Writer, applier: Applier) -> None:
        self.core = core
        self.writer = writer
        self.applier = applier

    def patch(
        self,
        info: TypeInfo,
        key: Key,
        body: Any,
        kind: PatchKind,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[dict[str, Any], bool]:
        """Change an object; the flag says whether it had to be created (only an apply does that)."""
        with self.core.turn():
            if kind == "apply":
                return self.applier.apply(info, key, body, options, subresource)
            record = self.core.store.get(info.storage, key)
            if record is None:
                raise status.not_found(info, key[1])
            obj = self.patched(info, record, body, kind)
            return self.writer.replace(info, record, obj, options, subresource), False

    def patched(self, info: TypeInfo, record: Record, body: Any, kind: PatchKind) -> dict[str, Any]:
        """The object a patch describes, its own to edit."""
        current = through(record, info).obj
        result = apply_patch(info, current, body, kind)
        if not info.custom:
            # Defaults are filled in where they belong. Custom objects are never edited but made anew, and so
            # share with the old state whatever the patch left alone, which nobody need compare then.
            result = fresh(result)
        try:
            obj = envelope(info, result)
            if not info.custom:
                check_types(info, obj, current)
        except status.ApiError as error:
            # The patch is sound; what it makes of the object is not.
            cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
            raise status.invalid_kind("", "", "", [cause]) from error
        metadata = obj["metadata"]
        if metadata.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
            text = f'Invalid value: "{metadata["uid"]}": field is immutable'
            raise status.invalid(info, record.key[1], [Cause("metadata.uid", "FieldValueInvalid", text)])
        if metadata.get("name") != record.key[1]:
            raise status.bad_request("the name of the object may not be changed by a patch")
        if info.namespaced and metadata.get("namespace", record.key[0]) != record.key[0]:
            raise status.bad_request("the namespace of the object may not be changed by a patch")
        return obj


def apply_patch(info: TypeInfo, current: dict[str, Any], body: Any, kind: PatchKind) -> dict[str, Any]:
    """The document a patch makes of another."""
    try:
        match kind:
            case "json":
                result = patches.json_patch(current, body)
            case "strategic":
                result = _strategic(info, current, body)
            case _:
                if not isinstance(body, dict):
                    raise status.bad_request("a merge patch must be an object")
                result = patches.merge(current, body)
    except patches.PatchError as error:
        raise _translated(error, isinstance(body, list)) from error
    if not isinstance(result, dict):
        raise status.bad_request("the patched document is not an object")
    return result


def _strategic(info: TypeInfo, current: dict[str, Any], body: Any) -> dict[str, Any]:
    schema = schema_of(info)
    if info.custom:
        raise status.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return patches.strategic(current, body, schema.root)


def _translated(error: patches.PatchError, operations: bool) -> status.ApiError:
    if error.code == 422 or (operations and error.code == 400):
        return status.unprocessable(error.message)
    if error.code == 413:
        return status.ApiError(413, "RequestEntityTooLarge", error.message)
    return status.bad_request(error.message)
