"""A source queue: receiving from it, telling it what became of what it gave, and who may send to it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dovetail.aws import Aws, AwsAbsent, AwsDenied
from dovetail.aws.sqs import BATCH, LONG_POLL, PARALLEL, BatchAnswer, SqsQueue, split_batches
from dovetail.bus.events import ReceivedMessage
from dovetail.bus.ports import BusClock
from dovetail.errors import Misconfigured
from dovetail.logs import get_logger

__all__ = [
    "SourceQueue",
    "UndeletedMessages",
    "denies_others",
    "find_queue_url",
    "parse_message",
    "parse_record",
    "read_sealed",
]

log = get_logger("bus")

RECEIVES = {
    "AttributeNames": ["SentTimestamp", "ApproximateReceiveCount", "SenderId"],
    "MessageAttributeNames": ["dt.hops"],
}
TOO_OFTEN = 2
BRIEFEST, FADING = 0.001, 0.8


async def find_queue_url(aws: Aws, name: str) -> str:
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


def parse_message(raw: Mapping[str, Any], at: float, queue: str = "") -> ReceivedMessage:
    """A message as ReceiveMessage gives it."""
    facts, told = raw.get("Attributes", {}), raw.get("MessageAttributes", {})
    return ReceivedMessage(
        raw["MessageId"],
        raw.get("Body", ""),
        raw.get("ReceiptHandle", ""),
        _parse_seconds(facts.get("SentTimestamp")),
        at,
        _parse_whole(facts.get("ApproximateReceiveCount"), 1),
        _parse_hops(told.get("dt.hops", {}).get("StringValue")),
        str(facts.get("SenderId", "")),
        queue,
    )


def parse_record(record: Mapping[str, Any], at: float) -> ReceivedMessage:
    """A message as Lambda hands it over."""
    facts, told = record.get("attributes") or {}, record.get("messageAttributes") or {}
    return ReceivedMessage(
        str(record["messageId"]),
        str(record.get("body", "")),
        str(record.get("receiptHandle", "")),
        _parse_seconds(facts.get("SentTimestamp")),
        at,
        _parse_whole(facts.get("ApproximateReceiveCount"), 1),
        _parse_hops((told.get("dt.hops") or {}).get("stringValue")),
        str(facts.get("SenderId", "")),
        str(record.get("eventSourceARN", "")).rpartition(":")[2],
    )


def _parse_hops(value: object) -> int:
    """How often a message has passed a router. A number that no router has written counts as too often."""
    return 0 if value is None else _parse_whole(value, TOO_OFTEN)


def _parse_seconds(milliseconds: object) -> float | None:
    text = str(milliseconds)
    return int(text) / 1000 if text.isdecimal() and len(text) < 16 else None


def _parse_whole(value: object, default: int) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else default


class SourceQueue:
    """A queue of the router behind its URL: what it gives is a ReceivedMessage, what it refuses is logged."""

    def __init__(self, aws: Aws, url: str, *, clock: BusClock) -> None:
        self.url, self._clock = url, clock
        self._queue = SqsQueue(aws, url=url, receives=RECEIVES)
        self._call_seconds = 0.0

    async def receive(self, wait: int = LONG_POLL) -> list[ReceivedMessage]:
        """Up to ten messages, or none after a long poll."""
        found = await self._queue.receive(wait, retried=False)
        at = self._clock.monotonic()
        return [parse_message(each, at, self.url) for each in found]

    async def read_visibility(self) -> int:
        """How long the queue hides a message that was received."""
        began = self._clock.monotonic()
        visibility = await self._queue.read_visibility()
        self._record_calls(1, began)
        return visibility

    async def delete(self, messages: Sequence[ReceivedMessage]) -> None:
        """Let them go for good. One that stays comes again and is recognised as delivered."""
        began = self._clock.monotonic()
        answers = await self._queue.delete([each.receipt for each in messages])
        self._record_calls(len(answers), began)
        self._report_refusals(answers)

    async def hide(self, messages: Sequence[ReceivedMessage], seconds: int) -> list[ReceivedMessage]:
        """Let them be seen again after so many seconds; returns those that the queue was told of."""
        began = self._clock.monotonic()
        answers = await self._queue.hide([each.receipt for each in messages], seconds)
        self._record_calls(len(answers), began)
        self._report_refusals(answers)
        told = zip(split_batches(messages), answers, strict=True)
        return [each for some, answer in told if answer.error is None for each in some]

    def count_hideable(self, seconds: float) -> int:
        """How many messages can be hidden within so many seconds, at the pace of the latest calls."""
        return int(BATCH * PARALLEL * seconds / max(self._call_seconds, BRIEFEST))

    def _record_calls(self, calls: int, began: float) -> None:
        """Remember how long a call takes: a slower one counts at once, faster ones bit by bit."""
        if calls:
            took = (self._clock.monotonic() - began) / -(-calls // PARALLEL)
            self._call_seconds = max(took, FADING * self._call_seconds + (1 - FADING) * took)

    def _report_refusals(self, answers: Iterable[BatchAnswer]) -> None:
        for each in answers:
            told = {"operation": each.operation, "queue": self.url}
            if each.error is not None:
                log.warning("telling a queue failed", **told, error=each.error)
            elif each.codes:
                log.warning("telling a queue failed", **told, codes=list(each.codes))


SENDING = {"sqs:sendmessage", "sqs:*", "*"}
EXCEPT = {"arnnotlike", "arnnotequals", "stringnotlike", "stringnotequals", "bool"}
OTHERS = {"aws:principalarn", "aws:principalisawsservice"}
SOURCES = {"aws:sourcearn", "aws:sourceaccount"}


def denies_others(policy: Any) -> bool:
    """Whether a queue's policy lets nobody send but rules and topics it names, and roles it names."""
    try:
        read = json.loads(policy) if isinstance(policy, str) and policy else {}
    except (ValueError, RecursionError):
        return False
    found = read.get("Statement", ()) if isinstance(read, dict) else ()
    statements = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    sending = [
        each for each in statements if SENDING & {one.lower() for one in _list_texts(each.get("Action"))}
    ]
    return any(map(_is_deny_statement, sending)) and not any(map(_allows_any_service, sending))


