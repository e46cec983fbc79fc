"""A web server that strangers can reach: bounded in connections, in patience and in what it reads.

Nothing is inflated, a request's headers must be there in time, connections are counted altogether and by
source, and the one that idles longest makes room for a new one. What is said too slowly is cut off.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from dovetail.errors import Misconfigured
from dovetail.logs import SILENT

__all__ = ["HttpListener", "LimitedHandler", "ServerLimits", "start_listener"]

LINE, FIELD, HEADERS = 4_096, 4_096, 64


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server gives to its callers, in connections and seconds."""

    connections: int = 256
    per_source: int = 32
    headers: float = 10.0
    idle: float = 30.0


class ConnectionGate:
    """Connections of one server, the one that was used last at the end."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self._open: dict[LimitedHandler, str] = {}
        self._sources: Counter[str] = Counter()
        self.cut = 0

    def __len__(self) -> int:
        return len(self._open)

    def admit_connection(self, handler: LimitedHandler, source: str) -> None:
        """Let a connection in. Where there are too many, one that idles makes room, or the new one goes."""
        self._open[handler] = source
        self._sources[source] += 1
        if self._sources[source] > self.limits.per_source:
            self._cut_connection(handler, lambda each: self._open[each] == source)
        elif len(self._open) > self.limits.connections:
            self._cut_connection(handler, lambda each: True)

    def _cut_connection(self, newest: LimitedHandler, among: Callable[[LimitedHandler], bool]) -> None:
        idle = (each for each in self._open if each is not newest and each.idle and among(each))
        self.cut += 1
        next(idle, newest).abort()

    def mark_used(self, handler: LimitedHandler) -> None:
        """A connection that says something goes to the end of the row."""
        if handler in self._open:
            self._open[handler] = self._open.pop(handler)

    def remove_connection(self, handler: LimitedHandler) -> None:
        source = self._open.pop(handler, None)
        if source is not None:
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]


class LimitedHandler(RequestHandler):
    """One connection: cut off when the headers of a request do not come in time."""

    __slots__ = ("_gate", "_late", "_peer")

    def __init__(self, manager: web.Server, gate: ConnectionGate, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=gate.limits.idle,
            access_log=SILENT,
            auto_decompress=False,
            lingering_time=0.0,
            max_line_size=LINE,
            max_field_size=FIELD,
            max_headers=HEADERS,
        )
        self._gate = gate
        self._late: asyncio.TimerHandle | None = None
        self._peer: asyncio.BaseTransport | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self._current_request is None and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = transport
        self._await_headers()
        peer = transport.get_extra_info("peername")
        self._gate.admit_connection(self, str(peer[0]) if peer else "")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._headers_came()
        self._gate.remove_connection(self)
        self._peer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._gate.mark_used(self)
        super().data_received(data)
        if self.idle and self._peer is not None:
            self._await_headers()
        else:
            self._headers_came()

    def abort(self) -> None:
        """End the connection at once, whatever is still to be written."""
        if isinstance(self._peer, asyncio.Transport):
            self._peer.abort()

    def _await_headers(self) -> None:
        if self._late is None:
            self._late = self._loop.call_later(self._gate.limits.headers, self.abort)

    def _headers_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class HttpListener:
    """A server that listens."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server, gate: ConnectionGate) -> None:
        self._runner, self._server, self.gate = runner, server, gate
        self.addresses: tuple[tuple[Any, ...], ...] = tuple(each.getsockname() for each in server.sockets)

    async def cleanup(self) -> None:
        """Take no more connections, and end those there are."""
        self._server.close()
        await self._runner.cleanup()


async def start_listener(
    app: web.Application,
    port: int,
    host: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits | None = None,
    handler: type[LimitedHandler] = LimitedHandler,
) -> HttpListener:
    """Serve an application within limits; Misconfigured where the port cannot be had."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    manager, gate, loop = runner.server, ConnectionGate(limits or ServerLimits()), asyncio.get_running_loop()
    assert manager is not None
    try:
        server = await loop.create_server(
            lambda: handler(manager, gate, loop),
            host,
            port,
            ssl=tls,
            backlog=128,
            ssl_handshake_timeout=gate.limits.headers if tls else None,
            ssl_shutdown_timeout=1.0 if tls else None,
        )
    except OSError as error:
        await runner.cleanup()
        raise Misconfigured(f"listening on port {port}: {error.strerror}; choose another port") from error
    return HttpListener(runner, server, gate)
