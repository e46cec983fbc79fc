"""The verbs, for every type alike: what local clients call and what HTTP requests end in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.lists import ListOptions, Page, list_page, matching
from dovetail.sim.kube.selectors import Selector, parse_fields, parse_labels
from dovetail.sim.kube.views import through
from dovetail.sim.kube.watch import Watch, open_watch

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.options import DeleteOptions, WriteOptions
    from dovetail.sim.kube.patching import Patcher, PatchKind
    from dovetail.sim.kube.store import Key, Record
    from dovetail.sim.kube.subresources import Subresources
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.writes import Writer

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


class Handler:
    """Get, list, watch, create, update, patch, delete and deletecollection."""

    def __init__(
        self, core: Core, writer: Writer, patcher: Patcher, deleter: Deleter, subresources: Subresources
    ) -> None:
        self.core = core
        self.store = core.store
        self.writer = writer
        self.patcher = patcher
        self.deleter = deleter
        self.subresources = subresources

    def selector(self, info: TypeInfo, labels: str, fields: str) -> Selector:
        """Parse selectors as this type allows them."""
        if not labels and not fields:
            return Selector()
        return Selector(parse_labels(labels), parse_fields(fields, info.selectable_fields, info.kind))

    def get(self, info: TypeInfo, key: Key, behind: int = 0) -> Record:
        """One object, or a 404; `behind` reads the state so many revisions ago."""
        record = self.store.get(info.storage, key)
        if behind:
            record = self.store.bucket(info.storage).as_of(self.revision_behind(info, behind)).get(key)
        if record is None:
            raise status.not_found(info, key[1])
        return through(record, info)

    def revision_behind(self, info: TypeInfo, behind: int) -> int:
        """The revision that many commits ago, as far back as this type remembers."""
        return max(self.store.revision - behind, self.store.bucket(info.storage).compacted, 1)

    def list(self, info: TypeInfo, options: ListOptions) -> Page:
        """One page of objects."""
        return list_page(self.store, info, options)

    def watch(
        self,
        info: TypeInfo,
        namespace: str,
        selector: Selector,
        resource_version: str = "",
        send_initial_events: bool | None = None,
        bookmarks: bool = False,
        backlog: int | None = None,
    ) -> Watch:
        """A stream of changes."""
        bucket = self.store.bucket(info.storage)
        watch = Watch(bucket, info, namespace, selector, bookmarks=bookmarks, backlog=backlog)
        initial = (record for record in matching(bucket, info, namespace, selector))
        return open_watch(self.store, watch, resource_version, initial, send_initial_events)

    def create(
        self, info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Create an object, or answer a review."""
        if not info.stored:
            return self.subresources.answer(info, namespace, body, options)
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
        return status.success(name=key[1], group=info.group, kind=info.plural, uid=obj["metadata"]["uid"])

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
