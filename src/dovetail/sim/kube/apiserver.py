"""The server, whole: types, store and verbs under one roof, reached in process or over HTTP."""

from __future__ import annotations

import random
import ssl
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.sim.kube.builtin.defaults_rest import CRD_FINALIZER
from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.core import Core, DeleteOptions, WriteOptions
from dovetail.sim.kube.faults import ApiFaults, NoFaults
from dovetail.sim.kube.http.documents import ServerDocuments
from dovetail.sim.kube.http.server import ListeningServer, serve_http
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.meta import is_condition_true
from dovetail.sim.kube.printing import tables
from dovetail.sim.kube.schema import crd
from dovetail.sim.kube.store import HISTORY, ObjectStore
from dovetail.sim.kube.verbs.admission import Admission
from dovetail.sim.kube.verbs.conversion import EventExpiry
from dovetail.sim.kube.verbs.deletes import Deleter
from dovetail.sim.kube.verbs.field_managers import FieldManagers
from dovetail.sim.kube.verbs.garbage_collection import OwnerGarbageCollector
from dovetail.sim.kube.verbs.handler import VerbHandler
from dovetail.sim.kube.verbs.list_watch import ApiWatch
from dovetail.sim.kube.verbs.namespaces import SEEDED, NamespaceDefaults, NamespaceTerminator
from dovetail.sim.kube.verbs.patch import Applier, Patcher
from dovetail.sim.kube.verbs.subresources import SubresourceHandler
from dovetail.sim.kube.verbs.writes import ObjectWriter

if TYPE_CHECKING:
    from dovetail.ports import Clock
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.http.proxies import ServiceBackend
    from dovetail.sim.kube.store import StoreEvent
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.deletes import Deleter
    from dovetail.sim.kube.verbs.writes import ObjectWriter


_CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class CrdRegistrar:
    """Keeps the registry in step with the definitions in the store."""

    def __init__(self, core: Core, deleter: Deleter, writer: ObjectWriter) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        core.store.on_commit(self.handle_commit, _CRDS, removals=True)

    def handle_commit(self, event: StoreEvent) -> None:
        """Serve, serve anew, or stop serving."""
        storage = event.new.info.storage
        if storage != _CRDS:
            if event.type == "DELETED" and event.new.info.custom:
                self.core.run_afterwards(lambda: self.finish_deletion(storage))
            return
        name = event.new.key[1]
        if event.type == "DELETED":
            self._stop_serving(name)
            return
        if event.old is None or event.old.obj["spec"] != event.new.obj["spec"]:
            self.serve_definition(event.new.obj)
        if event.new.obj["metadata"].get("deletionTimestamp"):
            self.core.run_afterwards(lambda: self.delete_instances(name))

    def serve_definition(self, definition: dict[str, Any]) -> None:
        """Serve what a definition defines, if its names were accepted."""
        if is_condition_true(definition, "Established"):
            self.core.registry.replace(definition["metadata"]["name"], crd.compile_definition(definition))

    def _stop_serving(self, name: str) -> None:
        self.core.registry.remove(name)
        bucket = self.core.store.get_bucket(name)
        for home in (bucket.listeners, *bucket.routed.values()):
            for watch in tuple(home.values()):
                watch.close()

    def delete_instances(self, name: str) -> None:
        """Delete every instance of a definition that is going."""
        for record in list(self.core.store.get_bucket(name).in_namespace("")):
            if not record.obj["metadata"].get("deletionTimestamp"):
                self.deleter.delete(record.info, record.key, DeleteOptions())
        self.finish_deletion(name)

    def finish_deletion(self, name: str) -> None:
        """Let a definition go once its last instance has gone."""
        record = self.core.store.get(_CRDS, ("", name))
        if record is None or not record.obj["metadata"].get("deletionTimestamp"):
            return
        if self.core.store.get_bucket(name).records:
            return
        metadata = dict(record.obj["metadata"])
        left = [each for each in metadata.pop("finalizers", ()) if each != CRD_FINALIZER]
        if left:
            metadata["finalizers"] = left
        self.writer.commit_or_remove(record.info, record.key, {**record.obj, "metadata": metadata})


