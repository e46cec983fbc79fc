"""The Lambda shell: `dovetail.bus.handler.lambda_handler`, with `ReportBatchItemFailures`.

Configuration comes from `DOVETAIL_BUS_*`. The first call in a container finds the queues and destinations;
the rest reuse them, their cache and their connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from dovetail.aws import AwsError
from dovetail.bus.config import BusConfig, read_config
from dovetail.bus.events import INVOKED, Lane, ReceivedMessage
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.ports import EmfMetrics, RouterContext, WallClock
from dovetail.bus.queues import SourceQueue, find_queue_url, parse_record
from dovetail.bus.sources import DestinationSources, report_old_names
from dovetail.errors import Misconfigured
from dovetail.logs import get_logger, write_json_lines

__all__ = ["RouterFunction", "lambda_handler"]

log = get_logger("bus")

# A warning may wait so long for EC2 inside one call, then it is broadcast.
PATIENCE = 3.0
MARGIN, PART = 3.0, 0.25
AGAIN = 2
REMEMBERED = 20_000
DIRECT, UNREADABLE = "direct", "a record that is no message"


class RouterFunction:
    """One container: its pipeline, and what each call does with it."""

    def __init__(self, context: RouterContext) -> None:
        self._context = context
        self._config, self._aws, self._clock = context.config, context.aws, context.clock
        self._sources = DestinationSources(context.config, context.aws, counts=context.counts)
        self._pipeline: Pipeline | None = None
        self._read_at = 0.0
        self._urls: dict[str, str] = {}

    async def handle_call(self, event: Any, seconds: float) -> dict[str, Any]:
        """Route everything in a call within so many seconds; returns the messages that must come again."""
        pipeline = await self._get_pipeline()
        batch, direct = _read_messages(event, self._clock.monotonic())
        settle = _CallResults(batch)
        margin = min(MARGIN, seconds * PART)
        lane = _find_lane(batch, self._config)
        work = asyncio.ensure_future(pipeline.process_batch(lane, batch, settle))
        _, late = await asyncio.wait({work}, timeout=seconds - margin)
        if late:
            log.warning("no time is left for the rest of the batch", messages=len(batch))
            work.cancel()
        (met,) = await asyncio.gather(work, return_exceptions=True)
        if met is not None and not late:
            log.error("a batch met a bug; what is not done comes again", error=repr(met))
        await self._shorten_visibility(settle)
        # A message is done or it comes again: there is nothing between, whatever became of the batch.
        failed = settle.left
        if direct and failed:
            raise RuntimeError(f"{len(failed)} events could not be routed; they must come again")
        return {"batchItemFailures": [{"itemIdentifier": each.id} for each in failed]}

    async def _get_pipeline(self) -> Pipeline:
        if self._pipeline is None:
            park = await find_queue_url(self._aws, self._config["queues.park"])
            pipeline = Pipeline(
                self._context,
                park,
                patience=PATIENCE,
                named=self._sources.find_by_name if self._config["registry.byName"] else None,
            )
            report_old_names(self._config)
            await self._sources.check_writers()
            await self._reload_destinations(pipeline)
            self._pipeline = pipeline
        elif self._clock.monotonic() - self._read_at > self._config["registry.reload"]:
            await self._reload_destinations(self._pipeline)
        return self._pipeline

    async def _reload_destinations(self, pipeline: Pipeline) -> None:
        pipeline.reload_destinations(await self._sources.read_destinations(), self._sources.rules)
        self._read_at = self._clock.monotonic()

    async def _shorten_visibility(self, settle: _CallResults) -> None:
        """A warning that failed must not wait out its visibility: that would outlive the notice."""
        by_queue: dict[str, list[ReceivedMessage]] = {}
        for message, urgent in settle.failures:
            if urgent and message.queue:
                by_queue.setdefault(message.queue, []).append(message)
        for name, messages in by_queue.items():
            try:
                if name not in self._urls:
                    self._urls[name] = await find_queue_url(self._aws, name)
            except (AwsError, Misconfigured) as error:
                log.warning("messages come again later than they could", queue=name, error=error)
                continue
            queue = SourceQueue(self._aws, self._urls[name], clock=self._clock)
            await queue.hide(messages, AGAIN)


class _CallResults:
    """What became of the messages of one invocation."""

    undeleted = None  # Lambda deletes when the call ends, so the batch is the bound

    def __init__(self, batch: Sequence[ReceivedMessage]) -> None:
        self._undone = {message.id: message for message in batch}
        self.failures: list[tuple[ReceivedMessage, bool]] = []

    @property
    def left(self) -> list[ReceivedMessage]:
        """Those that were not done."""
        return list(self._undone.values())

    def settle_done(self, message: ReceivedMessage) -> None:
        """Lambda deletes it once we return."""
        self._undone.pop(message.id, None)

    def settle_failed(self, message: ReceivedMessage, urgent: bool) -> None:
        self.failures.append((message, urgent))


def _find_lane(batch: Sequence[ReceivedMessage], config: BusConfig) -> str:
    """A mapping reads one queue, so a batch is of one lane; events that come directly may be warnings."""
    bulk = bool(batch) and batch[0].queue == config["queues.bulk"]
    return Lane.BULK if bulk else Lane.URGENT


def _read_messages(event: Any, now: float) -> tuple[list[ReceivedMessage], bool]:
    """An SQS batch, an event, a notification, or a list of these; and whether it came without a queue."""
    if isinstance(event, Mapping) and isinstance(event.get("Records"), list):
        records = event["Records"]
        return [_read_record(each, index, now) for index, each in enumerate(records)], not _are_queued(
            records
        )
    events = event if isinstance(event, list) else [event]
    if any(isinstance(each, Mapping) and "Records" in each for each in events):
        parts = [_read_messages(each, now) for each in events]
        return [message for part, _ in parts for message in part], any(direct for _, direct in parts)
    return [
        ReceivedMessage(f"{DIRECT}-{index}", _render_event(each), at=now, sender=INVOKED)
        for index, each in enumerate(events)
    ], True


def _are_queued(records: Sequence[Any]) -> bool:
    return all(isinstance(each, Mapping) and "messageId" in each for each in records)


def _read_record(record: Any, index: int, now: float) -> ReceivedMessage:
    if not isinstance(record, Mapping) or "messageId" not in record:
        inner = record.get("Sns", {}).get("Message") if isinstance(record, Mapping) else None
        body = inner if isinstance(inner, str) else _render_event(record)
        return ReceivedMessage(f"{DIRECT}-{index}", body, at=now, sender=INVOKED)
    try:
        return parse_record(record, now)
    except (AttributeError, TypeError, ValueError):
        # Left for the dead letters like every message that cannot be read.
        return ReceivedMessage(str(record["messageId"]), UNREADABLE, at=now)


def _render_event(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event, separators=(",", ":"), ensure_ascii=False)


class _Container:
    """What a container keeps between calls."""

    loop: asyncio.AbstractEventLoop | None = None
    function: RouterFunction | None = None
    counts: EmfMetrics | None = None


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """What Lambda calls."""
    kept, clock = _Container, WallClock()
    if kept.function is None or kept.loop is None or kept.counts is None:
        from dovetail.aws.slim import SlimAws

        defaults = {"dedupe.size": REMEMBERED}
        config = read_config(None, os.environ, where="the environment", defaults=defaults)
        write_json_lines(print, os.environ.get("DOVETAIL_BUS_LOG_LEVEL", "info"))
        kept.loop = asyncio.new_event_loop()
        kept.counts = EmfMetrics(print, config["maxClusterLabels"])
        kept.function = RouterFunction(
            RouterContext(config, SlimAws(config["region"]), clock, kept.counts, Random())
        )
    try:
        seconds = context.get_remaining_time_in_millis() / 1000
        return kept.loop.run_until_complete(kept.function.handle_call(event, seconds))
    finally:
        kept.counts.flush(clock.now().timestamp())
        sys.stdout.flush()
