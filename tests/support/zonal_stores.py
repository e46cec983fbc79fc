"""The world of zonal shifts with its ledger in a table, and processes that die after every write.

world = Kept("Mirror")
async with world.running():
    await world.shift(A)
    await mortal(world, lambda: world.phase() == "Active")
    assert world.lives > 3
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.aws import Answer
from dovetail.errors import Retry
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.sim.aws.dynamodb import DynamoTables
from support.zonal import SHIFTS, Shifted, Writes

__all__ = ["TABLE", "Frozen", "Kept", "mortal"]

Json = dict[str, Any]
TABLE = "shifts"
WRITES = ("PutItem", "UpdateItem", "DeleteItem")


class Frozen(Writes):
    """A transport whose process may have died: then nothing is ever answered."""

    world: Kept

    async def send(self, request: ApiRequest) -> ApiReply:
        await self.world.alive()
        if self.world.away_from_api:
            raise Retry("the API server does not answer")
        counted = len(self.written)
        reply = await super().send(request)
        if len(self.written) > counted:
            await self.world.wrote(f"{request.method} {request.path}")
        return reply


class Kept(Shifted):
    """A cluster whose shifts are kept in this store."""

    reached = Frozen

    def __init__(self, store: str = "Cluster", *flags: str, seed: int = 0, **options: Any) -> None:
        self.mortal, self.dead, self.lives = False, False, 0
        self.away_from_api = False
        # How many writes were made, and the one after which a process dies.
        self.writes, self.die_at = 0, 0
        # What each life wrote last.
        self.last: list[str] = []
        super().__init__(seed, *flags, store=store, table="" if store == "Cluster" else TABLE, **options)
        self.tables.add(TABLE)
        self._call = self.aws.call
        self.aws.call = self._called  # type: ignore[method-assign]  # the world's own door, watched

    @property
    def tables(self) -> DynamoTables:
        return self.aws.world.get_state(DynamoTables, self.aws.account, self.aws.region)

    def _make(self) -> None:
        self.dead, self.lives = False, self.lives + 1
        super()._make()
        assert isinstance(self.transport, Frozen)
        self.transport.world = self

    async def _called(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        await self.alive()
        answer = await self._call(service, operation, parameters, retried=retried)
        if service == "dynamodb" and operation in WRITES:
            key = parameters.get("Item") or parameters["Key"]
            await self.wrote(f"{operation} {key['sk']['S']}")
        return answer

    async def alive(self) -> None:
        if self.dead:
            await asyncio.Event().wait()

    async def wrote(self, what: str) -> None:
        """The write is made; whether anybody lives to know is another matter."""
        self.writes += 1
        if self.mortal or self.writes == self.die_at:
            self.dead = True
            self.last.append(what)
            await asyncio.Event().wait()

    async def survived(self, reached: Callable[[], object], within: float = 3600) -> None:
        """Wait for it; who dies on the way is followed by another."""
        end = self.clock.monotonic() + within
        while not reached():
            assert self.clock.monotonic() < end, f"not so after {self.lives} lives: {self.told()}"
            await asyncio.sleep(0.5)
            if self.dead:
                await self.killed(0.5)

    def items(self, kind: str = "") -> list[Json]:
        return [each for each in self.tables.list_items(TABLE) if each["sk"]["S"].startswith(kind)]

    def kept(self) -> list[Json]:
        """Shifts in the table, as documents."""
        return [json.loads(each["document"]["S"]) for each in self.items("SHIFT#")]

    def shifts(self) -> list[Json]:
        mine = [each for each in self.api.list(SHIFTS) if each["spec"]["kind"] != "SIGNAL"]
        return [*mine, *self.kept()] if self.options.store == "DynamoDB" else mine


async def mortal(world: Kept, reached: Callable[[], object], within: float = 3600) -> None:
    """Let every process die right after its first write, until this is so."""
    world.mortal = True
    await world.survived(reached, within)
    world.mortal = False
    if world.dead:
        await world.killed(0.5)