def _is_deny_statement(statement: Mapping[str, Any]) -> bool:
    """Whether all principals are denied but some roles."""
    everybody = statement.get("Principal") in ("*", {"AWS": "*"}, {"AWS": ["*"]})
    operators, keys = _read_conditions(statement)
    closed = operators <= EXCEPT and "aws:principalarn" in keys and keys <= OTHERS
    return statement.get("Effect") == "Deny" and everybody and closed


def _allows_any_service(statement: Mapping[str, Any]) -> bool:
    """Whether a service may send on behalf of anybody."""
    principal = statement.get("Principal")
    service = isinstance(principal, dict) and "Service" in principal
    return statement.get("Effect") == "Allow" and service and not SOURCES & _read_conditions(statement)[1]


def _read_conditions(statement: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The operators of a statement's conditions, and their keys."""
    conditions = statement.get("Condition")
    given = conditions if isinstance(conditions, dict) else {}
    keys = {key.lower() for each in given.values() if isinstance(each, dict) for key in each}
    return {each.lower() for each in given}, keys


def _list_texts(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


async def read_sealed(aws: Aws, queue: str) -> bool:
    """Ask whether a queue's own policy keeps everybody out but its rules and the roles it names."""
    url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": queue}))["QueueUrl"]
    answer = await aws.call("sqs", "GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["Policy"]})
    return denies_others(answer.get("Attributes", {}).get("Policy"))


class UndeletedMessages:
    """Receipts of messages that may lie in a cluster's queue and still lie in their own.

    A message with several copies is counted once. Its second copy never waits for room: room comes from
    messages that are deleted, and they are deleted when all their copies are sent.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[str, int] = {}
        self._line: deque[tuple[Sequence[str], asyncio.Future[None]]] = deque()
        self._waiting: dict[str, list[tuple[Sequence[str], asyncio.Future[None]]]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    async def admit(self, receipts: Sequence[str]) -> None:
        """Return once copies of these messages may be sent; first come, first served."""
        if any(each in self._copies for each in receipts) or (not self._line and self._has_room(receipts)):
            self._count_receipts(receipts)
            return
        entry = (receipts, asyncio.get_running_loop().create_future())
        self._line.append(entry)
        for each in receipts:
            self._waiting.setdefault(each, []).append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            self._leave_line(entry)
            raise

    def withdraw(self, receipts: Iterable[str]) -> None:
        """Take off copies that were not delivered."""
        for each in receipts:
            left = self._copies.get(each, 0) - 1
            if left > 0:
                self._copies[each] = left
            else:
                self._copies.pop(each, None)
        self._admit_next()

    def remove(self, receipts: Iterable[str]) -> None:
        """Take off messages that are deleted, or come again."""
        for each in receipts:
            self._copies.pop(each, None)
        self._admit_next()

    def _has_room(self, receipts: Sequence[str]) -> bool:
        return not self._copies or len(self._copies) + len(receipts) <= self._most

    def _admit_next(self) -> None:
        while self._line and (self._line[0][1].done() or self._has_room(self._line[0][0])):
            receipts, admitted = self._line.popleft()
            if not admitted.done():
                admitted.set_result(None)
                self._count_receipts(receipts)

    def _count_receipts(self, receipts: Sequence[str]) -> None:
        """Count copies, and with them those of the same messages that stand in line."""
        entering = [receipts]
        while entering:
            for each in entering.pop():
                self._copies[each] = self._copies.get(each, 0) + 1
                for others, admitted in self._waiting.pop(each, ()):
                    if not admitted.done():
                        admitted.set_result(None)
                        entering.append(others)

    def _leave_line(self, entry: tuple[Sequence[str], asyncio.Future[None]]) -> None:
        """Whoever is stopped while it waits gives its place back."""
        receipts, admitted = entry
        if admitted.done() and not admitted.cancelled():
            self.withdraw(receipts)
        self._admit_next()
