"""How the simulated controllers run together: one manager hears every commit and queues the work.

A neighbour says which resources it cares about, turns what it hears into keys, and later looks at
each key once. Everything happens on one loop, one key at a time, in the order of hearing, so that
the same start gives the same story. Counting what there is (a *report*) waits until all else of the
same instant is done. Work that fails on a conflict is looked at again a little later. An object that a
neighbour cannot cope with is one bad item: it is named once in the log, and everybody else is served.

Neighbours read the store as informers read their caches: reading never fails. Writing may.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import count
from random import Random
from typing import Any

from dovetail.errors import note_contained, shorten_text
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.sim.cluster.objects import format_micro_time
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.internal_writes import AdmittedTemplates, InternalApi
from dovetail.sim.kube.meta import format_time
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.store import StoreEvent

__all__ = ["CommitHandler", "Json", "Key", "SimController", "SimControllerManager", "StatusReporter"]

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name; what is kept under a key is up to the neighbour."""

CommitHandler = Callable[[Json | None, Json | None], None]
# How much is done before others get their turn: keys looked at, and commits made. Counted, not timed,
# so that the same start gives the same story.
TURN, COMMITS = 50, 50
FIRST_DELAY, LAST_DELAY = 0.05, 30.0


log = get_logger()


class SimController:
    """One controller of the cluster. Subclasses say what they hear and what they do about a key."""

    name = "neighbour"
    # A neighbour whose work can wait until the rest of the instant is done.
    reports = False

    def __init__(self, manager: SimControllerManager) -> None:
        self.manager = manager
        self.api = InternalApi(manager.server, self.name, manager.templates)
        self.clock: Clock = manager.clock

    def find_object(self, resource: str, key: Key) -> Json | None:
        """An object as it is now, shared and read-only; ("", name) where there are no namespaces."""
        record = self.manager.server.store.get(resource, key)
        return record.obj if record is not None else None

    def list_objects(self, resource: str, namespace: str = "") -> list[Json]:
        """All objects of a kind, or those in one namespace, by namespace and name."""
        return [
            record.obj for record in self.manager.server.store.get_bucket(resource).in_namespace(namespace)
        ]

    def list_pods_on_node(self, name: str) -> list[Json]:
        """The pods bound to a node."""
        found = self.manager.server.store.get_bucket("pods").by_node.get(name, {})
        return [found[key].obj for key in sorted(found)]

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        """Resource to what is done on each commit of it: (before, after), None where there is none."""
        return {}

    def start(self) -> None:
        """Called once, after everything there is has been heard."""

    def reconcile(self, key: Key) -> None:
        """Look at the world and make it so. An ApiError means: again, later."""

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        """Have a key looked at, now or in so many seconds."""
        self.manager.enqueue(self, key, after)

    def format_now(self) -> str:
        """The time as metadata carries it."""
        return self.manager.format_now()


class StatusReporter(SimController):
    """Counts on behalf of another neighbour, once all else of the instant is done."""

    reports = True

    def __init__(self, manager: SimControllerManager, name: str, report: Callable[[Key], None]) -> None:
        self.name = name
        super().__init__(manager)
        self._report = report

    def reconcile(self, key: Key) -> None:
        self._report(key)


