"""Runs the list of controllers: queues, workers, back-off, and a calm end.

A controller that raises Retry is tried again with back-off; Refused ends the attempt; anything
else is a bug: logged, counted, backed off, and the rest of the process goes on.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import Random
from uuid import UUID

from dovetail.controllers.base import Controller, is_idle
from dovetail.errors import DovetailError, Refused, Retry, Throttled, flatten_errors, note_contained
from dovetail.logs import build_reference, get_logger
from dovetail.ports import Clock
from dovetail.runtime import logs, metrics
from dovetail.runtime.queue import Closed, WorkQueue

__all__ = ["Manager"]

# How long a service that failed waits before it is started again: doubling from the first to the last. One
# that ran for longer than the last had recovered, and waits the first again. Seconds.
FIRST_WAIT, LAST_WAIT = 1.0, 60.0
FAILED = "Reconciler error"


async def at_once() -> None:
    """No election: lead from the first moment."""


class Manager:
    """Owns every task of the process."""

    def __init__(self, clock: Clock, rng: Random, *, grace: float = 30.0) -> None:
        self._clock = clock
        self._chance = rng
        self._grace = grace
        self._queues: dict[str, WorkQueue] = {}
        self._controllers: dict[str, Controller] = {}
        self._numbers: dict[str, metrics.ReconcileMetrics] = {}
        self._services: list[Callable[[], Awaitable[None]]] = []
        self._working: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._log = get_logger()

    def add(self, controller: Controller) -> WorkQueue:
        """Take a controller on; whoever watches for it adds keys to the queue that comes back."""
        queue = self._queues[controller.name] = WorkQueue(controller.name, self._clock, controller.backoff)
        self._controllers[controller.name] = controller
        self._numbers[controller.name] = metrics.prepare_controller(controller.name, controller.concurrency)
        return queue

    def add_service(self, service: Callable[[], Awaitable[None]]) -> None:
        """Run this beside the controllers until the end: a follower, a recorder, an elector."""
        self._services.append(service)

    def stop(self) -> None:
        """Begin the end: no new work; what is under way may finish within the grace."""
        self._stopping.set()

    def stop_on_signals(self, signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> None:
        loop = asyncio.get_running_loop()
        for one in signals:
            loop.add_signal_handler(one, self.stop)

    @property
    def idle(self) -> bool:
        """No key waits and none is worked on."""
        return all(queue.idle for queue in self._queues.values())

    async def run(self, elected: Callable[[], Awaitable[None]] = at_once) -> None:
        """Work until stopped: services from now on, controllers once elected."""
        with metrics.register_reporter(self._report_queues):
            try:
                await self._run_tasks(elected)
            finally:
                await self._finish_work(0)

    async def _run_tasks(self, elected: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            services = [tasks.create_task(self._keep_alive(service)) for service in self._services]
            pumps = tasks.create_task(self._pump_all(elected))
            await self._stopping.wait()
            for queue in self._queues.values():
                queue.close()
            pumps.cancel()
            await self._finish_work(self._grace)
            for task in services:
                task.cancel()

    def _report_queues(self) -> None:
        for queue in self._queues.values():
            queue.report()

    async def _pump_all(self, elected: Callable[[], Awaitable[None]]) -> None:
        await elected()
        async with asyncio.TaskGroup() as tasks:
            for controller in self._controllers.values():
                tasks.create_task(self._pump_controller(controller))

    async def _keep_alive(self, service: Callable[[], Awaitable[None]]) -> None:
        delay = FIRST_WAIT
        while True:
            started = self._clock.monotonic()
            try:
                await service()
                return
            except Exception as error:  # noqa: BLE001 (a bug in one service must not end the others)
                note_contained(error)
                self._log.error(
                    "a service failed and is started again", service=_service_name(service), error=error
                )
                metrics.PANICS.labels(_service_name(service)).inc()
            if self._clock.monotonic() - started > LAST_WAIT:
                delay = FIRST_WAIT
            await self._clock.sleep(delay)
            delay = min(delay * 2, LAST_WAIT)

    async def _pump_controller(self, controller: Controller) -> None:
        queue, room = self._queues[controller.name], asyncio.Semaphore(controller.concurrency)
        active = metrics.ACTIVE_WORKERS.labels(controller.name)
        while True:
            await room.acquire()
            try:
                key = await queue.get()
            except Closed:
                return
            active.inc()
            task = asyncio.create_task(self._work_on_key(controller, queue, key))
            self._working.add(task)

            def over(task: asyncio.Task[None]) -> None:
                self._working.discard(task)
                active.dec()
                room.release()

            task.add_done_callback(over)

    async def _work_on_key(self, controller: Controller, queue: WorkQueue, key: str) -> None:
        started = self._clock.monotonic()
        namespace, _, name = key.rpartition("/")
        visit = UUID(int=self._chance.getrandbits(128), version=4)
        fields = {
            "controller": controller.name,
            **_describe_kind(controller, name, namespace),
            "namespace": namespace,
            "name": name,
            "reconcileID": str(visit),
        }
        with logs.bind_context(**fields):
            try:
                await self._reconcile_key(controller, queue, key)
            finally:
                self._numbers[controller.name].seconds.observe(self._clock.monotonic() - started)
                queue.mark_done(key)

    async def _reconcile_key(self, controller: Controller, queue: WorkQueue, key: str) -> None:
        ended = self._numbers[controller.name].ended
        try:
            result = await controller.reconcile(key)
        except Exception as error:  # noqa: BLE001 (sorted by kind below; a bug in one controller is survived)
            ended["error"].inc()
            metrics.RECONCILE_ERRORS.labels(controller.name).inc()
            self._handle_failure(controller, queue, key, error)
            return
        later = result.after.total_seconds() if result.after is not None else 0.0
        if later > 0:
            queue.forget(key)
            queue.add_after(key, later)
            ended["requeue_after"].inc()
        elif result.again or result.after is not None:
            # A visit that is due already backs off as well: one that is due at every visit would never end.
            queue.retry(key)
            ended["requeue"].inc()
        else:
            queue.forget(key)
            ended["success"].inc()

    def _handle_failure(self, controller: Controller, queue: WorkQueue, key: str, error: Exception) -> None:
        causes = tuple(flatten_errors(error))
        if all(isinstance(cause, Refused) for cause in causes):
            metrics.TERMINAL_ERRORS.labels(controller.name).inc()
            queue.forget(key)
            self._log.error(FAILED, error=error)
            return
        asked = max((c.after or 0.0 for c in causes if isinstance(c, Throttled)), default=0.0)
        queue.retry(key, asked, _find_retry_limit(causes))
        bug = next((cause for cause in causes if not isinstance(cause, DovetailError)), None)
        if bug is None:
            self._log.error(FAILED, error=error)
            return
        note_contained(bug)
        metrics.PANICS.labels(controller.name).inc()
        where = traceback.extract_tb(bug.__traceback__)[-1]
        self._log.error(
            "a bug in this controller",
            error=bug,
            kind=type(bug).__name__,
            at=f"{Path(where.filename).name}:{where.lineno}",
        )

    async def _finish_work(self, grace: float) -> None:
        for task in filter(is_idle, set(self._working)):
            task.cancel()
        if self._working:
            _, late = await asyncio.wait(set(self._working), timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _describe_kind(controller: Controller, name: str, namespace: str) -> dict[str, object]:
    """The kind a controller is about, the first that wakes it, and the object. A singleton is about none."""
    if not name or not controller.triggers:
        return {}
    kind = controller.triggers[0].kind.KIND
    about = {"controllerGroup": kind.group, "controllerKind": kind.kind}
    return {**about, kind.kind: build_reference(name, namespace)}


def _find_retry_limit(causes: Iterable[Exception]) -> float | None:
    """The longest a key may be left alone; nothing if any of its failures may take its time."""
    limits = [cause.within if isinstance(cause, Retry) else None for cause in causes]
    given = [limit for limit in limits if limit is not None]
    return min(given) if given and len(given) == len(limits) else None


def _service_name(service: Callable[[], Awaitable[None]]) -> str:
    return getattr(service, "__qualname__", type(service).__name__)
