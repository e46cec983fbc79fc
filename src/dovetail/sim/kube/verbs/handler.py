"""The verbs, for every type alike: what local clients call and what HTTP requests end in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.selectors import ObjectSelector, parse_fields, parse_labels
from dovetail.sim.kube.verbs.conversion import convert_record
from dovetail.sim.kube.verbs.list_watch import (
    ApiWatch,
    ListOptions,
    RecordPage,
    list_matching,
    list_page,
    open_watch,
)

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, DeleteOptions, WriteOptions
    from dovetail.sim.kube.store import Key, StoredRecord
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.deletes import Deleter
    from dovetail.sim.kube.verbs.patch import Patcher, PatchKind
    from dovetail.sim.kube.verbs.subresources import SubresourceHandler
    from dovetail.sim.kube.verbs.writes import ObjectWriter

# These kinds answer a delete with the object itself, all others with a Status.
_ECHOED = frozenset(
    (
        "pods",
        "podtemplates",
        "persistentvolumes",
        "persistentvolumeclaims",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "csidrivers.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
    )
)


class VerbHandler:
    """Get, list, watch, create, update, patch, delete and deletecollection."""

    def __init__(
        self,
        core: Core,
        writer: ObjectWriter,
        patcher: Patcher,
        deleter: Deleter,
        subresources: SubresourceHandler,
    ) -> None:
        self.core = core
        self.store = core.store
        self.writer = writer
        self.patcher = patcher
        self.deleter = deleter
        self.subresources = subresources

    def parse_selector(self, info: TypeInfo, labels: str, fields: str) -> ObjectSelector:
        """Parse selectors as this type allows them."""
        if not labels and not fields:
            return ObjectSelector()
        return ObjectSelector(parse_labels(labels), parse_fields(fields, info.selectable_fields, info.kind))

    def get(self, info: TypeInfo, key: Key, behind: int = 0) -> StoredRecord:
        """One object, or a 404; `behind` reads the state so many revisions ago."""
        record = self.store.get(info.storage, key)
        if behind:
            record = (
                self.store.get_bucket(info.storage).as_of(self.find_revision_behind(info, behind)).get(key)
            )
        if record is None:
            raise status.not_found(info, key[1])
        return convert_record(record, info)

    def find_revision_behind(self, info: TypeInfo, behind: int) -> int:
        """The revision that many commits ago, as far back as this type remembers."""
        return max(self.store.revision - behind, self.store.get_bucket(info.storage).compacted, 1)

    def list(self, info: TypeInfo, options: ListOptions) -> RecordPage:
        """One page of objects."""
        return list_page(self.store, info, options)

    def watch(
        self,
        info: TypeInfo,
        namespace: str,
        selector: ObjectSelector,
        resource_version: str = "",
        send_initial_events: bool | None = None,
        bookmarks: bool = False,
        backlog: int | None = None,
    ) -> ApiWatch:
        """A stream of changes."""
        bucket = self.store.get_bucket(info.storage)
        watch = ApiWatch(bucket, info, namespace, selector, bookmarks=bookmarks, backlog=backlog)
        initial = (record for record in list_matching(bucket, info, namespace, selector))
        return open_watch(self.store, watch, resource_version, initial, send_initial_events)

    def create(
        self, info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Create an object, or answer a review."""
        if not info.stored:
            return self.subresources.answer_unstored(info, namespace, body, options)
        return self.writer.create(info, namespace, body, options)

    def update(
        self, info: TypeInfo, key: Key, body: dict[str, Any], options: WriteOptions, subresource: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Replace an object or a subresource; the flag says whether it had to be created."""
        if subresource in ("", "status"):
            return self.writer.update(info, key, body, options, subresource)
        return self.subresources.update(info, key, subresource, body, options), False

    def patch(
        self,
        info: TypeInfo,
        key: Key,
        body: Any,
        kind: PatchKind,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[dict[str, Any], bool]:
        """Change part of an object or a subresource; the flag says whether it had to be created."""
        if subresource in ("", "status"):
            return self.patcher.patch(info, key, body, kind, options, subresource)
        return self.subresources.patch(info, key, subresource, body, kind, options), False

    def delete(self, info: TypeInfo, key: Key, options: DeleteOptions) -> dict[str, Any]:
        """Delete an object; the answer is the object, or a Status once it is gone."""
        obj, gone = self.deleter.delete(info, key, options)
        if not gone or info.resource in _ECHOED:
            return obj
        return status.success_status(
            name=key[1], group=info.group, kind=info.plural, uid=obj["metadata"]["uid"]
        )

    def delete_collection(
        self, info: TypeInfo, listed: ListOptions, options: DeleteOptions
    ) -> Sequence[dict[str, Any]]:
        """Delete every match; gives back what was deleted."""
        with self.core.turn():
            deleted = []
            for record in self.list(info, listed).records:
                # An earlier deletion of this very call may have taken a dependent along.
                if self.store.get(info.storage, record.key) is not None:
                    deleted.append(self.deleter.delete(info, record.key, options)[0])
            return deleted
