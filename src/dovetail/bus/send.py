"""Put copies into queues: ten to a call, failures tried again, one bad queue no one else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from dovetail.aws import Aws, AwsAbsent, AwsDenied, AwsError, AwsInvalid
from dovetail.bus.destinations import Destination
from dovetail.bus.ports import BusClock, BusCounts
from dovetail.errors import note_contained
from dovetail.logs import get_logger

__all__ = ["BusCopy", "CopySender", "MessageAttributes", "SendGate", "SendOutcome", "split_chunks"]

log = get_logger("bus")

T = TypeVar("T")
Tag = TypeVar("Tag", contravariant=True)
ENTRIES = 10
# SQS takes 1 MiB in a batch, attributes included.
BYTES, ATTRIBUTES = 1_048_576, 1_024
DELAYS = (0.1, 0.3, 0.9)
TRIPS_AFTER, OPEN_FOR = 5, 5.0
PER_QUEUE = 4


class SendOutcome(StrEnum):
    """How a copy fared."""

    SENT = "sent"
    FAILED = "failed"  # may work later: the source message stays
    REFUSED = "refused"  # will not work: a person must look


@dataclass(slots=True)
class MessageAttributes:
    """What a copy bears beside its body, as SQS message attributes: what it tells of, and how it came."""

    kind: str
    instance: str = ""
    deadline: float | None = None
    hops: int = 1
    reason: str = ""
    cluster: str = ""

    def build_document(self) -> dict[str, Any]:
        """The attributes that are set, as SendMessageBatch takes them."""
        made = {"dt.kind": _string_attribute(self.kind), "dt.hops": _number_attribute(self.hops)}
        if self.instance:
            made["dt.instance"] = _string_attribute(self.instance)
        if self.deadline is not None:
            made["dt.deadline"] = _number_attribute(int(self.deadline))
        if self.cluster:
            made["dt.cluster"] = _string_attribute(self.cluster)
        if self.reason:
            made["dt.reason"] = _string_attribute(self.reason)
        return made


class BusCopy(Generic[T]):
    """A body on its way to a queue. `tag` is the sender's customer's own, and so is `key`, its name."""

    __slots__ = ("attributes", "body", "destination", "key", "tag", "url")

    def __init__(
        self,
        url: str,
        body: str,
        tag: T,
        attributes: MessageAttributes,
        destination: Destination | None = None,
        key: Hashable = None,
    ) -> None:
        self.url, self.body, self.tag, self.key = url, body, tag, key
        self.attributes, self.destination = attributes, destination

    def build_entry(self, index: int) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "Id": str(index),
            "MessageBody": self.body,
            "MessageAttributes": self.attributes.build_document(),
        }
        instance = self.attributes.instance
        if instance and self.destination is not None and self.destination.fair_queue:
            entry["MessageGroupId"] = instance
        return entry


def _string_attribute(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def _number_attribute(value: int) -> dict[str, str]:
    return {"DataType": "Number", "StringValue": str(value)}


class SendGate(Protocol[Tag]):
    """Says when copies with these tags may be sent, and is told of those that were not delivered."""

    async def admit(self, tags: Sequence[Tag], /) -> None: ...

    def withdraw(self, tags: Sequence[Tag], /) -> None: ...


@dataclass(slots=True)
class CircuitBreaker:
    """Whether a queue is worth trying: open for a while after a row of failures, then one attempt."""

    failures: int = 0
    open_until: float = 0.0

    def allows_attempt(self, now: float) -> bool:
        if self.failures < TRIPS_AFTER:
            return True
        if now < self.open_until:
            return False
        self.open_until = now + OPEN_FOR  # the one that may try
        return True

    def record_failure(self, now: float) -> bool:
        """Note a failure; True when it opens the circuit."""
        self.failures += 1
        self.open_until = now + OPEN_FOR
        return self.failures == TRIPS_AFTER


class CopySender(Generic[T]):
    """Sends copies to any number of queues at once."""

    def __init__(
        self, aws: Aws, *, clock: BusClock, counts: BusCounts, rng: Random, parallel: int = 32
    ) -> None:
        self._aws, self._clock, self._counts = aws, clock, counts
        self._chance = rng
        self._parallel = asyncio.Semaphore(parallel)
        self._queues: dict[str, asyncio.Semaphore] = {}
        self._circuits: dict[str, CircuitBreaker] = {}
        self._doors: dict[tuple[str, str], Aws] = {}

    async def send_copies(
        self,
        copies: Sequence[BusCopy[T]],
        settled: Callable[[BusCopy[T], SendOutcome], None],
        gate: SendGate[T] | None = None,
    ) -> None:
        """Send them all as the gate admits them; each is settled as soon as its fate is known."""
        by_queue: dict[str, list[BusCopy[T]]] = {}
        for copy in copies:
            by_queue.setdefault(copy.url, []).append(copy)
        groups = [chunk for queued in by_queue.values() for chunk in split_chunks(queued)]
        if len(groups) == 1:
            await self._send_chunk(groups[0], settled, gate)
        else:
            await asyncio.gather(*(self._send_chunk(group, settled, gate) for group in groups))

    def forget_queues(self, urls: set[str]) -> None:
        """Let go of queues that no one sends to any more."""
        for url in set(self._queues) - urls:
            self._queues.pop(url, None)
            self._circuits.pop(url, None)

    async def _send_chunk(
        self,
        left: list[BusCopy[T]],
        settled: Callable[[BusCopy[T], SendOutcome], None],
        gate: SendGate[T] | None,
    ) -> None:
        url = left[0].url
        circuit = self._circuits.setdefault(url, CircuitBreaker())
        for delay in (*DELAYS, None):
            if not circuit.allows_attempt(self._clock.monotonic()):
                break
            if gate is not None:
                await gate.admit([copy.tag for copy in left])
            left = await self._send_once(url, left, circuit, settled)
            if gate is not None and left:
                gate.withdraw([copy.tag for copy in left])
            if not left or delay is None:
                break
            await self._clock.sleep(delay * self._chance.uniform(1.0, 1.25))
        for copy in left:
            settled(copy, SendOutcome.FAILED)

    async def _send_once(
        self,
        url: str,
        copies: list[BusCopy[T]],
        circuit: CircuitBreaker,
        settled: Callable[[BusCopy[T], SendOutcome], None],
    ) -> list[BusCopy[T]]:
        """One call; returns the copies worth another."""
        queue = self._queues.get(url)
        if queue is None:
            queue = self._queues[url] = asyncio.Semaphore(PER_QUEUE)
        entries = [copy.build_entry(index) for index, copy in enumerate(copies)]
        try:
            async with queue, self._parallel:
                answer = await self._get_aws(copies[0]).call(
                    "sqs", "SendMessageBatch", {"QueueUrl": url, "Entries": entries}, retried=False
                )
        except (AwsAbsent, AwsDenied) as error:
            self._settle_refused(copies, error.code, settled)
            return []
        except AwsInvalid as error:
            return await self._one_by_one(url, copies, circuit, settled, error.code)
        except AwsError as error:
            self._record_trouble(circuit, copies, error.code)
            return copies
        except Exception as error:  # noqa: BLE001 (a body that cannot be written must not stop its neighbours)
            note_contained(error)
            return await self._one_by_one(url, copies, circuit, settled, type(error).__name__)
        self._counts.observe("fill_ratio", len(copies) / ENTRIES)
        return self._settle_answer(answer, copies, circuit, settled)

    async def _one_by_one(
        self,
        url: str,
        copies: list[BusCopy[T]],
        circuit: CircuitBreaker,
        settled: Callable[[BusCopy[T], SendOutcome], None],
        code: str,
    ) -> list[BusCopy[T]]:
        """A call that cannot be right: only the copies that are wrong by themselves are refused."""
        if len(copies) == 1:
            self._settle_refused(copies, code, settled)
            return []
        left: list[BusCopy[T]] = []
        for copy in copies:
            left += await self._send_once(url, [copy], circuit, settled)
        return left

    def _settle_refused(
        self, copies: list[BusCopy[T]], code: str, settled: Callable[[BusCopy[T], SendOutcome], None]
    ) -> None:
        self._report_refusal(copies, code)
        for copy in copies:
            settled(copy, SendOutcome.REFUSED)

    def _settle_answer(
        self,
        answer: Mapping[str, Any],
        copies: list[BusCopy[T]],
        circuit: CircuitBreaker,
        settled: Callable[[BusCopy[T], SendOutcome], None],
    ) -> list[BusCopy[T]]:
        """What the answer says of each entry. One it says nothing of was not confirmed, so it goes again."""
        confirmed = {each["Id"] for each in answer.get("Successful", ())}
        failures = {each["Id"]: each for each in answer.get("Failed", ())}
        left = []
        for index, copy in enumerate(copies):
            failure = failures.get(str(index))
            if str(index) in confirmed:
                settled(copy, SendOutcome.SENT)
            elif failure is not None and failure.get("SenderFault"):
                self._report_refusal([copy], str(failure.get("Code", "Unknown")))
                settled(copy, SendOutcome.REFUSED)
            else:
                left.append(copy)
                self._counts.add("send_failures_total", 1, str((failure or {}).get("Code", "Unconfirmed")))
        if confirmed:
            self._close_circuit(circuit, copies[0])
        elif left:
            self._open_circuit(circuit, copies[0])
        return left

    def _record_trouble(self, circuit: CircuitBreaker, copies: list[BusCopy[T]], code: str) -> None:
        self._counts.add("send_failures_total", len(copies), code)
        self._open_circuit(circuit, copies[0])

    def _open_circuit(self, circuit: CircuitBreaker, copy: BusCopy[T]) -> None:
        if circuit.record_failure(self._clock.monotonic()):
            self._counts.set("circuit_open", 1, copy.attributes.cluster)
            log.warning("nothing is sent for a while", cluster=copy.attributes.cluster, queue=copy.url)

    def _close_circuit(self, circuit: CircuitBreaker, copy: BusCopy[T]) -> None:
        if circuit.failures >= TRIPS_AFTER:
            self._counts.set("circuit_open", 0, copy.attributes.cluster)
        circuit.failures = 0

    def _report_refusal(self, copies: list[BusCopy[T]], code: str) -> None:
        self._counts.add("send_failures_total", len(copies), code)
        log.error(
            "a queue refuses messages", cluster=copies[0].attributes.cluster, queue=copies[0].url, code=code
        )

    def _get_aws(self, copy: BusCopy[T]) -> Aws:
        """The door to a queue: its own region's, by the destination's role if it has one."""
        to = copy.destination
        if to is None or (not to.role_arn and to.cluster.region == self._aws.region):
            return self._aws
        key = (to.cluster.region, to.role_arn)
        if key not in self._doors:
            self._doors[key] = self._aws.scope_to(region=key[0], role=key[1], external_id=to.external_id)
        return self._doors[key]


def split_chunks(copies: Sequence[BusCopy[T]]) -> Iterator[list[BusCopy[T]]]:
    """Batches that SQS takes: ten entries, and no more bytes than it allows."""
    batch: list[BusCopy[T]] = []
    room = BYTES
    for copy in copies:
        size = ATTRIBUTES + 4 * len(copy.body)
        if size * ENTRIES > BYTES:  # only then does the exact size matter
            size = ATTRIBUTES + len(copy.body.encode("utf-8", "surrogatepass"))
        if batch and (len(batch) == ENTRIES or size > room):
            yield batch
            batch, room = [], BYTES
        batch.append(copy)
        room -= size
    if batch:
        yield batch
