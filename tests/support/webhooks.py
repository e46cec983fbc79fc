"""A receiver of notifications on loopback, with the manners a test gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Manners = Callable[[web.Request], Awaitable[web.StreamResponse]]
# A path that no log line, metric, record or error may show.
SECRET = "T0SECRET/B0SECRET/xoxb-1234567890"


@dataclass
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """A local web server that takes what is posted to it, unless it was told otherwise."""

    url: str = ""
    posts: list[Received] = field(default_factory=list)
    manners: Manners | None = None
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.posts.append(Received(dict(request.headers), await request.read()))
        async with self.came:
            self.came.notify_all()
        return await self.manners(request) if self.manners is not None else web.Response(text="ok")

    async def wait_for(self, count: int, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds), self.came:
            await self.came.wait_for(lambda: len(self.posts) >= count)


@asynccontextmanager
async def receive() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    receiver.url = f"http://127.0.0.1:{port}/services/{SECRET}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def answer(status: int, headers: dict[str, str] | None = None) -> Manners:
    async def answering(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers, text="you said: something secret")

    return answering


async def hang(request: web.Request) -> web.StreamResponse:
    """Take the request and never answer."""
    await asyncio.sleep(3600)
    raise AssertionError


async def answer_without_end(request: web.Request) -> web.StreamResponse:
    """Say yes, and then more than anybody wants to read."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65_536)


async def break_off(request: web.Request) -> web.StreamResponse:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    raise ConnectionResetError
