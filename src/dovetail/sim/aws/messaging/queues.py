"""SQS queues: messages that hide while someone works on them, come back, and end in a dead-letter queue."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import re
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dovetail.sim.aws.service import Json, ServiceState

__all__ = ["DEFAULTS", "HANDLE", "SimMessage", "SimQueue", "SimQueues", "md5_of_attributes"]

DEFAULTS = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}
HANDLE = re.compile(r"[0-9a-f-]{36}#\d+#[0-9a-f]{8}")
SENDER = "AIDASIMULATED0000000"


@dataclass(slots=True)
class SimMessage:
    """A message of a queue. `hidden` is until when it cannot be received."""

    id: str
    body: str
    sent: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)
    received: int = 0
    first: datetime | None = None
    handle: str = ""
    hidden: datetime | None = None
    deleted: bool = False
    dead_letter_source: str = ""

    @property
    def size(self) -> int:
        return message_size(self.body, self.attributes)


def message_size(body: str, attributes: Mapping[str, Any]) -> int:
    """Bytes of a message: its body, and names, types and values of its attributes."""
    total = len(body.encode())
    for name, value in attributes.items():
        held = value.get("BinaryValue") or (value.get("StringValue") or "").encode()
        total += len(name.encode()) + len(value.get("DataType", "").encode()) + len(held)
    return total


class SimQueue:
    """A standard queue: in order as far as nothing comes back, and never less than once."""

    def __init__(
        self, owner: SimQueues, name: str, attributes: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        self.name, self.tags, self._owner = name, dict(tags), owner
        self.attributes = {**DEFAULTS, **attributes}
        self.created = self.changed = owner.clock.now()
        self.messages: dict[str, SimMessage] = {}
        self._ready: deque[SimMessage] = deque()
        self._hidden: list[tuple[datetime, int, SimMessage]] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._order = 0

    @property
    def url(self) -> str:
        return f"https://sqs.{self._owner.region}.amazonaws.com/{self._owner.account}/{self.name}"

    @property
    def arn(self) -> str:
        return f"arn:aws:sqs:{self._owner.region}:{self._owner.account}:{self.name}"

    def read_setting(self, name: str) -> int:
        return int(self.attributes[name])

    def send(
        self,
        body: str,
        attributes: Mapping[str, Any] | None = None,
        system: Mapping[str, Any] | None = None,
        delay: int | None = None,
    ) -> SimMessage:
        now, world = self._owner.clock.now(), self._owner.world
        message = SimMessage(world.random_uuid(), body, now, attributes or {}, system or {})
        self.messages[message.id] = message
        wait = self.read_setting("DelaySeconds") if delay is None else delay
        if wait:
            self._hide_message(message, now + timedelta(seconds=wait))
        else:
            self.make_visible(message)
        return message

    def make_visible(self, message: SimMessage) -> None:
        """It can be received from now on."""
        message.hidden = None
        self._ready.append(message)
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def receive_messages(self, most: int, visibility: int | None = None) -> list[SimMessage]:
        """Receive: up to that many, hidden from others for a while; used-up ones go to the dead letters."""
        self._surface_messages()
        got: list[SimMessage] = []
        now = self._owner.clock.now()
        hide = self.read_setting("VisibilityTimeout") if visibility is None else visibility
        while self._ready and len(got) < most:
            message = self._ready.popleft()
            if message.deleted or message.hidden is not None or self._drop_if_expired(message, now):
                continue
            if self._move_to_dead_letters(message):
                continue
            message.received += 1
            message.first = message.first or now
            message.handle = f"{message.id}#{message.received}#{self._owner.world.random_hex(8)}"
            self._hide_message(message, now + timedelta(seconds=hide))
            got.append(message)
        return got

    async def wait_for_message(self, seconds: float) -> None:
        """Until a message may be there, or so long."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        if self._hidden:
            until = (self._hidden[0][0] - self._owner.clock.now()).total_seconds()
            seconds = min(seconds, max(0.0, until))
        self._waiting.add(woken)
        try:
            await asyncio.wait([woken], timeout=seconds)
        finally:
            self._waiting.discard(woken)

    def find_by_handle(self, handle: str) -> SimMessage | None:
        """The message a receipt was for; None once it is gone."""
        return self.messages.get(handle.partition("#")[0])

    def delete(self, message: SimMessage, handle: str) -> None:
        """Only the handle of the last receipt deletes; an older one is taken and does nothing."""
        if message.handle == handle:
            self._drop_message(message)

    def postpone(self, message: SimMessage, seconds: int) -> None:
        if seconds == 0:
            self.make_visible(message)
        else:
            self._hide_message(message, self._owner.clock.now() + timedelta(seconds=seconds))

    def purge(self) -> None:
        for message in list(self.messages.values()):
            self._drop_message(message)

    def count_messages(self) -> dict[str, int]:
        """How many can be received, are being worked on, and wait for their delay."""
        self._surface_messages()
        now = self._owner.clock.now()
        for message in [each for each in self._ready if self._drop_if_expired(each, now)]:
            self._drop_message(message)
        hidden = [each for each in self.messages.values() if each.hidden is not None]
        delayed = sum(each.received == 0 for each in hidden)
        return {
            "ApproximateNumberOfMessages": len(self.messages) - len(hidden),
            "ApproximateNumberOfMessagesNotVisible": len(hidden) - delayed,
            "ApproximateNumberOfMessagesDelayed": delayed,
        }

    def is_in_flight(self, message: SimMessage) -> bool:
        self._surface_messages()
        return message.hidden is not None and not message.deleted

    def _hide_message(self, message: SimMessage, until: datetime) -> None:
        self._order += 1
        message.hidden = until
        heapq.heappush(self._hidden, (until, self._order, message))

    def _surface_messages(self) -> None:
        now = self._owner.clock.now()
        while self._hidden and self._hidden[0][0] <= now:
            until, _, message = heapq.heappop(self._hidden)
            # A message that was postponed is in the heap twice; the last word counts.
            if message.hidden == until and not message.deleted:
                self.make_visible(message)

    def _drop_if_expired(self, message: SimMessage, now: datetime) -> bool:
        old = message.sent + timedelta(seconds=self.read_setting("MessageRetentionPeriod")) <= now
        if old:
            self._drop_message(message)
        return old

    def _move_to_dead_letters(self, message: SimMessage) -> bool:
        policy = json.loads(self.attributes.get("RedrivePolicy") or "{}")
        if not policy or message.received < int(policy["maxReceiveCount"]):
            return False
        target = self._owner.find_by_arn(policy["deadLetterTargetArn"])
        if target is None:
            return False
        self._drop_message(message)
        moved = SimMessage(message.id, message.body, message.sent, message.attributes, message.system)
        moved.received, moved.first, moved.dead_letter_source = message.received, message.first, self.arn
        target.messages[moved.id] = moved
        target.make_visible(moved)
        return True

    def _drop_message(self, message: SimMessage) -> None:
        message.deleted = True
        self.messages.pop(message.id, None)


