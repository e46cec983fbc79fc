"""One lane of the daemon: messages come in, are worked on in batches, and are acknowledged in tens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from dovetail.aws import AwsError
from dovetail.aws.sqs import BATCH, split_batches
from dovetail.bus.config import BusConfig
from dovetail.bus.events import Lane, ReceivedMessage
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.ports import BusClock
from dovetail.bus.queues import SourceQueue, UndeletedMessages
from dovetail.logs import get_logger

__all__ = ["LaneWorker", "compute_window"]

log = get_logger("bus")

# Messages held in memory, per lane: SQS allows 120,000 in flight, and a crash returns all of these at once.
# Fewer, when the queue is too slow to hide so many again within a round. A message is due when half its time
# is over; with a look each eighth and a round of an eighth it is hidden again before seven eighths are.
MOST_HELD = 20_000
DUE, LOOK, HIDING = 1 / 2, 1 / 8, 1 / 8
LINGER = 0.05  # how long an acknowledgement waits for nine others
DELETERS = 16
TROUBLE = 1.0
PAUSE = 0.5
URGENT_AGAIN = 2
SHORTEST, LONGEST = 1.0, 2.0


def compute_window(configured: float, rate: float, destinations: int) -> float:
    """The shortest window in which each destination's batches get about half full, within bounds."""
    if rate <= 0:
        return configured
    wanted = 5 * destinations / rate
    return min(max(wanted, min(SHORTEST, configured)), LONGEST * configured)


