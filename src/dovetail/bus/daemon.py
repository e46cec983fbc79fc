"""The daemon shell: long polls, batches, acknowledgements, and an orderly end.

receivers ─► buffer ─► batches ─► pipeline ─► acknowledgements
             (one such line for warnings, one for the rest; they share nothing but the pipeline)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from dovetail.aws import Aws, AwsError
from dovetail.bus.canary import send_canary
from dovetail.bus.clocks import Clock, Log
from dovetail.bus.config import Config
from dovetail.bus.counts import Counts
from dovetail.bus.events import Lane, Place
from dovetail.bus.line import Line
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.queues import Queue, queue_url
from dovetail.bus.sources import Sources

__all__ = ["Daemon"]

SHUTDOWN = 25.0
AGAIN = 1.0
REFRESH, REFRESHED = 600.0, 5_000


class Daemon:
    """A long-running router."""

    def __init__(
        self,
        config: Config,
        aws: Aws,
        *,
        clock: Clock,
        counts: Counts,
        log: Log,
        chance: Random,
        reread: Callable[[], Config] | None = None,
    ) -> None:
        self._config, self._aws = config, aws
        self._clock, self._counts, self._log, self._chance = clock, counts, log, chance
        self._sources = Sources(config, aws, counts=counts, log=log, reread=reread)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: list[Line] = []
        self._stopping = False
        self.ready = False
        self.pipeline: Pipeline | None = None

    async def prepare(self) -> None:
        """Find queues and destinations; Misconfigured says what is missing."""
        urls = {
            name: await queue_url(self._aws, self._config[f"queues.{name}"])
            for name in ("urgent", "bulk", "park")
        }
        self.pipeline = Pipeline(
            self._config,
            self._aws,
            urls["park"],
            clock=self._clock,
            counts=self._counts,
            log=self._log,
            chance=self._chance,
            named=self._sources.by_name if self._config["registry.byName"] else None,
        )
        await self._sources.check_writers()
        self.pipeline.reload(await self._sources.read(), self._sources.rules)
        for lane in Lane:
            queue = Queue(self._aws, urls[lane], clock=self._clock, log=self._log)
            visibility = await queue.visibility()
            self._lines.append(
                Line(lane, queue, self.pipeline, self._config, visibility, clock=self._clock, log=self._log)
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Route until told to stop, then finish what is under way."""
        if self.pipeline is None:
            await self.prepare()
        assert self.pipeline is not None
        for line in self._lines:
            for _ in range(self._config[f"receivers.{line.lane}"]):
                self._start(line.receive)
            for work in (line.collect, line.acknowledge, line.keep, line.adapt):
                self._start(work)
        for loop in (self._reload, self._prefetch, self._refresh, self._canary):
            self._start(loop)
        self.ready = True
        self._log.info("the router is ready", destinations=len(self.pipeline.registry))
        await stop.wait()
        self.ready = False
        await self._end()

    async def _end(self) -> None:
        """Stop receiving, finish what is under way, hand the rest back at once."""
        assert self.pipeline is not None
        until = self._clock.monotonic() + SHUTDOWN
        self._stopping = True
        await asyncio.gather(*(line.end(until) for line in self._lines))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pipeline.close()
        self._log.info("the router has stopped")

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part for as long as the router runs; one that meets a bug says so and starts again."""
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() or self._stopping:
                return
            if task.exception() is not None:
                self._log.error(
                    "a part of the router met a bug", part=work.__name__, error=repr(task.exception())
                )
                self._start(lambda: self._later(work))

        task.add_done_callback(ended)

    async def _later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._clock.sleep(AGAIN)
        await work()

    async def _reload(self) -> None:
        assert self.pipeline is not None
        while True:
            await self._clock.sleep(self._config["registry.reload"])
            registry = await self._sources.read()
            if registry != self.pipeline.registry:
                self._log.info("destinations changed", destinations=len(registry))
            # Also where nothing has changed: who had no queue of its name may have one now.
            self.pipeline.reload(registry, self._sources.rules)

    async def _prefetch(self) -> None:
        """Know every cluster's instances before they are spoken of."""
        assert self.pipeline is not None
        while self._config["ec2.prefetch"]:
            for place in self._places():
                try:
                    count = await self.pipeline.resolver.prefetch(place)
                except AwsError as error:
                    self._log.warning("reading all instances failed", region=place.region, error=error)
                else:
                    self._log.info("instances read", account=place.account, region=place.region, count=count)
            await self._clock.sleep(self._config["ec2.prefetch"])

    async def _refresh(self) -> None:
        """Without prefetching, look again at what was learnt long ago."""
        assert self.pipeline is not None
        while not self._config["ec2.prefetch"]:
            await self._clock.sleep(REFRESH)
            now = self._clock.now().timestamp()
            stale: dict[Place, list[str]] = {}
            for instance, place in self.pipeline.owners.stale(now, REFRESHED):
                stale.setdefault(place, []).append(instance)
            for place, instances in stale.items():
                self.pipeline.resolver.refresh(place, instances)

    async def _canary(self) -> None:
        while self._config["canary.every"]:
            for place in self._places():
                try:
                    await send_canary(self._aws, place, self._clock.now())
                except AwsError as error:
                    self._log.warning("sending a canary failed", region=place.region, error=error)
            await self._clock.sleep(self._config["canary.every"])

    def _places(self) -> list[Place]:
        rules = self._sources.rules
        return [
            Place(account, region) for account in sorted(rules.accounts) for region in sorted(rules.regions)
        ]
