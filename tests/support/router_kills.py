"""The real router as a process, fed over HTTP by a simulated AWS, and killed without a word at any moment."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.aws import Answer
from dovetail.bus.generate import GeneratedEvent, GeneratedFleet
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws
from support.queues import CENTRAL, FleetAws, document, expected

__all__ = ["Killed", "killed", "router_environment", "serving"]


class FleetWorld(SimulatedAws):
    """A simulated AWS whose instances are a fleet's."""

    described: Any = None

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if operation == "DescribeInstances":
            answer: Answer = self.described(parameters)
            return answer
        return await super().call(service, operation, parameters, retried=retried)


@asynccontextmanager
async def serving(
    fleet: GeneratedFleet, visibility: tuple[int, int] = (5, 5)
) -> AsyncIterator[tuple[FleetAws, str]]:
    """The fleet's AWS over HTTP; gives it and its address."""
    clock = SystemClock()
    world = FleetWorld(clock, 0, fleet.region, fleet.account)
    # Messages are hidden for seconds here, not minutes: on a slow machine one that waits its turn is received
    # many times, and is no dead letter for that.
    aws = FleetAws(fleet, clock, visibility=visibility, receives=(1000, 1000), world=world)
    FleetWorld.described = staticmethod(aws._described)
    # A client that is killed in the middle of a request is no news here, and is elsewhere.
    log = logging.getLogger("aiohttp.server")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        async with serve_aws(aws.sim, moto=False) as server:
            yield aws, server.url
    finally:
        log.setLevel(before)


def router_environment(fleet: GeneratedFleet, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": f"AKIA{fleet.account}0000",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": fleet.region,
    }


def written(folder: str, fleet: GeneratedFleet, url: str, **keys: Any) -> Path:
    """A configuration file whose queues are at the address."""
    made = document(fleet, **keys)
    for each in made["bus"]["destinations"]:
        each["queueUrl"] = f"{url}/{fleet.account}/{each['cluster']}"
    path = Path(folder) / "router.json"
    path.write_text(json.dumps(made))
    return path


@dataclass(frozen=True, slots=True)
class Killed:
    """What came of a run."""

    events: int
    kills: int
    lost: int
    duplicates: int
    strays: int
    """Bodies in a queue of a cluster that they are not meant for."""


async def _start(config: Path, fleet: GeneratedFleet, url: str) -> asyncio.subprocess.Process:
    command = ["-m", "dovetail", "interruption-router", "--config", str(config)]
    command += ["--metrics-port", "0", "--health-port", "0", "--log-level", "error"]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env=router_environment(fleet, url), stdout=asyncio.subprocess.DEVNULL
    )


async def _reap(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(how)
        await process.wait()


async def killed(
    fleet: GeneratedFleet,
    happenings: Sequence[GeneratedEvent],
    *,
    seed: int,
    kills: int,
    within: float = 240.0,
    **keys: Any,
) -> Killed:
    """Route events by a router that is killed so many times at random moments, then started again."""
    chance = Random(seed)
    async with serving(fleet) as (aws, url):
        with TemporaryDirectory() as folder:
            config = written(folder, fleet, url, **keys)
            marks = sorted(chance.randrange(1, len(happenings)) for _ in range(kills))
            playing = asyncio.create_task(aws.play(happenings))
            process = await _start(config, fleet, url)
            try:
                for mark in marks:
                    await _delivered(aws, mark, within)
                    await asyncio.sleep(chance.uniform(0, 0.3))
                    await _reap(process, signal.SIGKILL)
                    await asyncio.sleep(0.2)  # what it had asked for by then is still carried out
                    _show_again(aws)
                    process = await _start(config, fleet, url)
                await playing
                await _delivered(aws, len(happenings), within, everything=True)
            finally:
                await _reap(process, signal.SIGKILL)
        return _counted(aws, happenings, len(marks))


async def _delivered(aws: FleetAws, count: int, within: float, everything: bool = False) -> None:
    """Until so many messages lie in cluster queues, or, for everything, none lies in the central ones."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        there = sum(len(aws.queue(cluster).messages) for cluster in aws.fleet.clusters)
        if (aws.waiting() == 0) if everything else there >= count:
            return
        assert loop.time() - began < within, (
            f"{aws.waiting()} events still wait in {CENTRAL}, {there} delivered"
        )
        await asyncio.sleep(0.02)


def _show_again(aws: FleetAws) -> None:
    """What the killed router held is seen again at once, as if the time it was hidden for had passed."""
    for name in CENTRAL:
        queue = aws.queue(name)
        for message in list(queue.messages.values()):
            if message.hidden is not None:
                queue.make_visible(message)


def _counted(aws: FleetAws, happenings: Sequence[GeneratedEvent], kills: int) -> Killed:
    wanted, got = expected(aws.fleet, happenings), aws.received()
    lost = duplicates = strays = 0
    for cluster, bodies in wanted.items():
        lost += (bodies - got[cluster]).total()
        more: Counter[str] = got[cluster] - bodies
        duplicates += sum(amount for body, amount in more.items() if body in bodies)
        strays += sum(amount for body, amount in more.items() if body not in bodies)
    return Killed(len(happenings), kills, lost, duplicates, strays)
