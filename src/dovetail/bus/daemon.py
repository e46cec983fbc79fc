"""The daemon shell: long polls, batches, acknowledgements, and an orderly end.

receivers ─► buffer ─► batches ─► pipeline ─► acknowledgements
             (one such line for warnings, one for the rest; they share nothing but the pipeline)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from dovetail.aws import Aws, AwsError
from dovetail.bus.config import BusConfig
from dovetail.bus.events import CANARY_SOURCE, BusPlace, Lane
from dovetail.bus.lane_worker import LaneWorker
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.ports import RouterContext
from dovetail.bus.queues import SourceQueue, find_queue_url
from dovetail.bus.sources import DestinationSources, report_old_names
from dovetail.logs import get_logger

__all__ = ["RouterDaemon"]

log = get_logger("bus")

SHUTDOWN = 25.0
AGAIN = 1.0
REFRESH, REFRESHED = 600.0, 5_000


class RouterDaemon:
    """A long-running router."""

    def __init__(self, context: RouterContext, *, reread: Callable[[], BusConfig] | None = None) -> None:
        self._context = context
        self._config, self._aws, self._clock = context.config, context.aws, context.clock
        self._sources = DestinationSources(context.config, context.aws, counts=context.counts, reread=reread)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: list[LaneWorker] = []
        self._stopping = False
        self.ready = False
        self.pipeline: Pipeline | None = None

    async def prepare(self) -> None:
        """Find queues and destinations; Misconfigured says what is missing."""
        urls = {
            name: await find_queue_url(self._aws, self._config[f"queues.{name}"])
            for name in ("urgent", "bulk", "park")
        }
        self.pipeline = Pipeline(
            self._context,
            urls["park"],
            named=self._sources.find_by_name if self._config["registry.byName"] else None,
        )
        report_old_names(self._config)
        await self._sources.check_writers()
        self.pipeline.reload_destinations(await self._sources.read_destinations(), self._sources.rules)
        for lane in Lane:
            queue = SourceQueue(self._aws, urls[lane], clock=self._clock)
            visibility = await queue.read_visibility()
            self._lines.append(
                LaneWorker(lane, queue, self.pipeline, self._config, visibility, clock=self._clock)
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Route until told to stop, then finish what is under way."""
        if self.pipeline is None:
            await self.prepare()
        assert self.pipeline is not None
        for line in self._lines:
            for _ in range(self._config[f"receivers.{line.lane}"]):
                self._start_task(line.receive_messages)
            for work in (line.collect_batches, line.delete_acknowledged, line.keep_hidden, line.adapt_window):
                self._start_task(work)
        for loop in (
            self._reload_destinations,
            self._prefetch_instances,
            self._refresh_stale,
            self._send_canaries,
        ):
            self._start_task(loop)
        self.ready = True
        log.info("the router is ready", destinations=len(self.pipeline.registry))
        await stop.wait()
        self.ready = False
        await self._stop_work()

    async def _stop_work(self) -> None:
        """Stop receiving, finish what is under way, hand the rest back at once."""
        assert self.pipeline is not None
        until = self._clock.monotonic() + SHUTDOWN
        self._stopping = True
        await asyncio.gather(*(line.drain_until(until) for line in self._lines))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pipeline.close()
        log.info("the router has stopped")

    def _start_task(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part for as long as the router runs; one that meets a bug says so and starts again."""
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() or self._stopping:
                return
            if task.exception() is not None:
                log.error("a part of the router met a bug", part=work.__name__, error=repr(task.exception()))
                self._start_task(lambda: self._restart_later(work))

        task.add_done_callback(ended)

    async def _restart_later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._clock.sleep(AGAIN)
        await work()

    async def _reload_destinations(self) -> None:
        assert self.pipeline is not None
        while True:
            await self._clock.sleep(self._config["registry.reload"])
            registry = await self._sources.read_destinations()
            if registry != self.pipeline.registry:
                log.info("destinations changed", destinations=len(registry))
            # Also where nothing has changed: who had no queue of its name may have one now.
            self.pipeline.reload_destinations(registry, self._sources.rules)

    async def _prefetch_instances(self) -> None:
        """Know every cluster's instances before they are spoken of."""
        assert self.pipeline is not None
        while self._config["ec2.prefetch"]:
            for place in self._list_places():
                try:
                    count = await self.pipeline.resolver.prefetch_place(place)
                except AwsError as error:
                    log.warning("reading all instances failed", region=place.region, error=error)
                else:
                    log.info("instances read", account=place.account, region=place.region, count=count)
            await self._clock.sleep(self._config["ec2.prefetch"])

    async def _refresh_stale(self) -> None:
        """Without prefetching, look again at what was learnt long ago."""
        assert self.pipeline is not None
        while not self._config["ec2.prefetch"]:
            await self._clock.sleep(REFRESH)
            now = self._clock.now().timestamp()
            stale: dict[BusPlace, list[str]] = {}
            for instance, place in self.pipeline.owners.list_stale(now, REFRESHED):
                stale.setdefault(place, []).append(instance)
            for place, instances in stale.items():
                self.pipeline.resolver.refresh_instances(place, instances)

    async def _send_canaries(self) -> None:
        while self._config["canary.every"]:
            for place in self._list_places():
                try:
                    await _send_canary(self._aws, place, self._clock.now())
                except AwsError as error:
                    log.warning("sending a canary failed", region=place.region, error=error)
            await self._clock.sleep(self._config["canary.every"])

    def _list_places(self) -> list[BusPlace]:
        rules = self._sources.rules
        return [
            BusPlace(account, region)
            for account in sorted(rules.accounts)
            for region in sorted(rules.regions)
        ]


async def _send_canary(aws: Aws, place: BusPlace, now: datetime) -> None:
    """Put one event on the default bus. It takes the way of the real ones, so a dead rule shows itself."""
    entry = {
        "Source": CANARY_SOURCE,
        "DetailType": "Dovetail Bus Canary",
        "Detail": json.dumps({"account": place.account, "region": place.region}),
        "Time": now,
    }
    await aws.call("events", "PutEvents", {"Entries": [entry]})