class ApiServer:
    """A small Kubernetes API server. The same clock and seed give the same bytes."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        faults: ApiFaults | None = None,
        history: int = HISTORY,
        bookmark_every: float = 10.0,
    ) -> None:
        self.core = core = Core(build_registry(), ObjectStore(history), clock, rng)
        self.clock, self.registry, self.store = clock, core.registry, core.store
        core.faults = faults or NoFaults()
        self.bookmark_every = bookmark_every
        # Audit ids and watch lengths are noise on the wire: they must not move what is stored.
        self.audit = random.Random(0)
        self.documents = ServerDocuments(core.registry)
        self._next_bookmark = clock.monotonic() + bookmark_every
        self.admission = Admission(core)
        writer = ObjectWriter(core, self.admission, FieldManagers(core))
        deleter = Deleter(core)
        patcher = Patcher(core, writer, Applier(core, writer))
        subresources = SubresourceHandler(core, writer, patcher, deleter)
        self.handler = VerbHandler(core, writer, patcher, deleter, subresources)
        self.collector = OwnerGarbageCollector(core, deleter, writer)
        self.terminator = NamespaceTerminator(core, deleter, writer)
        self.definitions = CrdRegistrar(core, deleter, writer)
        self.event_expiry = EventExpiry(core)
        self.namespace_defaults: NamespaceDefaults | None = None
        # Who stands behind a Service in this process, by namespace, name and the name of the port.
        self.backends: dict[tuple[str, str, str], ServiceBackend] = {}
        self._seed_objects()

    @property
    def faults(self) -> ApiFaults:
        """The faults that requests meet; every client sees a change at once."""
        return self.core.faults

    @faults.setter
    def faults(self, faults: ApiFaults) -> None:
        self.core.faults = faults

    def _seed_objects(self) -> None:
        for name in SEEDED:
            body: dict[str, Any] = {"metadata": {"name": name}}
            self.handler.create(self.core.find_type("namespaces"), "", body, WriteOptions())
        for name, value in (("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)):
            body = {"metadata": {"name": name, "generation": 1}, "value": value}
            info = self.core.find_type("priorityclasses.scheduling.k8s.io")
            self.handler.create(info, "", body, WriteOptions())

    def build_local_client(self, client: str = "") -> LocalApi:
        """A client in this process; `client` names it to fault rules."""
        return LocalApi(self.core, self.handler, client)

    def serve(
        self, host: str = "127.0.0.1", port: int = 0, *, token: str = "", tls: ssl.SSLContext | None = None
    ) -> AbstractAsyncContextManager[ListeningServer]:
        """Listen for HTTP, and do the housekeeping, while the returned context is open."""
        return serve_http(self, host, port, token, tls)

    def build_table(
        self, info: TypeInfo, objects: Sequence[dict[str, Any]], include: str, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        """Objects as kubectl prints them."""
        return tables.build_table(
            info, objects, include or "Metadata", now=self.clock.now(), metadata=metadata
        )

    def start_namespace_defaults(self, authority: str) -> None:
        """From now on every namespace has a default service account and the certificate to trust."""
        if self.namespace_defaults is None:
            self.namespace_defaults = NamespaceDefaults(self.core, self.handler, authority)
        with self.core.turn():
            self.namespace_defaults.ensure_everywhere()

    def run_housekeeping(self) -> None:
        """Housekeeping that is due: bookmarks, old events, objects whose owners never came."""
        with self.core.turn():
            self.collector.check_doubtful()
            self.event_expiry.expire_events()
        if self.clock.monotonic() >= self._next_bookmark:
            self._next_bookmark = self.clock.monotonic() + self.bookmark_every
            self.send_bookmarks()

    def send_bookmarks(self) -> None:
        """Tell every stream that wants to know how far it has come."""
        for bucket in self.store.get_buckets().values():
            for home in (bucket.listeners, *bucket.routed.values()):
                for listener in tuple(home.values()):
                    if isinstance(listener, ApiWatch):
                        listener.send_bookmark(self.store.revision)

    async def run(self) -> None:
        """Do the housekeeping until cancelled."""
        while True:
            await self.clock.sleep(1.0)
            self.run_housekeeping()

    def dump(self) -> bytes:
        """Everything stored."""
        return self.store.dump()

    def load(self, snapshot: bytes) -> None:
        """Continue from a dump, in place of what is there. Custom kinds come back with their definitions."""
        document: dict[str, Any] = msgspec.json.decode(snapshot)
        definitions = document["objects"].get("customresourcedefinitions.apiextensions.k8s.io", ())
        for definition in definitions:
            self.definitions.serve_definition(definition)
        self.store.load(document, self._find_type)
        for bucket in self.store.get_buckets().values():
            for record in bucket.records.values():
                self.collector.index_record(record)

    def _find_type(self, storage: str, obj: dict[str, Any]) -> TypeInfo:
        info = self.registry.find_by_kind(obj["apiVersion"], obj["kind"])
        if info is None:
            # Written through a version that is no longer served.
            info = self.core.find_type(storage)
            obj["apiVersion"] = info.api_version
        return info
