"""The interruption queue as its controller reads it: up to a hundred messages, deleted once acted upon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dovetail.aws import Answer, Aws
from dovetail.aws.sqs import BATCH, LONG_POLL, SqsQueue
from dovetail.providers.aws.queries import read_items

__all__ = ["InterruptionQueueReader", "QueueMessage"]

# A message is hidden from others for so many seconds while we act upon it.
RECEIVES: Final = {
    "VisibilityTimeout": 20,
    "MessageSystemAttributeNames": ["SentTimestamp"],
    "MessageAttributeNames": ["All"],
}
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
    """Reads the interruption queue by its name, up to a hundred messages in one go."""

    def __init__(self, aws: Aws, name: str) -> None:
        self._queue = SqsQueue(aws, name=name, receives=RECEIVES)

    async def receive_messages(self) -> list[QueueMessage]:
        """What waits, at most a hundred letters; while nothing does, wait for a first one for a while."""
        first = await self._receive_batch(LONG_POLL)
        if len(first) < BATCH:
            return first
        # What one of them took is hidden from the others for a while, so a failure is not worth losing it.
        further = await asyncio.gather(
            *(self._receive_batch(0) for _ in range(FURTHER)), return_exceptions=True
        )
        return first + [message for some in further if isinstance(some, list) for message in some]

    async def delete_messages(self, messages: Sequence[QueueMessage]) -> int:
        """Delete them, ten in a request; how many SQS deleted. Those it did not will come again."""
        answers = await self._queue.delete([each.receipt for each in messages])
        refusal = next((each.error for each in answers if each.error is not None), None)
        if refusal is not None:
            raise refusal
        return sum(each.done for each in answers)

    async def _receive_batch(self, wait: int) -> list[QueueMessage]:
        found = await self._queue.receive(wait)
        return list(read_items("ReceiveMessage", found, QueueMessage.from_answer))
