"""Watches over HTTP: one JSON document per line, several lines per write when they come fast."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.watch import Notice, Watch

BACKLOG = 10_000


@dataclass(frozen=True, slots=True)
class Stream:
    """A watch to be sent: how its objects look, and for how long."""

    watch: Watch
    body: Callable[[Notice], bytes]
    seconds: float


def line(notice: Notice, body: bytes) -> bytes:
    """One line of a stream."""
    return b'{"type":"' + notice.type.encode() + b'","object":' + body + b"}\n"


async def send_stream(
    api: ApiServer, request: web.BaseRequest, stream: Stream, headers: CIMultiDict[str]
) -> web.StreamResponse:
    """Send events until the client leaves, the time is up or the watch ends."""
    headers["Content-Type"] = "application/json"
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    watch = stream.watch
    timer = asyncio.ensure_future(_end_after(api, watch, stream.seconds))
    try:
        await response.prepare(request)
        while await watch.wait():
            notices = watch.take()
            for start in range(0, len(notices), 500):
                part = notices[start : start + 500]
                await response.write(b"".join(line(each, stream.body(each)) for each in part))
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


async def _end_after(api: ApiServer, watch: Watch, seconds: float) -> None:
    await api.clock.sleep(seconds)
    watch.bookmark(api.store.revision)
    watch.close()
