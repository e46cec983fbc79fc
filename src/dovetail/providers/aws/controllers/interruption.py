"""interruption: what AWS says about its machines, read from a queue and acted upon.

A message is crossed off once it was acted upon, and not before: whoever is killed in between finds it again.
One that cannot be read is left alone, so that the queue's redrive policy puts it where people look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dovetail.aws.eventbridge import EventMessage, MalformedMessage, MessageKind, parse_message
from dovetail.controllers.base import (
    Backoff,
    PeriodicController,
    RecentKeys,
    Result,
    mark_idle,
    requeue_after,
    retry_refusals,
)
from dovetail.errors import Gone, Retry, note_contained
from dovetail.logs import get_logger
from dovetail.metrics import counter, gauge, histogram
from dovetail.ports import Clock
from dovetail.providers.aws.interruption import InterruptionHandler, InterruptionNotice
from dovetail.providers.aws.interruption_queue import InterruptionQueueReader, QueueMessage

__all__ = ["InterruptionController"]

RECEIVED = counter(
    "karpenter_interruption_received_messages_total", "Messages read, by what they mean.", ("message_type",)
)
DELETED = counter("karpenter_interruption_deleted_messages_total", "Messages that were deleted.")
WAITED = histogram(
    "karpenter_interruption_message_queue_duration_seconds", "From an event to its being acted upon."
)
MALFORMED = counter(
    "dovetail_interruption_malformed_messages_total",
    "Messages that could not be read, and were left for the dead-letter queue.",
)
FAILED = counter(
    "dovetail_interruption_failed_messages_total",
    "Messages that could not be acted upon, and will come again.",
)
MISROUTED = gauge(
    "dovetail_interruption_queue_misrouted",
    "1 while the queue has told of nobody's instances but strangers' for ten minutes.",
)

AT_ONCE: Final = timedelta(milliseconds=1)
# A queue that says it is empty without having waited is asked again no sooner than this.
IDLE: Final = 1.0
SPOT_NOTICE: Final = timedelta(minutes=2)
TERMINATION_TIME: Final = "instance-termination-time"
MISROUTED_AFTER: Final = 600.0
# As long as a message that nobody can read may come back.
COMPLAINED_FOR: Final = 3600.0
PUT_BACK_FOR: Final = 300.0
EARLIEST_YEAR, LATEST_YEAR = 1970, 9000

log = get_logger()


@dataclass(frozen=True, slots=True)
class _ReadMessage:
    """A letter, what it says, and what that means for instances; made only of letters that can be read."""

    letter: QueueMessage
    message: EventMessage
    notices: tuple[InterruptionNotice, ...]

    @staticmethod
    def from_letter(letter: QueueMessage) -> _ReadMessage:
        """Malformed when the letter cannot be taken at its word."""
        message = parse_message(letter.body)
        if message.kind == MessageKind.NO_OP:
            return _ReadMessage(letter, message, ())
        end = _find_end_time(message, letter.sent)
        told = (InterruptionNotice(message.kind, each, end) for each in dict.fromkeys(message.instances))
        return _ReadMessage(letter, message, tuple(told))


class InterruptionController(PeriodicController):
    """Reads on and on. A hundred messages make one pass: read, acted upon side by side, deleted by tens."""

    name = "interruption"
    backoff = Backoff(first=0.1, last=10.0)

    def __init__(
        self, mailbox: InterruptionQueueReader, interruptions: InterruptionHandler, clock: Clock
    ) -> None:
        self._mailbox = mailbox
        self._interruptions = interruptions
        self._clock = clock
        self._complained = RecentKeys(COMPLAINED_FOR)
        self._put_back = RecentKeys(PUT_BACK_FOR)
        self._strangers_since: float | None = None
        self._misrouted = False

    async def reconcile(self, key: str) -> Result:
        started = self._clock.monotonic()
        with retry_refusals():
            try:
                with mark_idle():
                    messages = await self._mailbox.receive_messages()
            except Gone as error:
                raise Retry(f"reading the interruption queue: {error}") from error
            await self._process_messages(messages)
        quick = self._clock.monotonic() - started < IDLE
        return requeue_after(IDLE if quick and not messages else AT_ONCE)

    async def _process_messages(self, messages: Sequence[QueueMessage]) -> None:
        read = [found for message in messages if (found := self._read_message(message)) is not None]
        early = self._find_early(read)
        failed = await self._handle_notices(read)
        done = [
            each for each in read if each.letter.id not in early and failed.keys().isdisjoint(each.notices)
        ]
        self._observe_delays(done)
        if done:
            DELETED.inc(await self._mailbox.delete_messages([each.letter for each in done]))
        if failed:
            FAILED.inc(len(read) - len(done) - len(early))
            if not done:
                # Nothing can be done at all just now: whatever is read would only wear out.
                raise next(iter(failed.values()))
            for notice, error in failed.items():
                log.error(
                    "acting upon an interruption failed",
                    messageKind=notice.kind,
                    instance=notice.instance,
                    error=error,
                )

    def _read_message(self, message: QueueMessage) -> _ReadMessage | None:
        try:
            read = _ReadMessage.from_letter(message)
        except (MalformedMessage, ArithmeticError, LookupError, TypeError, ValueError) as error:
            now = self._clock.monotonic()
            if not self._complained.seconds_left(message.id, now):
                MALFORMED.inc()
                log.error("a message is left for the dead-letter queue", message_id=message.id, error=error)
            self._complained.add(message.id, now)
            return None
        RECEIVED.labels(read.message.kind).inc()
        return read

    def _find_early(self, read: Sequence[_ReadMessage]) -> set[str]:
        """Letters about an instance that may yet turn out to be ours; they are read once more, a bit later.

        While a launch is being written down, the instance it made is a stranger's by all we know.
        """
        if not self._interruptions.launching:
            return set()
        now, found = self._clock.monotonic(), set()
        for each in read:
            ours = any(self._interruptions.find_claims(notice.instance) for notice in each.notices)
            if each.notices and not ours and not self._put_back.seconds_left(each.letter.id, now):
                self._put_back.add(each.letter.id, now)
                found.add(each.letter.id)
        return found

    async def _handle_notices(self, read: Iterable[_ReadMessage]) -> dict[InterruptionNotice, Exception]:
        """Everything the letters tell, each thing once; what could not be done, and why."""
        told = dict.fromkeys(notice for each in read for notice in each.notices)
        ours: dict[str, list[InterruptionNotice]] = {}
        for notice in told:
            if self._interruptions.find_claims(notice.instance):
                ours.setdefault(notice.instance, []).append(notice)
        self._check_routing(ours=len(ours), strangers=len(told) - sum(map(len, ours.values())))
        failed: dict[InterruptionNotice, Exception] = {}
        await asyncio.gather(*(self._handle_in_turn(notices, failed) for notices in ours.values()))
        return failed

    async def _handle_in_turn(
        self, notices: Iterable[InterruptionNotice], failed: dict[InterruptionNotice, Exception]
    ) -> None:
        """What happens to one instance, one thing after the other: the second sees what the first did."""
        for notice in notices:
            try:
                await self._interruptions.handle_notice(notice)
            except Exception as error:  # noqa: BLE001 (its message stays; those of others must not wait for it)
                note_contained(error)
                failed[notice] = error

    def _observe_delays(self, done: Iterable[_ReadMessage]) -> None:
        now = self._clock.now()
        for each in done:
            if each.message.kind != MessageKind.NO_OP and each.message.time is not None:
                WAITED.observe(max(0.0, (now - each.message.time).total_seconds()))

    def _check_routing(self, ours: int, strangers: int) -> None:
        """Say so when the queue seems to be another cluster's."""
        now = self._clock.monotonic()
        if ours:
            self._strangers_since = None
            self._misrouted = False
        elif strangers and self._strangers_since is None:
            self._strangers_since = now
        elif strangers and not self._misrouted and now - (self._strangers_since or now) > MISROUTED_AFTER:
            self._misrouted = True
            log.warning(
                "MisroutedQueue: for ten minutes the interruption queue has told of other clusters' "
                "instances only; unless all clusters of the account share their rules, check its router"
            )
        MISROUTED.set(self._misrouted)


def _find_end_time(message: EventMessage, sent: datetime | None) -> datetime | None:
    """When AWS takes the machine; None where nothing is said about it."""
    if message.kind == MessageKind.SPOT_INTERRUPTED:
        told = _check_year(message.time) or sent
        return told + SPOT_NOTICE if told is not None else None
    if message.kind == MessageKind.CAPACITY_RESERVATION_INTERRUPTED:
        text = message.detail.get(TERMINATION_TIME)
        try:
            end = datetime.fromisoformat(text) if isinstance(text, str) else None
        except ValueError:
            return None
        return _check_year(end) if end is not None and end.tzinfo is not None else None
    return None


def _check_year(moment: datetime | None) -> datetime | None:
    """A time that can be reckoned with; Malformed where nobody would take the message at its word."""
    if moment is not None and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        raise MalformedMessage(f"it speaks of the year {moment.year}")
    return moment
