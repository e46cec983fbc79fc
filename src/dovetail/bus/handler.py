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

from dovetail.aws import Aws, AwsError
from dovetail.bus.clocks import Clock, JsonLog, Log, WallClock
from dovetail.bus.config import Config, read_config
from dovetail.bus.counts import Counts, Emf
from dovetail.bus.events import Lane, Received
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.queues import Queue, queue_url, received_record
from dovetail.bus.senders import INVOKED
from dovetail.bus.sources import Sources
from dovetail.errors import Misconfigured

__all__ = ["Function", "lambda_handler"]

# A warning may wait so long for EC2 inside one call, then it is broadcast.
PATIENCE = 3.0
MARGIN, PART = 3.0, 0.25
AGAIN = 2
REMEMBERED = 20_000
DIRECT, UNREADABLE = "direct", "a record that is no message"


class Function:
    """One container: its pipeline, and what each call does with it."""

    def __init__(
        self, config: Config, aws: Aws, *, clock: Clock, counts: Counts, log: Log, chance: Random
    ) -> None:
        self._config, self._aws = config, aws
        self._clock, self._counts, self._log, self._chance = clock, counts, log, chance
        self._sources = Sources(config, aws, counts=counts, log=log)
        self._pipeline: Pipeline | None = None
        self._read_at = 0.0
        self._urls: dict[str, str] = {}

    async def handle(self, event: Any, seconds: float) -> dict[str, Any]:
        """Route everything in a call within so many seconds; returns the messages that must come again."""
        pipeline = await self._ready()
        batch, direct = _messages(event, self._clock.monotonic())
        settle = _Verdicts(batch)
        margin = min(MARGIN, seconds * PART)
        lane = _lane(batch, self._config)
        work = asyncio.ensure_future(pipeline.process(lane, batch, settle))
        _, late = await asyncio.wait({work}, timeout=seconds - margin)
        if late:
            self._log.warning("no time is left for the rest of the batch", messages=len(batch))
            work.cancel()
        (met,) = await asyncio.gather(work, return_exceptions=True)
        if met is not None and not late:
            self._log.error("a batch met a bug; what is not done comes again", error=repr(met))
        await self._soon(settle)
        # A message is done or it comes again: there is nothing between, whatever became of the batch.
        failed = settle.left
        if direct and failed:
            raise RuntimeError(f"{len(failed)} events could not be routed; they must come again")
        return {"batchItemFailures": [{"itemIdentifier": each.id} for each in failed]}

    async def _ready(self) -> Pipeline:
        if self._pipeline is None:
            park = await queue_url(self._aws, self._config["queues.park"])
            pipeline = Pipeline(
                self._config,
                self._aws,
                park,
                clock=self._clock,
                counts=self._counts,
                log=self._log,
                chance=self._chance,
                patience=PATIENCE,
                named=self._sources.by_name if self._config["registry.byName"] else None,
            )
            await self._sources.check_writers()
            await self._reload(pipeline)
            self._pipeline = pipeline
        elif self._clock.monotonic() - self._read_at > self._config["registry.reload"]:
            await self._reload(self._pipeline)
        return self._pipeline

    async def _reload(self, pipeline: Pipeline) -> None:
        pipeline.reload(await self._sources.read(), self._sources.rules)
        self._read_at = self._clock.monotonic()

    async def _soon(self, settle: _Verdicts) -> None:
        """A warning that failed must not wait out its visibility: that would outlive the notice."""
        by_queue: dict[str, list[Received]] = {}
        for message, urgent in settle.failures:
            if urgent and message.queue:
                by_queue.setdefault(message.queue, []).append(message)
        for name, messages in by_queue.items():
            try:
                if name not in self._urls:
                    self._urls[name] = await queue_url(self._aws, name)
            except (AwsError, Misconfigured) as error:
                self._log.warning("messages come again later than they could", queue=name, error=error)
                continue
            queue = Queue(self._aws, self._urls[name], clock=self._clock, log=self._log)
            await queue.hide(messages, AGAIN)


class _Verdicts:
    """What became of the messages of one invocation."""

    undeleted = None  # Lambda deletes when the call ends, so the batch is the bound

    def __init__(self, batch: Sequence[Received]) -> None:
        self._undone = {message.id: message for message in batch}
        self.failures: list[tuple[Received, bool]] = []

    @property
    def left(self) -> list[Received]:
        """Those that were not done."""
        return list(self._undone.values())

    def done(self, message: Received) -> None:
        """Lambda deletes it once we return."""
        self._undone.pop(message.id, None)

    def failed(self, message: Received, urgent: bool) -> None:
        self.failures.append((message, urgent))


def _lane(batch: Sequence[Received], config: Config) -> str:
    """A mapping reads one queue, so a batch is of one lane; events that come directly may be warnings."""
    bulk = bool(batch) and batch[0].queue == config["queues.bulk"]
    return Lane.BULK if bulk else Lane.URGENT


def _messages(event: Any, now: float) -> tuple[list[Received], bool]:
    """An SQS batch, an event, a notification, or a list of these; and whether it came without a queue."""
    if isinstance(event, Mapping) and isinstance(event.get("Records"), list):
        records = event["Records"]
        return [_record(each, index, now) for index, each in enumerate(records)], not _queued(records)
    events = event if isinstance(event, list) else [event]
    if any(isinstance(each, Mapping) and "Records" in each for each in events):
        parts = [_messages(each, now) for each in events]
        return [message for part, _ in parts for message in part], any(direct for _, direct in parts)
    return [
        Received(f"{DIRECT}-{index}", _text(each), at=now, sender=INVOKED)
        for index, each in enumerate(events)
    ], True


def _queued(records: Sequence[Any]) -> bool:
    return all(isinstance(each, Mapping) and "messageId" in each for each in records)


def _record(record: Any, index: int, now: float) -> Received:
    if not isinstance(record, Mapping) or "messageId" not in record:
        inner = record.get("Sns", {}).get("Message") if isinstance(record, Mapping) else None
        body = inner if isinstance(inner, str) else _text(record)
        return Received(f"{DIRECT}-{index}", body, at=now, sender=INVOKED)
    try:
        return received_record(record, now)
    except (AttributeError, TypeError, ValueError):
        # Left for the dead letters like every message that cannot be read.
        return Received(str(record["messageId"]), UNREADABLE, at=now)


def _text(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event, separators=(",", ":"), ensure_ascii=False)


class _Container:
    """What a container keeps between calls."""

    loop: asyncio.AbstractEventLoop | None = None
    function: Function | None = None
    counts: Emf | None = None


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """What Lambda calls."""
    kept, clock = _Container, WallClock()
    if kept.function is None or kept.loop is None or kept.counts is None:
        from dovetail.aws.slim import Slim

        environment = dict(os.environ)
        environment.setdefault("DOVETAIL_BUS_DEDUPE_SIZE", str(REMEMBERED))
        config = read_config(None, environment, where="the environment")
        kept.loop = asyncio.new_event_loop()
        kept.counts = Emf(print, config["maxClusterLabels"])
        kept.function = Function(
            config,
            Slim(config["region"]),
            clock=clock,
            counts=kept.counts,
            log=JsonLog(print, os.environ.get("DOVETAIL_BUS_LOG_LEVEL", "info")),
            chance=Random(),
        )
    try:
        seconds = context.get_remaining_time_in_millis() / 1000
        return kept.loop.run_until_complete(kept.function.handle(event, seconds))
    finally:
        kept.counts.flush(clock.now().timestamp())
        sys.stdout.flush()
