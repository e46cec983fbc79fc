"""Two Dovetails and one lease over a simulated AWS: processes that are stopped, and go on later.

A pause is what SIGSTOP, a frozen machine or a wire that is slow to deliver comes to: nothing leaves and
nothing arrives. A request that was about to leave when it came leaves when it ends, whoever gave up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, TypeVar

from dovetail.api import labels
from dovetail.app.controller import Dovetail, ProcessOptions
from dovetail.aws import Answer
from dovetail.providers.aws.provider import AwsProvider
from dovetail.providers.aws.tags import NODECLAIMS_TAG
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines
from dovetail.sim.transport import LocalTransport
from support.aws_world import AwsWorld

__all__ = ["Process", "TwoLeaders"]

R = TypeVar("R")
TERMS = ElectionTerms()
LAG = 3.0


class Process:
    """One Dovetail with an elector, a clock, a wire to the cluster and one to AWS; all of them stop together.

    `pause_at` is how the write begins at which it is stopped, once; `held` whether that is before the other
    side has heard of it. `stray` are the writes it began while it did not lead.
    """

    def __init__(
        self, name: str, world: AwsWorld, *, pause_at: str = "", held: bool = True, pause: float = 60.0
    ) -> None:
        self.name, self._world, self._true = name, world, world.clock
        self._pause_at, self._held, self._pause = pause_at, held, pause
        self.writes: list[str] = []
        self.stray: list[str] = []
        self._paused_until = 0.0
        self._sending: set[asyncio.Task[Any]] = set()
        self._wire = LocalTransport(world.world.server, f"{name}/1")
        self.region = world.aws.region
        self.elected = asyncio.Event()
        self.lost = asyncio.Event()
        self.elector = Elector(
            KubeClient(self, self), TERMS, name, clock=self, rng=Random(name), on_change=self._told
        )
        self.dovetail = Dovetail(
            world.settings,
            self,
            clock=self,
            chance=Random(name),
            provider="aws",
            make=partial(AwsProvider, aws=self),
            process=ProcessOptions(may_write=lambda: self.elector.leading),
        )

    def _told(self, leading: bool) -> None:
        (self.elected if leading else self.lost).set()

    async def run(self) -> None:
        """As `dovetail controller` does: work while leading, end when the lease is lost."""
        electing = asyncio.create_task(self.elector.run())
        working = asyncio.create_task(self.dovetail.run(self._wait_elected))
        lost = asyncio.create_task(self.lost.wait())
        try:
            await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
            # It wakes up as it was, and goes on for a moment before it hears that it leads no longer.
            await self._awake()
            await self._true.sleep(LAG)
            self.dovetail.stop()
            await working
        finally:
            for task in (electing, working, lost):
                task.cancel()
            await asyncio.gather(electing, working, lost, return_exceptions=True)

    async def _wait_elected(self) -> None:
        await self.elected.wait()

    def pause(self) -> None:
        self._paused_until = self._true.monotonic() + self._pause

    async def _awake(self) -> None:
        while (left := self._paused_until - self._true.monotonic()) > 0:
            await self._true.sleep(left)

    async def _carried(self, work: Any) -> Any:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._arrived)
        return await asyncio.shield(task)

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()

    # Its clock: a sleep that ends in a pause ends after it.

    def now(self) -> datetime:
        return self._true.now()

    def monotonic(self) -> float:
        return self._true.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._true.sleep(seconds)
        await self._awake()

    # Its wire to the cluster.

    async def send(self, request: ApiRequest) -> ApiReply:
        reply: ApiReply = await self._carried(self._sent(request))
        return reply

    async def _sent(self, request: ApiRequest) -> ApiReply:
        quiet = request.method == "GET" or "/leases" in request.path or "/events" in request.path
        async with self._delivery("" if quiet else f"{request.method} {request.path}"):
            return await self._wire.send(request)

    @asynccontextmanager
    async def _delivery(self, write: str) -> AsyncIterator[None]:
        """What happens to a request on its way, and to its answer."""
        self.writes += [write] if write else []
        self.stray += [write] if write and not self.elector.leading else []
        struck = bool(self._pause_at) and not self._paused_until and write.startswith(self._pause_at)
        if struck and self._held:
            self.pause()
        await self._awake()
        try:
            yield
        finally:
            if struck and not self._held:
                self.pause()
            await self._awake()

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        async with self._wire.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._wire.close()

    # Its wire to AWS.

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        answer: Answer = await self._carried(self._called(service, operation, parameters))
        return answer

    async def _called(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Answer:
        quiet = operation.startswith(("Describe", "Get", "List", "Receive")) or parameters.get("DryRun")
        async with self._delivery("" if quiet else operation):
            return await self._world.aws.call(service, operation, parameters)

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Process:
        return self


class TwoLeaders(AwsWorld):
    """A world in which one process launches, is stopped, and another takes over before it goes on."""

    async def led_by(self, first: Process, second: Process, seconds: float) -> None:
        async with self.world.running():
            running = [asyncio.create_task(first.run())]
            await first.elected.wait()
            running.append(asyncio.create_task(second.run()))
            try:
                await asyncio.sleep(seconds)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    def launches(self) -> Counter[str]:
        """How many fleets launched for each claim; none launches more than its claims."""
        fleets: dict[str, list[Mapping[str, str]]] = {}
        for machine in self.aws.instances.by_id.values():
            fleets.setdefault(machine.tags["aws:ec2:fleet-id"], []).append(machine.tags)
        found: Counter[str] = Counter()
        for tags in fleets.values():
            (named,) = {each.get(NODECLAIMS_TAG) or each[labels.NODECLAIM_TAG] for each in tags}
            assert len(tags) <= len(named.split(" ")), f"{len(tags)} instances for {named}"
            found.update(named.split(" "))
        return found
