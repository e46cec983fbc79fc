"""Messages about shifts from an SQS queue: read, kept in the cluster, and only then crossed off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from dovetail.aws import Answer, Aws, AwsAbsent
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.signals import SignalStore
from dovetail.errors import BadInput, DovetailError, Retry
from dovetail.ports import Clock
from dovetail.zonal.events import signal_of

__all__ = ["QueueReader"]

log = logging.getLogger(__name__)
MOST, HIDDEN, PATIENCE = 10, 60, 20
PAUSE, LONGEST_PAUSE = 1.0, 60.0


class QueueReader:
    """Reads one queue for as long as it runs. Every replica does: a lost zone loses no message."""

    def __init__(self, aws: Aws, queue: str, store: SignalStore, clock: Clock) -> None:
        self._aws, self._queue, self._store, self._clock = aws, queue, store, clock
        self._url = ""

    async def run(self) -> None:
        pause = PAUSE
        while True:
            try:
                await self.read()
                pause = PAUSE
            except DovetailError as error:
                log.warning("cannot read the queue %s: %s", self._queue, error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def read(self) -> int:
        """Take what waits; how many messages were dealt with."""
        asked = {"MaxNumberOfMessages": MOST, "VisibilityTimeout": HIDDEN, "WaitTimeSeconds": PATIENCE}
        answer = await self._ask("ReceiveMessage", asked)
        left = [
            (str(each.get("Body") or ""), str(each["ReceiptHandle"])) for each in answer.get("Messages") or ()
        ]
        hiding, done, failed = asyncio.ensure_future(self._hide(left)), 0, list[Exception]()
        try:
            while left:
                try:
                    done += await self._deal_with(*left[0])
                except Exception as error:  # noqa: BLE001 (this message comes again; the others need not wait)
                    failed.append(error)
                left.pop(0)
        finally:
            hiding.cancel()
        self._own_up(failed, done)
        return done

    def _own_up(self, failed: Sequence[Exception], done: int) -> None:
        """Say what could not be kept; where nothing could, there is no use in reading on at once."""
        if failed and not done and all(isinstance(each, Retry) for each in failed):
            raise failed[0]
        for error in failed:
            counts.SIGNALS.labels("sqs", "unknown", "failed").inc()
            log.error("a message could not be kept, and comes again: %s", error or type(error).__name__)

    async def _hide(self, left: Sequence[tuple[str, str]]) -> None:
        """Keep from others what is still worked on, however slow the store is."""
        while left:
            await self._clock.sleep(HIDDEN / 2)
            for _, receipt in tuple(left):
                try:
                    await self._ask(
                        "ChangeMessageVisibility", {"ReceiptHandle": receipt, "VisibilityTimeout": HIDDEN}
                    )
                except DovetailError as error:
                    log.warning("a message may come twice: %s", error)

    async def _deal_with(self, body: str, receipt: str) -> int:
        try:
            signal = signal_of(body, "sqs")
        except BadInput as error:
            # Not crossed off: after a few more tries the queue itself puts it aside for people to see.
            log.warning("a message makes no sense: %s", error)
            counts.SIGNALS.labels("sqs", "unknown", "unparsable").inc()
            return 0
        await self._store.put(signal)
        await self._ask("DeleteMessage", {"ReceiptHandle": receipt})
        return 1

    async def _ask(self, operation: str, parameters: Mapping[str, object]) -> Answer:
        if not self._url:
            found = await self._aws.call("sqs", "GetQueueUrl", {"QueueName": self._queue})
            self._url = str(found["QueueUrl"])
        try:
            return await self._aws.call("sqs", operation, {"QueueUrl": self._url, **parameters})
        except AwsAbsent:
            self._url = ""
            raise
