"""Create and update: from what a client sent to what is stored.

    envelope → shape (unknown fields) → status split → defaults → mutation → validation → commit

A body handed in here belongs to this module: it is edited freely and may end up in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.meta import KEPT, find_metadata_problem, generate_name, generate_uid, metadata_causes
from dovetail.sim.kube.schema.prune import prune_unknown_fields
from dovetail.sim.kube.types import Generation, StatusSplit
from dovetail.sim.kube.verbs.admission_policies import check_policies
from dovetail.sim.kube.verbs.conversion import convert_record, to_core

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.store import Key, StoredRecord
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.admission import Admission
    from dovetail.sim.kube.verbs.field_managers import FieldManagers

_NAME_ATTEMPTS = 8
_ENVELOPE = ("kind", "apiVersion", "metadata")
# Built-in kinds that nobody may replace without saying which version they mean.
_VERSIONED = frozenset(
    (
        "customresourcedefinitions.apiextensions.k8s.io",
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "runtimeclasses.node.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
    )
)


class ObjectWriter:
    """The verbs that put objects into the store."""

    def __init__(self, core: Core, admission: Admission, managers: FieldManagers) -> None:
        self.core = core
        self.admission = admission
        self.managers = managers

    def create(
        self,
        info: TypeInfo,
        namespace: str,
        body: dict[str, Any],
        options: WriteOptions,
        applied: bool = False,
    ) -> dict[str, Any]:
        """Store a new object and give it back as stored. An apply has noted its manager already."""
        with self.core.turn():
            obj = build_envelope(info, body)
            metadata = obj["metadata"]
            self._set_namespace(info, namespace, metadata)
            if metadata.get("resourceVersion"):
                raise status.bad_request("resourceVersion should not be set on objects to be created")
            self._set_name(info, metadata)
            self.admission.check_namespace(info, metadata)
            obj = prune_unknown_fields(info, obj, options)
            self._set_identity(info, obj)
            return self._admit_and_store(info, obj, options, applied)

    def _admit_and_store(
        self, info: TypeInfo, obj: dict[str, Any], options: WriteOptions, applied: bool
    ) -> dict[str, Any]:
        obj = self.admission.admit(info, obj, None, options)
        metadata = obj["metadata"]
        self._raise_invalid(
            info,
            metadata["name"],
            [*self._find_metadata_causes(info, obj), *self.admission.find_causes(info, obj, None)],
        )
        check_policies(self.core, info, obj, None, "CREATE", options)
        key = (metadata.get("namespace", ""), metadata["name"])
        if self.core.store.get(info.storage, key):
            raise status.already_exists(info, metadata["name"])
        if not applied:
            self.managers.note_changes(info, obj, None, options)
        if options.dry_run:
            return obj
        return self.commit(info, key, obj).obj

    def _find_metadata_causes(self, info: TypeInfo, obj: dict[str, Any]) -> list[Cause]:
        return metadata_causes(info, obj["metadata"])

    def _raise_invalid(self, info: TypeInfo, name: str, causes: list[Cause]) -> None:
        if causes:
            raise status.invalid_object(info, name, causes)

    def _set_namespace(self, info: TypeInfo, namespace: str, metadata: dict[str, Any]) -> None:
        given = metadata.get("namespace") or ""
        if not info.namespaced:
            if given:
                raise status.bad_request("namespace should not be set on cluster-scoped objects")
            metadata.pop("namespace", None)
            return
        if given and given != namespace:
            raise status.bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f'"{given}" is not "{namespace}"'
            )
        metadata["namespace"] = namespace

    def _set_name(self, info: TypeInfo, metadata: dict[str, Any]) -> None:
        if metadata.get("name"):
            return
        prefix = metadata.get("generateName")
        if not prefix:
            cause = Cause(
                "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
            )
            raise status.invalid_object(info, "", [cause])
        namespace = metadata.get("namespace", "")
        for _ in range(_NAME_ATTEMPTS):
            metadata["name"] = generate_name(prefix, self.core.rng)
            if not self.core.store.get(info.storage, (namespace, metadata["name"])):
                return

    def _set_identity(self, info: TypeInfo, obj: dict[str, Any]) -> None:
        """Give a new object what only the server may give."""
        metadata = obj["metadata"]
        for name in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(name, None)
        metadata.pop("resourceVersion", None)
        metadata["uid"] = generate_uid(self.core.rng)
        metadata["creationTimestamp"] = self.core.format_now()
        if info.generation is not Generation.NONE:
            metadata["generation"] = 1
        # Kubelets register nodes with their capacity, so a node's status is kept.
        if info.status is not StatusSplit.NONE and info.resource != "nodes":
            obj.pop("status", None)

    def update(
        self,
        info: TypeInfo,
        key: Key,
        body: dict[str, Any],
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[dict[str, Any], bool]:
        """Replace an object; the flag says whether it had to be created."""
        with self.core.turn():
            obj = build_envelope(info, body)
            metadata = obj["metadata"]
            if metadata.get("name", key[1]) != key[1]:
                text = f"the name of the object ({metadata['name']}) does not match the URL ({key[1]})"
                raise status.bad_request(text)
            metadata["name"] = key[1]
            self._set_namespace(info, key[0], metadata)
            record = self.core.store.get(info.storage, key)
            if record is None:
                if info.create_on_update and not subresource:
                    metadata.pop("resourceVersion", None)
                    return self.create(info, key[0], obj, options), True
                raise status.not_found(info, key[1])
            if _requires_version(info) and not metadata.get("resourceVersion"):
                text = "Invalid value: 0: must be specified for an update"
                cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
                raise status.invalid_kind(info.plural, info.group, key[1], [cause])
            return self.replace(info, record, obj, options, subresource), False

    def replace(
        self,
        info: TypeInfo,
        record: StoredRecord,
        obj: dict[str, Any],
        options: WriteOptions,
        subresource: str = "",
        applied: bool = False,
    ) -> dict[str, Any]:
        """Put a whole new state in a record's place, as PUT and every PATCH do in the end."""
        old = convert_record(record, info).obj
        name = old["metadata"]["name"]
        self._check_preconditions(info, obj["metadata"], record)
        obj = prune_unknown_fields(info, obj, options, old)
        obj = self._split_status(info, obj, old, subresource)
        self._keep_identity(obj, old)
        if subresource != "status":
            obj = self.admission.admit(info, obj, old, options)
        else:
            obj = self.admission.admit_status(info, obj, old)
        causes = [*self._find_metadata_causes(info, obj), *finalizer_causes(obj, old)]
        causes += self.admission.find_causes(info, obj, old, subresource)
        self._raise_invalid(info, name, causes)
        check_policies(self.core, info, obj, old, "UPDATE", options, subresource)
        self._advance_generation(info, obj, old)
        if not applied:
            self.managers.note_changes(info, obj, old, options, subresource)
        if is_unchanged(obj, old):
            return old
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if options.dry_run:
            return obj
        return self.commit_or_remove(info, record.key, obj)

    def commit_or_remove(self, info: TypeInfo, key: Key, obj: dict[str, Any]) -> dict[str, Any]:
        """Commit a new state, which may turn out to be the object's last."""
        if is_fully_deleted(info, obj):
            # Watchers are shown what was stored; the state without its last finalizer never was.
            self.core.store.drop(info, key)
            return obj
        return self.commit(info, key, obj).obj

    def commit(self, info: TypeInfo, key: Key, obj: dict[str, Any]) -> StoredRecord:
        """Store a state as its kind keeps it."""
        if info.storage == "events" and info.group:
            self.core.put(self.core.find_type("events"), key, to_core(obj))
            record = self.core.store.get("events", key)
            assert record is not None
            return convert_record(record, info)
        return self.core.put(info, key, obj)

    def _check_preconditions(self, info: TypeInfo, metadata: dict[str, Any], record: StoredRecord) -> None:
        name = record.key[1]
        current = record.obj["metadata"]
        if metadata.get("uid") and metadata["uid"] != current["uid"]:
            why = f"the UID sent ({metadata['uid']}) does not match the UID in record ({current['uid']})"
            raise status.conflict_error(info, name, why)
        version = metadata.get("resourceVersion")
        if version and version != "0" and version != current["resourceVersion"]:
            raise status.object_modified(info, name)

    def _split_status(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any], subresource: str
    ) -> dict[str, Any]:
        """Each endpoint writes its half; the other half is the old object's."""
        if info.status is StatusSplit.NONE or subresource in ("scale", "finalize"):
            return obj
        if subresource != "status":
            return with_part(obj, old, "status")
        metadata = obj["metadata"]
        if info.status is StatusSplit.OPEN:
            metadata = {**metadata, "ownerReferences": old["metadata"].get("ownerReferences")}
            metadata = {key: value for key, value in metadata.items() if value is not None}
        else:
            fields = metadata.get("managedFields")
            metadata = dict(old["metadata"])
            if fields is not None:
                metadata["managedFields"] = fields
        result = {**old, "metadata": metadata}
        return with_part(result, obj, "status")

    def _keep_identity(self, obj: dict[str, Any], old: dict[str, Any]) -> None:
        metadata, before = obj["metadata"], old["metadata"]
        for name in (*KEPT, "namespace", "generateName"):
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        metadata.pop("selfLink", None)
        metadata["resourceVersion"] = before["resourceVersion"]

    def _advance_generation(self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any]) -> None:
        if info.generation is Generation.NONE:
            return
        apart = _ENVELOPE if info.generation is Generation.ALL else (*_ENVELOPE, "status")
        if any(obj.get(key) != old.get(key) for key in {*obj, *old} if key not in apart):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _requires_version(info: TypeInfo) -> bool:
    return info.custom or info.resource in _VERSIONED or info.group == "admissionregistration.k8s.io"


