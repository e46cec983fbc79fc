"""The server, whole: types, store and verbs under one roof, reached in process or over HTTP."""

from __future__ import annotations

import random
import ssl
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.sim.kube import tables
from dovetail.sim.kube.admission import Admission
from dovetail.sim.kube.applying import Applier
from dovetail.sim.kube.builtin_types import builtin_registry
from dovetail.sim.kube.core import Core
from dovetail.sim.kube.definitions import Definitions
from dovetail.sim.kube.deletes import Deleter
from dovetail.sim.kube.documents import Documents
from dovetail.sim.kube.events import Forgetting
from dovetail.sim.kube.faults_hook import Faults, NoFaults
from dovetail.sim.kube.furnishing import Furnisher
from dovetail.sim.kube.garbage import Collector
from dovetail.sim.kube.handler import Handler
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.managers import Managers
from dovetail.sim.kube.namespaces import SEEDED, Terminator
from dovetail.sim.kube.options import WriteOptions
from dovetail.sim.kube.patching import Patcher
from dovetail.sim.kube.server import Running, serve
from dovetail.sim.kube.store import HISTORY, Store
from dovetail.sim.kube.subresources import Subresources
from dovetail.sim.kube.watch import Watch
from dovetail.sim.kube.writes import Writer

if TYPE_CHECKING:
    from dovetail.ports import Clock
    from dovetail.sim.kube.types import TypeInfo


class ApiServer:
    """A small Kubernetes API server. The same clock and seed give the same bytes."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        faults: Faults | None = None,
        history: int = HISTORY,
        bookmark_every: float = 10.0,
    ) -> None:
        self.core = core = Core(builtin_registry(), Store(history), clock, rng)
        self.clock, self.registry, self.store = clock, core.registry, core.store
        self.faults: Faults = faults or NoFaults()
        self.bookmark_every = bookmark_every
        # Audit ids and watch lengths are noise on the wire: they must not move what is stored.
        self.audit = random.Random(0)
        self.documents = Documents(core.registry)
        self._next_bookmark = clock.monotonic() + bookmark_every
        self.admission = Admission(core)
        writer = Writer(core, self.admission, Managers(core))
        deleter = Deleter(core)
        patcher = Patcher(core, writer, Applier(core, writer))
        subresources = Subresources(core, writer, patcher, deleter)
        self.handler = Handler(core, writer, patcher, deleter, subresources)
        self.collector = Collector(core, deleter, writer)
        self.terminator = Terminator(core, deleter, writer)
        self.definitions = Definitions(core, deleter, writer)
        self.forgetting = Forgetting(core)
        self.furnisher: Furnisher | None = None
        self._seed()

    def _seed(self) -> None:
        for name in SEEDED:
            body: dict[str, Any] = {"metadata": {"name": name}}
            self.handler.create(self.core.type_of("namespaces"), "", body, WriteOptions())
        for name, value in (("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)):
            body = {"metadata": {"name": name, "generation": 1}, "value": value}
            info = self.core.type_of("priorityclasses.scheduling.k8s.io")
            self.handler.create(info, "", body, WriteOptions())

    def local(self, client: str = "") -> LocalApi:
        """A client in this process; `client` names it to fault rules."""
        return LocalApi(self, client)

    def serve(
        self, host: str = "127.0.0.1", port: int = 0, *, token: str = "", tls: ssl.SSLContext | None = None
    ) -> AbstractAsyncContextManager[Running]:
        """Listen for HTTP, and keep house, while the returned context is open."""
        return serve(self, host, port, token, tls)

    def table(
        self, info: TypeInfo, objects: Sequence[dict[str, Any]], include: str, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        """Objects as kubectl prints them."""
        return tables.table(info, objects, include or "Metadata", now=self.clock.now(), metadata=metadata)

    def furnish(self, authority: str) -> None:
        """From now on every namespace has a default service account and the certificate to trust."""
        if self.furnisher is None:
            self.furnisher = Furnisher(self.core, self.handler, authority)
        with self.core.turn():
            self.furnisher.everywhere()

    def tick(self) -> None:
        """Housekeeping that is due: bookmarks, old events, objects whose owners never came."""
        with self.core.turn():
            self.collector.tick()
            self.forgetting.tick()
        if self.clock.monotonic() >= self._next_bookmark:
            self._next_bookmark = self.clock.monotonic() + self.bookmark_every
            self.bookmark()

    def bookmark(self) -> None:
        """Tell every stream that wants to know how far it has come."""
        for bucket in self.store.buckets().values():
            for home in (bucket.listeners, *bucket.routed.values()):
                for listener in tuple(home.values()):
                    if isinstance(listener, Watch):
                        listener.bookmark(self.store.revision)

    async def run(self) -> None:
        """Keep house until cancelled."""
        while True:
            await self.clock.sleep(1.0)
            self.tick()

    def dump(self) -> bytes:
        """Everything stored."""
        return self.store.dump()

    def load(self, snapshot: bytes) -> None:
        """Continue from a dump, in place of what is there. Custom kinds come back with their definitions."""
        document: dict[str, Any] = msgspec.json.decode(snapshot)
        definitions = document["objects"].get("customresourcedefinitions.apiextensions.k8s.io", ())
        for definition in definitions:
            self.definitions.serve(definition)
        self.store.load(document, self._info_of)
        for bucket in self.store.buckets().values():
            for record in bucket.records.values():
                self.collector.index(record)

    def _info_of(self, storage: str, obj: dict[str, Any]) -> TypeInfo:
        info = self.registry.by_kind(obj["apiVersion"], obj["kind"])
        if info is None:
            # Written through a version that is no longer served.
            info = self.core.type_of(storage)
            obj["apiVersion"] = info.api_version
        return info
