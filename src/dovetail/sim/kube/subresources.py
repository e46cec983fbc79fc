"""Resources below resources, and kinds that are answered and not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import reviews, status
from dovetail.sim.kube.binding import Binder
from dovetail.sim.kube.eviction import Evictor
from dovetail.sim.kube.patching import apply_patch
from dovetail.sim.kube.scale import scale_of, with_scale
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.views import through

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.patching import Patcher, PatchKind
    from dovetail.sim.kube.store import Key, Record
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.writes import Writer

_POD_PARTS = {"ephemeralcontainers": "ephemeralContainers"}
# What needs a container that runs, and why there is none.
_OF_CONTAINERS = {
    "attach": "there is no output to attach to",
    "exec": "there is nothing to execute a command in",
    "portforward": "there is no port to forward to",
    "ephemeralcontainers": "a debug container would never start",
}


class Subresources:
    """Everything that is neither an object nor its status."""

    def __init__(self, core: Core, writer: Writer, patcher: Patcher, deleter: Deleter) -> None:
        self.core = core
        self.writer = writer
        self.patcher = patcher
        self.binder = Binder(core)
        self.evictor = Evictor(core, deleter)

    def refuse_containers(self, info: TypeInfo, key: Key, subresource: str, verb: str) -> None:
        """Refuse what only a running container could answer; clients would wait for it."""
        if info.resource != "pods" or subresource not in _OF_CONTAINERS:
            return
        if subresource == "ephemeralcontainers" and verb == "get":
            return
        pod = self._record(info, key).obj
        if subresource != "ephemeralcontainers" and not pod["spec"].get("nodeName"):
            raise status.bad_request(f"pod {key[1]} does not have a host assigned")
        why = _OF_CONTAINERS[subresource]
        raise status.not_implemented(
            f"this cluster runs no containers: pod {key[1]} is an object only, and {why}"
        )

    def answer(
        self, info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Answer a POST of a kind that is not stored."""
        if info.resource == "bindings":
            name = (body.get("metadata") or {}).get("name") or ""
            return self.binder.bind((namespace, name), body, options)
        return reviews.answer(info, namespace, body, options)

    def create(
        self, info: TypeInfo, key: Key, subresource: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Answer a POST below an object."""
        match subresource:
            case "binding":
                return self.binder.bind(key, body, options)
            case "eviction":
                return self.evictor.evict_body(key, body, options)
            case "token":
                account = self._record(info, key)
                return reviews.token(account.obj, body, self.core)
            case _:
                raise status.method_not_allowed("POST")

    def get(self, info: TypeInfo, key: Key, subresource: str) -> dict[str, Any]:
        """Read a subresource that is a document."""
        record = through(self._record(info, key), info)
        return scale_of(info, record.obj) if subresource == "scale" else record.obj

    def update(
        self, info: TypeInfo, key: Key, subresource: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Replace a subresource."""
        with self.core.turn():
            record = self._record(info, key)
            if subresource == "scale":
                return self._write_scale(info, record, body, options)
            if subresource == "finalize":
                obj = {**record.obj, "metadata": body.get("metadata") or {}, "spec": body.get("spec") or {}}
                return self.writer.replace(info, record, _rooted(obj, record), options, "finalize")
            return self._write_pod_part(info, record, subresource, body, options)

    def patch(
        self, info: TypeInfo, key: Key, subresource: str, body: Any, kind: PatchKind, options: WriteOptions
    ) -> dict[str, Any]:
        """Change part of a subresource."""
        with self.core.turn():
            record = self._record(info, key)
            if subresource != "scale":
                obj = self.patcher.patched(info, record, body, kind)
                return self._write_pod_part(info, record, subresource, obj, options)
            current = scale_of(info, through(record, info).obj)
            merged = apply_patch(info, current, body, "merge" if kind in ("apply", "strategic") else kind)
            try:
                return self._write_scale(info, record, merged, options)
            except status.ApiError as error:
                raise _unpatched(error) from error

    def _write_scale(
        self, info: TypeInfo, record: Record, scale: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        obj = with_scale(info, through(record, info).obj, scale)
        return scale_of(info, self.writer.replace(info, record, obj, options, "scale"))

    def _write_pod_part(
        self, info: TypeInfo, record: Record, subresource: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        if subresource not in ("ephemeralcontainers", "resize"):
            raise status.method_not_allowed(subresource)
        obj = {**record.obj, "metadata": body.get("metadata") or {}}
        obj["spec"] = _pod_spec(record.obj["spec"], body.get("spec") or {}, subresource)
        return self.writer.replace(info, record, _rooted(obj, record), options, subresource)

    def _record(self, info: TypeInfo, key: Key) -> Record:
        record = self.core.store.get(info.storage, key)
        if record is None:
            raise status.not_found(info, key[1])
        return record


def _unpatched(error: status.ApiError) -> status.ApiError:
    """A Scale that a patch made unreadable is the patch's fault."""
    if error.code != 400:
        return error
    cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
    return status.invalid_kind("", "", "", [cause])


def _rooted(obj: dict[str, Any], record: Record) -> dict[str, Any]:
    """The object under its old metadata, but with the client's word on which version it saw."""
    metadata = dict(record.obj["metadata"])
    given = obj["metadata"] if isinstance(obj["metadata"], dict) else {}
    metadata.update({key: given[key] for key in ("uid", "resourceVersion") if given.get(key)})
    return {**obj, "metadata": metadata}


def _pod_spec(old: dict[str, Any], new: dict[str, Any], subresource: str) -> dict[str, Any]:
    """A pod's spec with only the part a subresource may write taken from the new one."""
    if subresource == "ephemeralcontainers":
        return {**old, "ephemeralContainers": new.get("ephemeralContainers") or []}
    sizes = {each.get("name"): each.get("resources") for each in new.get("containers") or ()}
    containers = [{**each, "resources": sizes.get(each["name"]) or {}} for each in old.get("containers", ())]
    return {**old, "containers": containers}
