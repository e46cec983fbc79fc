"""One SQS queue, for everything that reads one: the router, zonal shift, and the interruption controller.

A reader receives messages, acts upon them, and only then deletes them by their receipts. Whatever it does not
delete comes again by itself once its visibility timeout is over, so nothing here repeats a call that failed:
the answers say what was not settled, and the reader says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dovetail.aws.errors import AwsAbsent, AwsError, aws_error
from dovetail.aws.port import Answer, Aws

__all__ = ["BATCH", "LONG_POLL", "PARALLEL", "BatchAnswer", "SqsQueue", "split_batches"]

# What SQS takes in one request, and the longest it waits for a first message, in seconds.
BATCH: Final = 10
LONG_POLL: Final = 20
PARALLEL: Final = 16  # requests of a queue under way at once
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """What became of up to ten receipts: how many SQS settled, and why it did not settle the others."""

    operation: str
    done: int = 0
    codes: tuple[str, ...] = ()
    error: AwsError | None = None

    def raise_refusal(self) -> None:
        """Raise the refusal of the call, or of an entry; a caller with one message has no other way on."""
        if self.error is not None:
            raise self.error
        if self.codes:
            raise aws_error(f"sqs:{self.operation}", self.codes[0], "SQS did not settle a message")


class SqsQueue:
    """A queue by its URL, or by its name: then its URL is asked for, and again when it seems to have moved.

    `receives` holds the parameters of ReceiveMessage that the reader wants, `VisibilityTimeout` for one.
    """

    def __init__(
        self, aws: Aws, *, name: str = "", url: str = "", receives: Mapping[str, Any] | None = None
    ) -> None:
        self._aws, self.name, self.url = aws, name, url
        self._receives = {"MaxNumberOfMessages": BATCH, **(receives or {})}
        self._parallel = asyncio.Semaphore(PARALLEL)

    async def receive(self, wait: int = LONG_POLL, *, retried: bool = True) -> Sequence[Answer]:
        """Up to ten messages as SQS gives them, or none after a long poll."""
        asked = {**self._receives, "WaitTimeSeconds": wait}
        answer = await self._call_queue("ReceiveMessage", asked, retried=retried)
        return answer.get("Messages") or ()

    async def read_visibility(self) -> int:
        """How many seconds the queue hides a message that was received."""
        asked = {"AttributeNames": ["VisibilityTimeout"]}
        answer = await self._call_queue("GetQueueAttributes", asked)
        return max(int(answer.get("Attributes", {}).get("VisibilityTimeout", 30)), 1)

    async def delete(self, receipts: Sequence[str]) -> list[BatchAnswer]:
        """Delete messages that were acted upon, ten in a request."""
        return await self._settle_all("DeleteMessageBatch", receipts, {})

    async def hide(self, receipts: Sequence[str], seconds: int) -> list[BatchAnswer]:
        """Let messages be seen again after so many seconds, ten in a request."""
        return await self._settle_all(
            "ChangeMessageVisibilityBatch", receipts, {"VisibilityTimeout": seconds}
        )

    async def _settle_all(
        self, operation: str, receipts: Sequence[str], extra: Mapping[str, Any]
    ) -> list[BatchAnswer]:
        batches = split_batches(receipts)
        return await asyncio.gather(*(self._settle_batch(operation, some, extra) for some in batches))

    async def _settle_batch(
        self, operation: str, receipts: Sequence[str], extra: Mapping[str, Any]
    ) -> BatchAnswer:
        entries = [{"Id": str(index), "ReceiptHandle": each, **extra} for index, each in enumerate(receipts)]
        try:
            async with self._parallel:
                answer = await self._call_queue(operation, {"Entries": entries})
        except AwsError as error:
            return BatchAnswer(operation, error=error)
        codes = sorted({str(each.get("Code")) for each in answer.get("Failed") or ()})
        return BatchAnswer(operation, len(answer.get("Successful") or ()), tuple(codes))

    async def _call_queue(
        self, operation: str, parameters: Mapping[str, Any], *, retried: bool = True
    ) -> Answer:
        if not self.url:
            found = await self._aws.call("sqs", "GetQueueUrl", {"QueueName": self.name})
            self.url = str(found["QueueUrl"])
        try:
            return await self._aws.call(
                "sqs", operation, {"QueueUrl": self.url, **parameters}, retried=retried
            )
        except AwsAbsent:
            if self.name:
                self.url = ""
            raise


def split_batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Split into parts of ten, as SQS takes them."""
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
