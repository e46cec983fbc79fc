"""Notifier: tells sinks of decisions, each sink at its own pace, and holds nobody up.

A record is only put into the queues of the sinks that want it. A task for each sink sends what is due; a sink
that fails is tried again after 1 s, 2 s, … 5 min, and what it has not taken an hour after it was due is given
up and counted. Only the leader sends. What was not sent when the process ends is not sent later: the decision
log is the promise, not this.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from dovetail.errors import DovetailError, Refused, Throttled, note_contained
from dovetail.history.filters import DueBatch, SinkQueue
from dovetail.history.messages import render_batch
from dovetail.history.notify import Notify, NotifySink
from dovetail.history.record import DecisionRecord
from dovetail.logs import Changes, get_logger
from dovetail.metrics import counter
from dovetail.ports import Clock
from dovetail.runtime.notify_file import NotifyFile
from dovetail.runtime.senders import Sender

__all__ = ["Notifier", "NotifierContext", "SinkWorker"]

FIRST_WAIT, LAST_WAIT = 1.0, 300.0
GIVEN_UP_AFTER = timedelta(hours=1)
# How long a worker sleeps at most while something waits: the time of day may be set, and machines sleep.
LOOK_SECONDS = 30.0
# A change of the file is taken within five seconds.
WATCH_SECONDS = 2.0
LAST_WORDS_SECONDS = 3.0
# Of how many records it is known which sinks heard of them.
REMEMBERED = 20_000

NOTIFICATIONS = counter(
    "dovetail_notifications_total",
    "Messages to sinks of notifications: sent; failed, for each attempt; refused, which are not tried again; "
    "given_up after an hour; dropped, because the queue of the sink was full.",
    ("sink", "result"),
    brief="nonzero",
)
RESULTS = ("sent", "failed", "refused", "given_up", "dropped")


@dataclass(frozen=True, slots=True)
class NotifierContext:
    """What every sink is served with."""

    clock: Clock
    make_sender: Callable[[NotifySink], Sender]
    cluster: str
    may_send: Callable[[], bool] = lambda: True
    # Lets go of what the senders share.
    close: Callable[[], Awaitable[None]] | None = None


class SinkWorker:
    """Sends one sink what it wants to know."""

    def __init__(
        self,
        sink: NotifySink,
        context: NotifierContext,
        dashboard: str,
        on_sent: Callable[[str, DueBatch], None],
    ) -> None:
        self.sink = sink
        self._queue = SinkQueue(sink)
        self._context = context
        self._dashboard = dashboard
        self._sender = context.make_sender(sink)
        self._on_sent = on_sent
        self._wake = asyncio.Event()
        self._changes = Changes(context.clock.monotonic)
        self._log = get_logger()
        # The message that is being sent, and how long to wait after it has failed again.
        self._current: DueBatch | None = None
        self._wait = FIRST_WAIT
        self._counts = {result: NOTIFICATIONS.labels(sink.name, result) for result in RESULTS}

    def add_record(self, record: DecisionRecord) -> None:
        """Queue a record if the sink wants it. Never waits."""
        dropped = self._queue.dropped
        if self._queue.add_record(record, self._context.clock.now()):
            self._counts["dropped"].inc(self._queue.dropped - dropped)
            self._wake.set()

    def hand_over(self) -> list[DecisionRecord]:
        """What is not known to have been taken, to be sent by another; nothing is left here."""
        left = [*(self._current.records if self._current is not None else ()), *self._queue.list_records()]
        self._current, self._queue = None, SinkQueue(self.sink)
        return left

    async def run(self) -> None:
        """Send until cancelled, and then what is left, once."""
        try:
            while True:
                await self._send_next()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    await self._send_rest()

    async def _send_next(self) -> None:
        clock = self._context.clock
        self._wake.clear()
        if self._current is None:
            self._current = self._queue.take_next(clock.now())
        if self._current is None:
            due = self._queue.due
            await self._await_record(None if due is None else (due - clock.now()).total_seconds())
            return
        wait = await self._try_message(self._current)
        if wait:
            await clock.sleep(wait)

    async def _await_record(self, seconds: float | None) -> None:
        """Wait for a record, or for so long."""
        timeout = None if seconds is None else min(max(seconds, 0.0), LOOK_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake.wait()

    async def _send_rest(self) -> None:
        """The last words of a process that ends; not to a sink that fails."""
        now = self._context.clock.now()
        rest = [] if self._current is None else [self._current]
        for batch in (*rest, *self._queue.take_rest(now)) if self._wait == FIRST_WAIT else ():
            if await self._try_message(batch):
                return

    async def _try_message(self, batch: DueBatch) -> float:
        """Send a message once. How long to wait before the next try; 0 when it is settled."""
        if not self._context.may_send():
            return FIRST_WAIT
        message = render_batch(batch, self.sink, self._context.cluster, self._dashboard)
        try:
            await self._sender.send_message(message, batch)
        except Refused as error:
            self._settle_message("refused")
            self._tell_failure("a sink refused a notification", str(error))
            return 0.0
        except Exception as error:  # noqa: BLE001 (a bug in one sender must not end the others)
            note_contained(error)
            self._counts["failed"].inc()
            # The words of a bug may hold an address; its kind holds none.
            words = str(error) if isinstance(error, DovetailError) else f"a bug: {type(error).__name__}"
            self._tell_failure("a sink does not take notifications; they are kept for an hour", words)
            return self._back_off(batch, (error.after or 0.0) if isinstance(error, Throttled) else 0.0)
        if self._wait > FIRST_WAIT:
            self._log.info("a sink takes notifications again", sink=self.sink.name)
        self._changes.has_changed("", "")
        self._settle_message("sent")
        self._wait = FIRST_WAIT
        self._on_sent(self.sink.name, batch)
        return 0.0

    def _settle_message(self, result: str) -> None:
        self._current = None
        self._counts[result].inc()

    def _back_off(self, batch: DueBatch, asked: float) -> float:
        """How long to wait after a failure. What has been due for an hour is given up, with all behind it."""
        wait, self._wait = max(self._wait, asked), min(self._wait * 2, LAST_WAIT)
        since = self._context.clock.now() - GIVEN_UP_AFTER
        if batch.due is not None and batch.due <= since:
            self._current = None
            count = 1 + self._queue.drop_overdue(since)
            self._counts["given_up"].inc(count)
            self._log.warning("gave up notifications", sink=self.sink.name, count=count)
        return wait

    def _tell_failure(self, what: str, words: str) -> None:
        """A word about a sink that fails, again when it fails otherwise or has failed for an hour."""
        if self._changes.has_changed("", words):
            self._log.warning(what, sink=self.sink.name, error=words)


class Notifier:
    """Tells the sinks of a file, which is watched, of every record it is handed."""

    def __init__(self, file: NotifyFile, notify: Notify, context: NotifierContext) -> None:
        self._file = file
        self._context = context
        self._workers: dict[str, SinkWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._told: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._dashboard = ""
        self._take_rules(notify)

    def note_record(self, record: DecisionRecord) -> None:
        """Queue a record for the sinks that want it. Never waits."""
        for worker in self._workers.values():
            worker.add_record(record)

    def list_sinks_told(self, record_id: str) -> tuple[str, ...]:
        """The names of the sinks that have taken a message with this record, as far as it is remembered."""
        return self._told.get(record_id, ())

    async def run(self) -> None:
        """Send, and follow the file, until cancelled."""
        try:
            self._start_workers()
            while True:
                await self._context.clock.sleep(WATCH_SECONDS)
                notify = await self._file.read_change()
                if notify is not None:
                    await self._change_rules(notify)
        finally:
            await self._stop_tasks(list(self._tasks))
            if self._context.close is not None:
                await self._context.close()

    async def _change_rules(self, notify: Notify) -> None:
        """Serve other sinks from now on. Those that stay as they are notice nothing."""
        before = dict(self._workers)
        self._take_rules(notify)
        await self._stop_tasks([name for name, worker in before.items() if self._workers.get(name) != worker])
        self._start_workers()

    def _take_rules(self, notify: Notify) -> None:
        before, same_links = self._workers, notify.dashboard == self._dashboard
        self._dashboard = notify.dashboard
        self._workers = {}
        for sink in notify.sinks:
            old = before.pop(sink.name, None)
            if old is not None and old.sink == sink and same_links:
                self._workers[sink.name] = old
                continue
            worker = SinkWorker(sink, self._context, notify.dashboard, self._remember_sent)
            for record in old.hand_over() if old is not None else ():
                worker.add_record(record)
            self._workers[sink.name] = worker
        for gone in before.values():
            gone.hand_over()

    def _start_workers(self) -> None:
        for name, worker in self._workers.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(worker.run(), name=f"notify-{name}")

    async def _stop_tasks(self, names: list[str]) -> None:
        ending = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _remember_sent(self, sink: str, batch: DueBatch) -> None:
        for record in batch.records:
            self._told[record.id] = (*self._told.get(record.id, ()), sink)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
