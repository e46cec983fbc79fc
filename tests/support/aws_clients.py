"""The two doors of the simulated AWS: in memory behind the port, and over HTTP through boto3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import boto3

from dovetail.aws import Aws
from dovetail.aws.boto import BotoAws
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws
from support.aws import simulated

DOORS = ("memory", "http")
# One for all: it reads each service's model from disk once.
SESSION = boto3.Session("AKIA1111222233330000", "secret", region_name="us-west-2")


class AheadClock(SystemClock):
    """The wall's clock, and as much further as a test has moved it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass(frozen=True)
class Door:
    """`aws` is how one asks; `world` is what is behind it; `clock` can be moved."""

    aws: Aws
    world: SimulatedAws
    clock: AheadClock

    def wait(self, seconds: float) -> None:
        """That much time passes, and what is due happens."""
        self.clock.ahead += seconds
        self.world.world.catch_up()


@asynccontextmanager
async def opened(kind: str, *, moto: bool = False) -> AsyncIterator[Door]:
    clock = AheadClock()
    world = simulated(clock)
    if kind == "memory":
        yield Door(world, world, clock)
        return
    async with serve_aws(world, moto=moto) as server:
        boto = BotoAws(SESSION, endpoint=server.url, threads=4)
        try:
            yield Door(boto, world, clock)
        finally:
            boto.close()
