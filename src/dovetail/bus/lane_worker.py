"""One lane of the daemon: messages come in, are worked on in batches, and are acknowledged in tens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

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
MOST_HELD = 20_000
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
        self._arrived = 0
        self._stopping = False
        self._work: set[asyncio.Task[None]] = set()
        self._room.set()

    async def receive_messages(self) -> None:
        """Poll for messages as long as there is room for them."""
        while not self._stopping:
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
            if self._stopping:
                await self._queue.hide(got, 0)
                return
            self._take_messages(got)
            if self.lane is Lane.BULK and len(got) < BATCH:
                # A quiet queue answers every poll with a message or two; a pause lets some gather.
                await self._clock.sleep(min(PAUSE, self.window / 10))

    def _take_messages(self, got: list[ReceivedMessage]) -> None:
        if not got:
            return
        now = self._clock.monotonic()
        for message in got:
            self._held[message.receipt] = (message, now)
        self._arrived += len(got)
        self._buffer += got
        self._some.set()
        if len(self._buffer) >= self._batch.size:
            self._full.set()
        if len(self._held) >= MOST_HELD:
            self._room.clear()

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

    def _finish_task(self, task: asyncio.Task[None]) -> None:
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
        if len(self._held) < MOST_HELD:
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
            task = asyncio.get_running_loop().create_task(self._queue.delete(some))
            self._work.add(task)
            task.add_done_callback(partial(self._finish_delete, some))

    def _finish_delete(self, messages: Sequence[ReceivedMessage], task: asyncio.Task[None]) -> None:
        self._deleters.release()
        self.undeleted.remove(each.receipt for each in messages)
        self._finish_task(task)

    async def keep_hidden(self) -> None:
        """Keep what is held from being seen by others."""
        while True:
            await self._clock.sleep(self._visibility / 4)
            now = self._clock.monotonic()
            old = [
                message
                for message, since in self._held.values()
                if now - since >= self._visibility / 2 - 0.01
            ]
            if old:
                await self._queue.hide(old, self._visibility)
                for message in old:
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