def build_envelope(info: TypeInfo, body: Any) -> dict[str, Any]:
    """A body as an object of its type, with kind and apiVersion first and metadata of its own."""
    if not isinstance(body, dict):
        raise status.bad_request(f"the body must be a {info.kind} object")
    for name, wanted in (("kind", info.kind), ("apiVersion", info.api_version)):
        given = body.get(name)
        if given and given != wanted:
            text = f"the {name} in the data ({given}) does not match the expected {name} ({wanted})"
            raise status.bad_request(text)
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if problem := find_metadata_problem(metadata):
        raise status.bad_request(f"{info.kind} cannot be decoded: {problem}")
    rest = {key: value for key, value in body.items() if key not in _ENVELOPE}
    metadata = {key: value for key, value in metadata.items() if value not in (None, {}, [])}
    return {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata, **rest}


def with_part(obj: dict[str, Any], source: dict[str, Any], part: str) -> dict[str, Any]:
    """The object with one top-level part taken from another."""
    if part in source:
        return {**obj, part: source[part]}
    return {key: value for key, value in obj.items() if key != part}


def finalizer_causes(obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """An object on its way out may lose finalizers and gain none."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = old["metadata"].get("finalizers") or ()
    added = [each for each in obj["metadata"].get("finalizers") or () if each not in before]
    if not added:
        return []
    text = f"Forbidden: no new finalizers can be added if the object is being deleted, found {added}"
    return [Cause("metadata.finalizers", "FieldValueForbidden", text)]


def is_fully_deleted(info: TypeInfo, obj: dict[str, Any]) -> bool:
    """Whether a deleting object has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if info.resource == "namespaces" and obj.get("spec", {}).get("finalizers"):
        return False
    return not info.graceful_delete or not metadata.get("deletionGracePeriodSeconds")


def is_unchanged(obj: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether two states differ in nothing but managedFields times (resourceVersion is set alike)."""
    if obj.keys() != old.keys():
        return False
    if any(obj[key] != old[key] for key in obj if key != "metadata"):
        return False
    mine, theirs = dict(obj["metadata"]), dict(old["metadata"])
    fields, before = mine.pop("managedFields", None), theirs.pop("managedFields", None)
    return mine == theirs and _without_times(fields) == _without_times(before)


def _without_times(fields: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key != "time"} for each in fields or ()]
