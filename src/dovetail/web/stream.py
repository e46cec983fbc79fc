"""The stream: everybody who looks is told that there is a new picture, and nothing of what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from aiohttp import web

__all__ = ["Stream"]

# Proxies close connections on which nothing is said; a comment is something.
QUIET = 20.0
MOST = 200


class Stream:
    """Who listens, and the number of the latest picture. `headers` go with every answer."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {**headers, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        self._number = 0
        self._news = asyncio.Event()
        self._over = False
        self.listeners = 0

    def tell(self) -> None:
        """There is a new picture."""
        self._number += 1
        self._wake()

    def close(self) -> None:
        """Nothing more will come; whoever listens may go."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        # Whoever waits holds the old one; the next to wait gets another.
        self._news.set()
        self._news = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One listener, until it goes or the dashboard does."""
        if self.listeners >= MOST:
            raise web.HTTPServiceUnavailable(text=f"{MOST} pages listen already; close some of them\n")
        response = web.StreamResponse(headers=self._headers)
        await response.prepare(request)
        self.listeners += 1
        try:
            with suppress(ConnectionResetError):
                async for number in self._numbers():
                    told = f"event: picture\ndata: {number}\n\n" if number is not None else ": still here\n\n"
                    await response.write(told.encode())
        finally:
            self.listeners -= 1
        return response

    async def _numbers(self) -> AsyncIterator[int | None]:
        """The number now, then each that follows; None after a while without."""
        seen = -1
        while not self._over:
            if seen != self._number:
                seen = self._number
                yield seen
            elif not await self._heard():
                yield None

    async def _heard(self) -> bool:
        try:
            async with asyncio.timeout(QUIET):
                return await self._news.wait()
        except TimeoutError:
            return False
