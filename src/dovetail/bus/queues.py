"""A source queue: receiving from it, and telling it what became of what it gave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.aws import Aws, AwsAbsent, AwsDenied, AwsError
from dovetail.bus.clocks import Clock, Log
from dovetail.bus.events import Received
from dovetail.errors import Misconfigured

__all__ = ["Queue", "batched", "queue_url", "received", "received_record"]

TEN = 10
LONG_POLL = 20
PARALLEL = 16
TOO_OFTEN = 2


async def queue_url(aws: Aws, name: str) -> str:
    """A queue's address; one clear sentence when there is none."""
    try:
        answer = await aws.call("sqs", "GetQueueUrl", {"QueueName": name})
    except AwsAbsent as error:
        raise Misconfigured(
            f"there is no queue {name} in {aws.region}; create it, or name another under `queues`"
        ) from error
    except AwsDenied as error:
        raise Misconfigured(
            f"the queue {name} in {aws.region} may not be used ({error.code}); "
            "grant sqs:GetQueueUrl, ReceiveMessage, DeleteMessage and ChangeMessageVisibility on it"
        ) from error
    return str(answer["QueueUrl"])


def received(raw: Mapping[str, Any], at: float, queue: str = "") -> Received:
    """A message as ReceiveMessage gives it."""
    facts, told = raw.get("Attributes", {}), raw.get("MessageAttributes", {})
    return Received(
        raw["MessageId"],
        raw.get("Body", ""),
        raw.get("ReceiptHandle", ""),
        _seconds(facts.get("SentTimestamp")),
        at,
        _whole(facts.get("ApproximateReceiveCount"), 1),
        _hops(told.get("dt.hops", {}).get("StringValue")),
        str(facts.get("SenderId", "")),
        queue,
    )


def received_record(record: Mapping[str, Any], at: float) -> Received:
    """A message as Lambda hands it over."""
    facts, told = record.get("attributes") or {}, record.get("messageAttributes") or {}
    return Received(
        str(record["messageId"]),
        str(record.get("body", "")),
        str(record.get("receiptHandle", "")),
        _seconds(facts.get("SentTimestamp")),
        at,
        _whole(facts.get("ApproximateReceiveCount"), 1),
        _hops((told.get("dt.hops") or {}).get("stringValue")),
        str(facts.get("SenderId", "")),
        str(record.get("eventSourceARN", "")).rpartition(":")[2],
    )


def _hops(value: object) -> int:
    """How often a message has passed a router. A number that no router has written counts as too often."""
    return 0 if value is None else _whole(value, TOO_OFTEN)


def _seconds(milliseconds: object) -> float | None:
    text = str(milliseconds)
    return int(text) / 1000 if text.isdecimal() and len(text) < 16 else None


def _whole(value: object, default: int) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else default


class Queue:
    """One source queue behind its URL."""

    def __init__(self, aws: Aws, url: str, *, clock: Clock, log: Log) -> None:
        self.url = url
        self._aws, self._clock, self._log = aws, clock, log
        self._parallel = asyncio.Semaphore(PARALLEL)

    async def receive(self, wait: int = LONG_POLL) -> list[Received]:
        """Up to ten messages, or none after a long poll."""
        asked = {
            "QueueUrl": self.url,
            "MaxNumberOfMessages": TEN,
            "WaitTimeSeconds": wait,
            "AttributeNames": ["SentTimestamp", "ApproximateReceiveCount", "SenderId"],
            "MessageAttributeNames": ["dt.hops"],
        }
        answer = await self._aws.call("sqs", "ReceiveMessage", asked, retried=False)
        at = self._clock.monotonic()
        return [received(each, at, self.url) for each in answer.get("Messages", ())]

    async def visibility(self) -> int:
        """How long the queue hides a message that was received."""
        asked = {"QueueUrl": self.url, "AttributeNames": ["VisibilityTimeout"]}
        answer = await self._aws.call("sqs", "GetQueueAttributes", asked)
        return max(int(answer.get("Attributes", {}).get("VisibilityTimeout", 30)), 1)

    async def delete(self, messages: Sequence[Received]) -> None:
        """Let them go for good. One that stays comes again and is recognised as delivered."""
        await self._each("DeleteMessageBatch", messages, {})

    async def hide(self, messages: Sequence[Received], seconds: int) -> None:
        """Let them be seen again after so many seconds."""
        await self._each("ChangeMessageVisibilityBatch", messages, {"VisibilityTimeout": seconds})

    async def _each(self, operation: str, messages: Sequence[Received], extra: Mapping[str, Any]) -> None:
        await asyncio.gather(*(self._tell(operation, some, extra) for some in batched(messages)))

    async def _tell(self, operation: str, messages: Sequence[Received], extra: Mapping[str, Any]) -> None:
        entries = [
            {"Id": str(index), "ReceiptHandle": each.receipt, **extra} for index, each in enumerate(messages)
        ]
        try:
            async with self._parallel:
                answer = await self._aws.call("sqs", operation, {"QueueUrl": self.url, "Entries": entries})
        except AwsError as error:
            self._log.warning("telling a queue failed", operation=operation, queue=self.url, error=error)
            return
        if answer.get("Failed"):
            codes = sorted({str(each.get("Code")) for each in answer["Failed"]})
            self._log.warning("telling a queue failed", operation=operation, queue=self.url, codes=codes)


def batched(messages: Sequence[Received]) -> list[Sequence[Received]]:
    return [messages[start : start + TEN] for start in range(0, len(messages), TEN)]