class LaneWorker:
    """Receives, collects, and settles. Its methods are loops that the daemon runs."""

    def __init__(
        self,
        lane: Lane,
        queue: SourceQueue,
        pipeline: Pipeline,
        config: BusConfig,
        visibility: int,
        *,
        clock: BusClock,
    ) -> None:
        self.lane = lane
        self._queue, self._pipeline, self._clock = queue, pipeline, clock
        self._batch = config.get_batch_limits(lane)
        self._wait = int(config["receivers.wait"])
        self.window = self._batch.window
        self._visibility = visibility
        self._buffer: list[ReceivedMessage] = []
        self._some, self._full, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._acks: list[ReceivedMessage] = []
        self._acked, self._ten_acked = asyncio.Event(), asyncio.Event()
        self._deleters = asyncio.Semaphore(DELETERS)
        # By receipt: when it was last hidden. Everything received and not yet settled is here.
        self._held: dict[str, tuple[ReceivedMessage, float]] = {}
        self.undeleted = UndeletedMessages(config["maxUndeleted"])
        self._receiving = 0
        self._deleting = 0
        self._arrived = 0
        self._stopping = False
        self._work: set[asyncio.Task[Any]] = set()
        self._room.set()

    async def receive_messages(self) -> None:
        """Poll for messages as long as what is held can be kept hidden until it is acted upon."""
        while not self._stopping:
            while not self._has_room(self._receiving + 1):
                self._room.clear()
                await self._room.wait()
            self._receiving += 1
            try:
                got = await self._queue.receive(self._wait)
            except AwsError as error:
                log.warning("receiving failed", lane=self.lane, error=error)
                await self._clock.sleep(TROUBLE)
                continue
            finally:
                self._receiving -= 1
                self._room.set()
            if self._stopping:
                await self._queue.hide(got, 0)
                return
            self._take_messages(got)
            if self.lane is Lane.BULK and len(got) < BATCH:
                # A quiet queue answers every poll with a message or two; a pause lets some gather.
                await self._clock.sleep(min(PAUSE, self.window / 10))

    def _has_room(self, receives: int) -> bool:
        """Whether the messages of so many receives could be held too, and hidden again in time."""
        most = min(MOST_HELD, self._queue.count_hideable(self._visibility * HIDING))
        return len(self._held) + self._deleting + BATCH * receives <= max(most, BATCH)

    def _take_messages(self, got: list[ReceivedMessage]) -> None:
        if not got:
            return
        now = self._clock.monotonic()
        for message in got:
            self._held[message.receipt] = (message, now)
        self._arrived += len(got)
        self._buffer += got
        self._some.set()
        # Where a batch finds no room to fill up in, half of what is held will do.
        crowded = not self._has_room(1) and 2 * len(self._buffer) >= len(self._held)
        if crowded or len(self._buffer) >= self._batch.size:
            self._full.set()

    async def collect_batches(self) -> None:
        """Make batches: when there are enough messages, or when the first has waited long enough."""
        while True:
            await self._some.wait()
            if len(self._buffer) < self._batch.size and not self._stopping:
                with suppress(TimeoutError):  # what there is will do
                    await asyncio.wait_for(self._full.wait(), self.window)
            self._start_batch()

    def _start_batch(self) -> None:
        size = self._batch.size
        batch, self._buffer = self._buffer[:size], self._buffer[size:]
        if not self._buffer:
            self._some.clear()
        if len(self._buffer) < size:
            self._full.clear()
        if batch:
            task = asyncio.get_running_loop().create_task(self._process_batch(batch))
            self._work.add(task)
            task.add_done_callback(self._finish_task)

    async def _process_batch(self, batch: list[ReceivedMessage]) -> None:
        """Work on a batch. Should that fail as a whole, what is not done comes again by itself."""
        try:
            await self._pipeline.process_batch(self.lane, batch, self)
        except Exception:
            done = {message.receipt for message in self._acks}
            for message in batch:
                if message.receipt in self._held and message.receipt not in done:
                    self.settle_failed(message, self.lane is Lane.URGENT)
            raise

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a batch met a bug; its messages come again", error=repr(task.exception()))

    def settle_done(self, message: ReceivedMessage) -> None:
        self._acks.append(message)
        self._acked.set()
        if len(self._acks) >= BATCH:
            self._ten_acked.set()

    def settle_failed(self, message: ReceivedMessage, urgent: bool) -> None:
        self._release_message(message)
        self.undeleted.remove([message.receipt])
        if urgent and not self._stopping:
            # A warning must not wait out its visibility: that would outlive the notice.
            self._start_hiding([message], URGENT_AGAIN)
        elif self._stopping:
            self._start_hiding([message], 0)

    def _start_hiding(self, messages: list[ReceivedMessage], seconds: int) -> None:
        task = asyncio.get_running_loop().create_task(self._queue.hide(messages, seconds))
        self._work.add(task)
        task.add_done_callback(self._finish_task)

    def _release_message(self, message: ReceivedMessage) -> None:
        self._held.pop(message.receipt, None)
        self._room.set()

    async def delete_acknowledged(self) -> None:
        """Delete what is done, in tens."""
        while True:
            await self._acked.wait()
            with suppress(TimeoutError):  # fewer than ten
                await asyncio.wait_for(self._ten_acked.wait(), LINGER)
            await self._delete_done()

    async def _delete_done(self) -> None:
        acks, self._acks = self._acks, []
        self._acked.clear()
        self._ten_acked.clear()
        for message in acks:
            self._release_message(message)
        for some in split_batches(acks):
            await self._deleters.acquire()
            self._deleting += len(some)
            task = asyncio.get_running_loop().create_task(self._queue.delete(some))
            self._work.add(task)
            task.add_done_callback(partial(self._finish_delete, some))

    def _finish_delete(self, messages: Sequence[ReceivedMessage], task: asyncio.Task[None]) -> None:
        self._deleters.release()
        self._deleting -= len(messages)
        self._room.set()
        self.undeleted.remove(each.receipt for each in messages)
        self._finish_task(task)

    async def keep_hidden(self) -> None:
        """Keep what is held from being seen by others."""
        while True:
            await self._clock.sleep(self._visibility * LOOK)
            now = self._clock.monotonic()
            due = [
                message
                for message, since in self._held.values()
                if now - since >= self._visibility * DUE - 0.01
            ]
            for message in await self._queue.hide(due, self._visibility):
                if message.receipt in self._held:
                    self._held[message.receipt] = (message, now)

    async def adapt_window(self) -> None:
        """Fit the window of the bulk lane to the traffic; warnings always wait the same."""
        rate = 0.0
        while self.lane is Lane.BULK:
            await self._clock.sleep(1.0)
            rate, self._arrived = 0.5 * rate + 0.5 * self._arrived, 0
            self.window = compute_window(self._batch.window, rate, len(self._pipeline.registry))

    async def drain_until(self, until: float) -> None:
        """Take nothing more, finish what is held, give back the rest."""
        self._stopping = True
        self._some.set()
        self._full.set()
        self._start_batch()
        while (self._work or self._receiving or self._acks) and self._clock.monotonic() < until:
            await self._clock.sleep(LINGER)
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for message in self._acks:
            self._release_message(message)
        await self._queue.delete(self._acks)
        await self._queue.hide([message for message, _ in self._held.values()], 0)
