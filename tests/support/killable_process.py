"""A process that can be killed between any two of its calls, and what it must never do while it lives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.cloud_wrappers import ForwardingCloud
from dovetail.ports import Instance
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines, Transport

__all__ = ["Fate", "MortalCloud", "MortalTransport"]

R = TypeVar("R")


class Fate:
    """When a process dies: right before its n-th call, or right after, before the answer is heard.

    Only calls that change something are counted: nothing can be lost between two reads.
    """

    def __init__(self, call: int | None = None, *, before: bool = True) -> None:
        self._call = call
        self._before = before
        self._calls = 0
        self.dead = asyncio.Event()
        self.sins: list[str] = []

    def strike_at(self, further: int, *, before: bool) -> None:
        """Die at that many calls from now on."""
        self._call, self._before = self._calls + further, before

    async def strikes(self, *, before: bool) -> None:
        """Let fate look at a call; one that is struck never returns."""
        if before:
            self._calls += 1
        if self._call is not None and self._calls >= self._call and before is self._before:
            self.dead.set()
        if self.dead.is_set():
            await asyncio.Event().wait()


class MortalTransport:
    """A transport of a process with a fate."""

    def __init__(self, transport: Transport, fate: Fate) -> None:
        self._transport = transport
        self._fate = fate

    async def send(self, request: ApiRequest) -> ApiReply:
        if request.method == "GET" or request.path.endswith("/events"):
            if self._fate.dead.is_set():
                await asyncio.Event().wait()
            return await self._transport.send(request)
        if request.method == "DELETE" and "/pods/" in request.path:
            self._fate.sins.append(f"deleted a pod past its budget: {request.path}")
        await self._fate.strikes(before=True)
        reply = await self._transport.send(request)
        await self._fate.strikes(before=False)
        return reply

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        async with self._transport.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._transport.close()


@dataclass(eq=False)
class MortalCloud(ForwardingCloud):
    """The cloud as a process with a fate calls it."""

    _fate: Fate
    _launched: Counter[str]
    _loses: Callable[[NodeClaim], str]

    async def create(self, claim: NodeClaim) -> Instance:
        await self._fate.strikes(before=True)
        made = await self._cloud.create(claim)
        self._launched[claim.name] += 1
        await self._fate.strikes(before=False)
        return made

    async def delete(self, claim: NodeClaim) -> None:
        await self._fate.strikes(before=True)
        if loss := self._loses(claim):
            self._fate.sins.append(loss)
        try:
            await self._cloud.delete(claim)
        finally:
            await self._fate.strikes(before=False)
