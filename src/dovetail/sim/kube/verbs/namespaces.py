"""A namespace on its way out takes everything in it along, and goes when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.core import DeleteOptions, WriteOptions

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.store import StoredRecord, StoreEvent
    from dovetail.sim.kube.verbs.deletes import Deleter
    from dovetail.sim.kube.verbs.handler import VerbHandler
    from dovetail.sim.kube.verbs.writes import ObjectWriter


SEEDED = ("default", "kube-system", "kube-public", "kube-node-lease")
KUBERNETES = "kubernetes"


class NamespaceTerminator:
    """Empties terminating namespaces. Like the collector, it works right after the write that asks for it."""

    def __init__(self, core: Core, deleter: Deleter, writer: ObjectWriter) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        self.enabled = True
        self._terminating: dict[str, None] = {}
        core.store.on_commit(self.handle_commit, "namespaces", removals=True)

    def handle_commit(self, event: StoreEvent) -> None:
        """Notice namespaces that start to go, and objects that leave them."""
        namespace, name = event.new.key
        if event.new.info.resource == "namespaces":
            self._handle_namespace(event, name)
        elif event.type == "DELETED" and namespace in self._terminating:
            self.core.run_afterwards(lambda: self.finish_deletion(namespace))

    def _handle_namespace(self, event: StoreEvent, name: str) -> None:
        if event.type == "DELETED":
            self._terminating.pop(name, None)
        elif event.new.obj["metadata"].get("deletionTimestamp") and name not in self._terminating:
            self._terminating[name] = None
            self.core.run_afterwards(lambda: self.delete_content(name))

    def delete_content(self, namespace: str) -> None:
        """Delete all content once; what has finalizers or a grace period leaves later."""
        if not self.enabled:
            return
        for record in self._list_content(namespace):
            if not record.obj["metadata"].get("deletionTimestamp"):
                self.deleter.delete(record.info, record.key, DeleteOptions(propagation="Background"))
        self.finish_deletion(namespace)

    def _list_content(self, namespace: str) -> list[StoredRecord]:
        # Workloads first, pods last, would only make more events: order by storage key and name.
        buckets = self.core.store.get_buckets()
        return [record for name in sorted(buckets) for record in buckets[name].in_namespace(namespace)]

    def finish_deletion(self, namespace: str) -> None:
        """Let an empty namespace go."""
        record = self.core.store.get("namespaces", ("", namespace))
        if (
            not self.enabled
            or record is None
            or namespace not in self._terminating
            or self._list_content(namespace)
        ):
            return
        spec: dict[str, Any] = dict(record.obj.get("spec", {}))
        left = [each for each in spec.pop("finalizers", ()) if each != KUBERNETES]
        if left:
            spec["finalizers"] = left
        self.writer.commit_or_remove(record.info, record.key, {**record.obj, "spec": spec})


ACCOUNT, CERTIFICATE = "default", "kube-root-ca.crt"
_KEPT = {("serviceaccounts", ACCOUNT), ("configmaps", CERTIFICATE)}
_DESCRIPTION = "The certificate that says who the API server is, for pods to verify it with."
_MANAGED = WriteOptions(manager="kube-controller-manager")


class NamespaceDefaults:
    """Sees that they are there, are what they should be, and come back when they are taken away."""

    def __init__(self, core: Core, handler: VerbHandler, authority: str) -> None:
        self.core = core
        self.handler = handler
        self.authority = authority
        core.store.on_commit(self.handle_commit, "namespaces", *(resource for resource, _ in _KEPT))

    def handle_commit(self, event: StoreEvent) -> None:
        """Notice new namespaces, and changes to what was put in them."""
        namespace, name = event.new.key
        resource = event.new.info.resource
        if resource == "namespaces" and event.type == "ADDED":
            self.core.run_afterwards(lambda: self.ensure_defaults(name))
        elif event.type != "ADDED" and (resource, name) in _KEPT:
            self.core.run_afterwards(lambda: self.ensure_defaults(namespace))

    def ensure_everywhere(self) -> None:
        """Give the defaults to every namespace that was there before."""
        for _, name in list(self.core.store.get_bucket("namespaces").records):
            self.ensure_defaults(name)

    def ensure_defaults(self, namespace: str) -> None:
        """Make good what is missing or wrong, unless the namespace is on its way out."""
        home = self.core.find_object("namespaces", "", namespace)
        if home is None or home["metadata"].get("deletionTimestamp"):
            return
        if self.core.find_object("serviceaccounts", namespace, ACCOUNT) is None:
            self._create_object("serviceaccounts", namespace, {"metadata": {"name": ACCOUNT}})
        self._ensure_certificate(namespace)

    def _ensure_certificate(self, namespace: str) -> None:
        data = {"ca.crt": self.authority}
        found = self.core.find_object("configmaps", namespace, CERTIFICATE)
        if found is None:
            meta = {"name": CERTIFICATE, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
            self._create_object("configmaps", namespace, {"metadata": meta, "data": data})
        elif found.get("data") != data and not found["metadata"].get("deletionTimestamp"):
            info = self.core.find_type("configmaps")
            self.handler.update(info, (namespace, CERTIFICATE), {**found, "data": data}, _MANAGED)

    def _create_object(self, resource: str, namespace: str, body: dict[str, Any]) -> None:
        self.handler.create(self.core.find_type(resource), namespace, body, _MANAGED)