class SimControllerManager:
    """Gives each commit to the controllers that watch its kind, and each key to its controller."""

    def __init__(self, server: ApiServer, clock: Clock, rng: Random) -> None:
        self.server = server
        self.clock = clock
        self.rng = rng
        self.controllers: list[SimController] = []
        self.templates = AdmittedTemplates(server)
        self._handlers: dict[str, list[CommitHandler]] = {}
        self._pending: OrderedDict[tuple[int, Key], SimController] = OrderedDict()
        self._reports: OrderedDict[tuple[int, Key], SimController] = OrderedDict()
        self._later: list[tuple[float, int, SimController, Key]] = []
        self._due: dict[tuple[int, Key], float] = {}
        self._failures: dict[tuple[int, Key], int] = {}
        self._order = count()
        self._stamped = (clock.now(), format_time(clock.now()), format_micro_time(clock.now()))
        self._wake = asyncio.Event()
        self.worked = 0
        self.set_aside: dict[str, str] = {}
        """What a neighbour could not cope with, and why."""
        server.store.on_commit(self._handle_commit)

    def format_now(self) -> str:
        """The time as metadata carries it; the same instant is spelled once."""
        return self._format_times()[1]

    def format_micro_now(self) -> str:
        """The time as leases carry it."""
        return self._format_times()[2]

    def _format_times(self) -> tuple[datetime, str, str]:
        now = self.clock.now()
        if self._stamped[0] != now:
            self._stamped = (now, format_time(now), format_micro_time(now))
        return self._stamped

    def add(self, neighbour: SimController) -> None:
        self.controllers.append(neighbour)
        for resource, heard in neighbour.list_handlers().items():
            self._handlers.setdefault(resource, []).append(heard)
            for obj in neighbour.list_objects(resource):
                heard(None, obj)
        neighbour.start()

    def _handle_commit(self, event: StoreEvent) -> None:
        handlers = self._handlers.get(event.new.info.storage)
        if handlers:
            before = event.old.obj if event.old is not None else None
            after = None if event.type == "DELETED" else event.new.obj
            for heard in handlers:
                try:
                    heard(before, after)
                except Exception as error:  # noqa: BLE001 - one object must not keep the others from being heard
                    meta = event.new.obj["metadata"]
                    name = (meta.get("namespace", ""), meta["name"])
                    self._set_aside(f"{event.new.info.storage} {'/'.join(filter(None, name))}", error)

    def _set_aside(self, what: str, error: Exception) -> None:
        note_contained(error)
        if what not in self.set_aside:
            why = shorten_text(f"{type(error).__name__}: {error}")
            self.set_aside[what] = why
            log.error("an object is set aside", object=what, error=why)

    def enqueue(self, neighbour: SimController, key: Key, after: float = 0.0) -> None:
        slot = (id(neighbour), key)
        if after <= 0:
            queue = self._reports if neighbour.reports else self._pending
            if slot not in queue:
                queue[slot] = neighbour
                self._wake.set()
            return
        due = self.clock.monotonic() + after
        known = self._due.get(slot)
        if known is not None and known <= due:
            return
        self._due[slot] = due
        heapq.heappush(self._later, (due, next(self._order), neighbour, key))
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Nothing is waiting to be looked at now."""
        return not self._pending and not self._reports

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._enqueue_due()
            enough = self.server.store.revision + COMMITS
            for _ in range(TURN):
                queue = self._pending or self._reports
                if not queue or self.server.store.revision >= enough:
                    break
                (_, key), neighbour = queue.popitem(last=False)
                self._reconcile_key(neighbour, key)
            if not self.idle:
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        """Until something is heard, or the next date comes."""
        if not self._later:
            await self._wake.wait()
            return
        delay = self._later[0][0] - self.clock.monotonic()
        if delay <= 0:
            return
        timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _enqueue_due(self) -> None:
        now = self.clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, neighbour, key = heapq.heappop(self._later)
            slot = (id(neighbour), key)
            if self._due.get(slot) == due:
                del self._due[slot]
                self.enqueue(neighbour, key)

    def _reconcile_key(self, neighbour: SimController, key: Key) -> None:
        self.worked += 1
        try:
            neighbour.reconcile(key)
        except (ApiError, ConnectionError):
            # Someone wrote first, a policy refuses, or a fault was injected: the world is looked at again.
            self._retry_later(neighbour, key)
        except Exception as error:  # noqa: BLE001 - what is wrong with one key is no reason to leave all others
            self._set_aside(f"{neighbour.name} {'/'.join(filter(None, key))}", error)
            self._retry_later(neighbour, key)
        else:
            if self._failures:
                self._failures.pop((id(neighbour), key), None)

    def _retry_later(self, neighbour: SimController, key: Key) -> None:
        slot = (id(neighbour), key)
        failures = self._failures[slot] = self._failures.get(slot, 0) + 1
        self.enqueue(neighbour, key, min(FIRST_DELAY * 2 ** min(failures, 16), LAST_DELAY))
