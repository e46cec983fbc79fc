"""CustomResourceDefinitions at work: what they define is served from the commit that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import crd
from dovetail.sim.kube.conditions import is_true
from dovetail.sim.kube.defaults_rest import CRD_FINALIZER
from dovetail.sim.kube.options import DeleteOptions

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.store import Event
    from dovetail.sim.kube.writes import Writer

_CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Definitions:
    """Keeps the registry in step with the definitions in the store."""

    def __init__(self, core: Core, deleter: Deleter, writer: Writer) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        core.store.on_commit(self.heard, _CRDS, removals=True)

    def heard(self, event: Event) -> None:
        """Serve, serve anew, or stop serving."""
        storage = event.new.info.storage
        if storage != _CRDS:
            if event.type == "DELETED" and event.new.info.custom:
                self.core.afterwards(lambda: self.finish(storage))
            return
        name = event.new.key[1]
        if event.type == "DELETED":
            self._forget(name)
            return
        if event.old is None or event.old.obj["spec"] != event.new.obj["spec"]:
            self.serve(event.new.obj)
        if event.new.obj["metadata"].get("deletionTimestamp"):
            self.core.afterwards(lambda: self.empty(name))

    def serve(self, definition: dict[str, Any]) -> None:
        """Serve what a definition defines, if its names were accepted."""
        if is_true(definition, "Established"):
            self.core.registry.replace(definition["metadata"]["name"], crd.compile(definition))

    def _forget(self, name: str) -> None:
        self.core.registry.remove(name)
        bucket = self.core.store.bucket(name)
        for home in (bucket.listeners, *bucket.routed.values()):
            for watch in tuple(home.values()):
                watch.close()

    def empty(self, name: str) -> None:
        """Delete every instance of a definition that is going."""
        for record in list(self.core.store.bucket(name).in_namespace("")):
            if not record.obj["metadata"].get("deletionTimestamp"):
                self.deleter.delete(record.info, record.key, DeleteOptions())
        self.finish(name)

    def finish(self, name: str) -> None:
        """Let a definition go once its last instance has gone."""
        record = self.core.store.get(_CRDS, ("", name))
        if record is None or not record.obj["metadata"].get("deletionTimestamp"):
            return
        if self.core.store.bucket(name).records:
            return
        metadata = dict(record.obj["metadata"])
        left = [each for each in metadata.pop("finalizers", ()) if each != CRD_FINALIZER]
        if left:
            metadata["finalizers"] = left
        self.writer.settle(record.info, record.key, {**record.obj, "metadata": metadata})
