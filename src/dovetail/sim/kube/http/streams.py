"""Watches over HTTP: one JSON document per line, several lines per write when they come fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.verbs.list_watch import ApiWatch, WatchNotice

BACKLOG = 10_000
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class WatchStream:
    """A watch to be sent: how its objects look, for how long, and how late its events arrive."""

    watch: ApiWatch
    body: Callable[[WatchNotice], bytes]
    seconds: float
    delay: float = 0.0


def encode_line(notice: WatchNotice, body: bytes) -> bytes:
    """One line of a stream."""
    return b'{"type":"' + notice.type.encode() + b'","object":' + body + b"}\n"


async def send_lines(api: ApiServer, stream: WatchStream, at_once: int) -> AsyncIterator[list[bytes]]:
    """The lines of a stream as they arrive, at most so many at once, until the watch ends."""
    watch = stream.watch
    while await watch.wait():
        if stream.delay:
            await api.clock.sleep(stream.delay)
        notices = watch.take_notices()
        for start in range(0, len(notices), at_once):
            yield [encode_line(each, stream.body(each)) for each in notices[start : start + at_once]]


async def send_stream(
    api: ApiServer, request: web.BaseRequest, stream: WatchStream, headers: CIMultiDict[str]
) -> web.StreamResponse:
    """Send events until the client leaves, the time is up or the watch ends."""
    headers["Content-Type"] = "application/json"
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    watch = stream.watch
    timer = asyncio.ensure_future(_end_after(api, watch, stream.seconds))
    try:
        await response.prepare(request)
        async for lines in send_lines(api, stream, AT_ONCE):
            await response.write(b"".join(lines))
        if watch.broken and request.transport is not None:
            request.transport.abort()
        else:
            await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone; there is nobody left to tell
    finally:
        timer.cancel()
        watch.close()
    return response


async def _end_after(api: ApiServer, watch: ApiWatch, seconds: float) -> None:
    await api.clock.sleep(seconds)
    watch.send_bookmark(api.store.revision)
    watch.close()
