"""PATCH: apply the patch to the stored object, then let the update pipeline judge the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.core import copy_json
from dovetail.sim.kube.patch import patches, server_side_apply
from dovetail.sim.kube.schema.prune import check_types, find_schema, prune_unknown_fields
from dovetail.sim.kube.verbs.conversion import convert_record
from dovetail.sim.kube.verbs.field_managers import list_unwritten_parts
from dovetail.sim.kube.verbs.writes import build_envelope

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.store import Key, StoredRecord
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.writes import ObjectWriter


PatchKind = Literal["merge", "json", "strategic", "apply"]


class Patcher:
    """The verb that changes part of an object."""

    def __init__(self, core: Core, writer: ObjectWriter, applier: Applier) -> None:
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
            obj = self.build_patched(info, record, body, kind)
            return self.writer.replace(info, record, obj, options, subresource), False

    def build_patched(
        self, info: TypeInfo, record: StoredRecord, body: Any, kind: PatchKind
    ) -> dict[str, Any]:
        """The object a patch describes, its own to edit."""
        current = convert_record(record, info).obj
        result = apply_patch(info, current, body, kind)
        if not info.custom:
            # Defaults are filled in where they belong. Custom objects are never edited but made anew, and so
            # share with the old state whatever the patch left alone, which nobody need compare then.
            result = copy_json(result)
        try:
            obj = build_envelope(info, result)
            if not info.custom:
                check_types(info, obj, current)
        except status.ApiError as error:
            # The patch is sound; what it makes of the object is not.
            cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
            raise status.invalid_kind("", "", "", [cause]) from error
        metadata = obj["metadata"]
        if metadata.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
            text = f'Invalid value: "{metadata["uid"]}": field is immutable'
            raise status.invalid_object(
                info, record.key[1], [Cause("metadata.uid", "FieldValueInvalid", text)]
            )
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
                result = patches.apply_json_patch(current, body)
            case "strategic":
                result = _apply_strategic(info, current, body)
            case _:
                if not isinstance(body, dict):
                    raise status.bad_request("a merge patch must be an object")
                result = patches.apply_merge_patch(current, body)
    except patches.PatchError as error:
        raise _translate_error(error, isinstance(body, list)) from error
    if not isinstance(result, dict):
        raise status.bad_request("the patched document is not an object")
    return result


def _apply_strategic(info: TypeInfo, current: dict[str, Any], body: Any) -> dict[str, Any]:
    schema = find_schema(info)
    if info.custom:
        raise status.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return patches.apply_strategic_patch(current, body, schema.root)


def _translate_error(error: patches.PatchError, operations: bool) -> status.ApiError:
    if error.code == 422 or (operations and error.code == 400):
        return status.unprocessable_request(error.message)
    if error.code == 413:
        return status.ApiError(413, "RequestEntityTooLarge", error.message)
    return status.bad_request(error.message)


class Applier:
    """Merges what a manager applies into what is there."""

    def __init__(self, core: Core, writer: ObjectWriter) -> None:
        self.core = core
        self.writer = writer

    def apply(
        self, info: TypeInfo, key: Key, body: Any, options: WriteOptions, subresource: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Apply; the flag says whether the object had to be created."""
        applied = self._read_intent(info, key, body, options)
        record = self.core.store.get(info.storage, key)
        if record is None:
            if subresource:
                raise status.not_found(info, key[1])
            merged = self._merge_applied(info, None, applied, options, subresource)
            return self.writer.create(info, key[0], copy_json(merged), options, applied=True), True
        merged = self._merge_applied(info, convert_record(record, info).obj, applied, options, subresource)
        obj = build_envelope(info, copy_json(merged))
        return self.writer.replace(info, record, obj, options, subresource, applied=True), False

    def _read_intent(self, info: TypeInfo, key: Key, body: Any, options: WriteOptions) -> dict[str, Any]:
        if not options.manager:
            cause = Cause("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
            raise status.invalid_kind("PatchOptions", "meta.k8s.io", "", [cause])
        if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
            raise status.bad_request("an apply must state its kind and apiVersion")
        applied = build_envelope(info, copy_json(body))
        metadata = applied["metadata"]
        if metadata.get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        if metadata.setdefault("name", key[1]) != key[1]:
            raise status.bad_request("the name in the object does not match the name on the URL")
        if info.namespaced and metadata.setdefault("namespace", key[0]) != key[0]:
            raise status.bad_request("the namespace in the object does not match the namespace on the URL")
        return prune_unknown_fields(info, applied, options)

    def _merge_applied(
        self,
        info: TypeInfo,
        live: dict[str, Any] | None,
        applied: dict[str, Any],
        options: WriteOptions,
        subresource: str,
    ) -> dict[str, Any]:
        try:
            return server_side_apply.apply_fields(
                live,
                applied,
                manager=options.manager,
                force=options.force,
                schema=find_schema(info),
                api_version=info.api_version,
                subresource=subresource,
                now=self.core.format_now(),
                ignore=list_unwritten_parts(info, subresource),
            )
        except server_side_apply.ApplyConflict as error:
            raise status.apply_conflict(error.causes) from error
