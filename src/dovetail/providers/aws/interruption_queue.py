"""A queue of SQS, as its reader sees it: letters are taken ten at a time, and given back or crossed off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dovetail.aws import Answer, Aws, AwsAbsent
from dovetail.providers.aws.queries import read_items

__all__ = ["InterruptionQueueReader", "QueueMessage"]

MOST: Final = 10
# Seconds: how long a letter is hidden from others while we read it, and how long we wait for the first.
HIDDEN: Final = 20
PATIENCE: Final = 20
# A first ten that are all there mean that more wait behind them; so many further tens are taken at once.
FURTHER: Final = 9
# Milliseconds since 1970 of every year before 5000.
MOMENT_DIGITS: Final = 14


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A message, and what is needed to have it crossed off."""

    id: str
    body: str
    receipt: str
    sent: datetime | None = None

    @staticmethod
    def from_answer(message: Answer) -> QueueMessage:
        sent = (message.get("Attributes") or {}).get("SentTimestamp", "")
        return QueueMessage(
            message.get("MessageId", ""),
            message.get("Body") or "",
            message["ReceiptHandle"],
            _parse_sent_time(sent),
        )


def _parse_sent_time(milliseconds: str) -> datetime | None:
    """When a letter was sent; a number that is no time of this age counts as none."""
    if not milliseconds.isascii() or not milliseconds.isdigit() or len(milliseconds) > MOMENT_DIGITS:
        return None
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


class InterruptionQueueReader:
    """One queue by its name. Its URL is asked for once, and again when the queue seems to have moved."""

    def __init__(self, aws: Aws, name: str) -> None:
        self._aws = aws
        self._name = name
        self._url = ""

    async def receive_messages(self) -> list[QueueMessage]:
        """What waits, at most a hundred letters; while nothing does, wait for a first one for a while."""
        first = await self._receive_batch(PATIENCE)
        if len(first) < MOST:
            return first
        # What one of them took is hidden from the others for a while, so a failure is not worth losing it.
        further = await asyncio.gather(
            *(self._receive_batch(0) for _ in range(FURTHER)), return_exceptions=True
        )
        return first + [message for some in further if isinstance(some, list) for message in some]

    async def delete_messages(self, messages: Sequence[QueueMessage]) -> int:
        """Delete them, ten in a request; how many SQS deleted. Those it did not will come again."""
        tens = [messages[at : at + MOST] for at in range(0, len(messages), MOST)]
        return sum(await asyncio.gather(*map(self._delete_batch, tens)))

    async def _receive_batch(self, wait: int) -> list[QueueMessage]:
        asked = {
            "MaxNumberOfMessages": MOST,
            "VisibilityTimeout": HIDDEN,
            "WaitTimeSeconds": wait,
            "MessageSystemAttributeNames": ["SentTimestamp"],
            "MessageAttributeNames": ["All"],
        }
        answer = await self._call_queue("ReceiveMessage", asked)
        return list(read_items("ReceiveMessage", answer.get("Messages") or (), QueueMessage.from_answer))

    async def _delete_batch(self, messages: Sequence[QueueMessage]) -> int:
        entries = [{"Id": str(at), "ReceiptHandle": each.receipt} for at, each in enumerate(messages)]
        answer = await self._call_queue("DeleteMessageBatch", {"Entries": entries})
        return len(answer.get("Successful") or ())

    async def _call_queue(self, operation: str, parameters: dict[str, Any]) -> Answer:
        if not self._url:
            found = await self._aws.call("sqs", "GetQueueUrl", {"QueueName": self._name})
            self._url = found["QueueUrl"]
        try:
            return await self._aws.call("sqs", operation, {"QueueUrl": self._url, **parameters})
        except AwsAbsent:
            self._url = ""
            raise
