"""Messages about shifts from an SQS queue: read, kept in the cluster, and only then crossed off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec
from dovetail.aws import Aws
from dovetail.aws.sqs import SqsQueue
from dovetail.errors import AlreadyExists, BadInput, DovetailError, Retry, note_contained
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.zonal import shift_metrics
from dovetail.zonal.model.events import ShiftSignal, parse_signal
from dovetail.zonal.model.records import KIND, SIGNAL, START
from dovetail.zonal.store.cluster_store import ShiftStore

__all__ = ["ShiftQueueReader", "SignalStore"]


class SignalStore:
    """Puts signals where the leader hears of them. `ours` tells whose cluster an ARN is."""

    def __init__(
        self,
        store: ShiftStore | None,
        *,
        arn: Callable[[], str],
        observer: bool = False,
        woken: Callable[[], None],
    ) -> None:
        self.store, self._arn, self.observer, self._woken = store, arn, observer, woken
        self._seen: set[str] = set()

    def is_foreign(self, signal: ShiftSignal) -> bool:
        """About another cluster, or about the region while nobody observes it."""
        if signal.cluster is None:
            return not self.observer
        ours = self._arn()
        return bool(ours) and signal.cluster != ours and not self.observer

    async def put_signal(self, signal: ShiftSignal) -> str:
        """Keep a signal; what became of it: stored, duplicate, foreign or unknown."""
        result = await self._store_signal(signal)
        shift_metrics.SIGNALS.labels(signal.source, signal.kind or "unknown", result).inc()
        return result

    async def _store_signal(self, signal: ShiftSignal) -> str:
        if signal.kind is None:
            return "unknown"
        if self.is_foreign(signal):
            return "foreign"
        if signal.key in self._seen:
            return "duplicate"
        result = "stored"
        if self.store is not None:
            try:
                await self.store.create(build_signal_object(signal))
            except AlreadyExists:
                result = "duplicate"
        self._seen.add(signal.key)
        if result == "stored":
            self._woken()
        return result


def build_signal_object(signal: ShiftSignal) -> ZoneShift:
    return ZoneShift(
        metadata=ObjectMeta(
            name=f"signal-{signal.key[:16]}",
            annotations={
                START: "true" if signal.starts else "false",
                KIND: signal.kind or "",
            },
        ),
        spec=ZoneShiftSpec(
            zone_id=signal.zone_id,
            kind=SIGNAL,
            shift_id=signal.key,
            cluster_arn=signal.cluster or "",
            comment=signal.detail_type[:128],
        ),
    )


log = get_logger()
HIDDEN = 60
PAUSE, LONGEST_PAUSE = 1.0, 60.0


class ShiftQueueReader:
    """Reads one queue for as long as it runs. Every replica does: a lost zone loses no message."""

    def __init__(self, aws: Aws, queue: str, store: SignalStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._queue = SqsQueue(aws, name=queue, receives={"VisibilityTimeout": HIDDEN})

    async def run(self) -> None:
        pause = PAUSE
        while True:
            try:
                await self.read_batch()
                pause = PAUSE
            except DovetailError as error:
                log.warning("cannot read a queue", queue=self._queue.name, error=error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def read_batch(self) -> int:
        """Take what waits; how many messages were dealt with."""
        found = await self._queue.receive()
        left = [(str(each.get("Body") or ""), str(each["ReceiptHandle"])) for each in found]
        hiding, done, failed = asyncio.ensure_future(self._extend_visibility(left)), 0, list[Exception]()
        try:
            while left:
                try:
                    done += await self._handle_message(*left[0])
                except Exception as error:  # noqa: BLE001 (this message comes again; the others need not wait)
                    failed.append(error)
                left.pop(0)
        finally:
            hiding.cancel()
        self._report_failures(failed, done)
        return done

    def _report_failures(self, failed: Sequence[Exception], done: int) -> None:
        """Say what could not be kept; where nothing could, there is no use in reading on at once."""
        if failed and not done and all(isinstance(each, Retry) for each in failed):
            raise failed[0]
        for error in failed:
            note_contained(error)
            shift_metrics.SIGNALS.labels("sqs", "unknown", "failed").inc()
            log.error("a message could not be kept, and comes again", error=error)

    async def _extend_visibility(self, left: Sequence[tuple[str, str]]) -> None:
        """Keep from others what is still worked on, however slow the store is."""
        while left:
            await self._clock.sleep(HIDDEN / 2)
            for answer in await self._queue.hide([receipt for _, receipt in left], HIDDEN):
                if answer.error is not None or answer.codes:
                    log.warning("a message may come twice", error=answer.error or ", ".join(answer.codes))

    async def _handle_message(self, body: str, receipt: str) -> int:
        try:
            signal = parse_signal(body, "sqs")
        except BadInput as error:
            # Not crossed off: after a few more tries the queue itself puts it aside for people to see.
            log.warning("a message makes no sense", error=error)
            shift_metrics.SIGNALS.labels("sqs", "unknown", "unparsable").inc()
            return 0
        await self._store.put_signal(signal)
        for answer in await self._queue.delete([receipt]):
            answer.raise_refusal()
        return 1