class SimQueues(ServiceState):
    """The queues of an account in a region."""

    def init_state(self) -> None:
        self.by_name: dict[str, SimQueue] = {}

    def add(
        self, name: str, attributes: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> SimQueue:
        made = SimQueue(self, name, attributes or {}, tags or {})
        self.by_name[name] = made
        return made

    def find_by_url(self, url: str) -> SimQueue | None:
        return self.by_name.get(url.rstrip("/").rpartition("/")[2])

    def find_by_arn(self, arn: str) -> SimQueue | None:
        """A queue of this world by its ARN, in whatever account and region."""
        parts = arn.split(":")
        if len(parts) != 6 or parts[2] != "sqs":
            return None
        return self.world.get_state(SimQueues, parts[4], parts[3]).by_name.get(parts[5])


def md5_of_attributes(attributes: Mapping[str, Any]) -> str:
    """The checksum SQS gives of a message's attributes, which clients compare."""
    summed = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        kind = value["DataType"]
        for text in (name, kind):
            summed.update(struct.pack(">I", len(text.encode())) + text.encode())
        binary = value.get("BinaryValue")
        held = binary if binary is not None else (value.get("StringValue") or "").encode()
        summed.update(
            (b"\x02" if kind.startswith("Binary") else b"\x01") + struct.pack(">I", len(held)) + held
        )
    return summed.hexdigest()


def render_attributes(message: SimMessage) -> Json:
    """A message's system attributes as ReceiveMessage has them."""
    first = message.first or message.sent
    shown = {
        "SenderId": SENDER,
        "SentTimestamp": _format_millis(message.sent),
        "ApproximateReceiveCount": str(message.received),
        "ApproximateFirstReceiveTimestamp": _format_millis(first),
    }
    if message.dead_letter_source:
        shown["DeadLetterQueueSourceArn"] = message.dead_letter_source
    for name, value in message.system.items():
        shown[name] = value.get("StringValue", "")
    return shown


def _format_millis(when: datetime) -> str:
    return str(int(when.timestamp() * 1000))
