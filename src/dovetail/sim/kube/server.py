"""The server over HTTP: reads requests, asks the handlers, writes answers and streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web
from multidict import CIMultiDict

from dovetail.sim.kube import replies, status
from dovetail.sim.kube.bodies import LIMIT, replace_surrogates
from dovetail.sim.kube.faults_hook import Fault
from dovetail.sim.kube.meta import new_uid
from dovetail.sim.kube.replies import Reply
from dovetail.sim.kube.requests import Request, respond
from dovetail.sim.kube.routes import NotServed, split_path
from dovetail.sim.kube.streams import Stream, send_stream

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.watch import Watch

_GZIP_FROM = 128 * 1024
_USER = "system:admin"


@dataclass(frozen=True, slots=True)
class Running:
    """Where a server listens."""

    host: str
    port: int
    secure: bool

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}"


class _Dropped(Exception):
    """A fault rule had the connection dropped."""


class HttpServer:
    """One listening face of an `ApiServer`. With a token, requests must carry it."""

    def __init__(self, api: ApiServer, token: str = "") -> None:
        self.api = api
        self.token = token
        self._streams: set[Watch] = set()

    def hang_up(self) -> None:
        """End every stream, so that nobody waits for the server to go."""
        for watch in tuple(self._streams):
            watch.close()

    async def handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        warnings: list[str] = []
        try:
            request = await self._read(raw, warnings)
            fault = self._fault(request)
            if fault is not None:
                await self._suffer(fault, raw)
            answer = await respond(self.api, request, fault)
            if fault is not None and fault.after_commit:
                self._break(fault, raw)
        except _Dropped:
            return web.Response(status=500)  # goes nowhere: the connection is gone
        except NotServed:
            answer = replies.text("404 page not found\n", 404)
        except status.ApiError as error:
            answer = replies.error(error)
        if isinstance(answer, Stream):
            self._streams.add(answer.watch)
            try:
                return await send_stream(self.api, raw, answer, self._headers(warnings))
            finally:
                self._streams.discard(answer.watch)
        if raw.query.get("pretty") in ("true", "1"):
            answer = replies.pretty(answer)
        return await self._send(raw, answer, warnings)

    async def _read(self, raw: web.BaseRequest, warnings: list[str]) -> Request:
        if self.token and raw.headers.get("Authorization", "") != f"Bearer {self.token}":
            raise status.unauthorized()
        return Request(
            method=raw.method,
            parts=split_path(raw.rel_url.raw_path),
            query=raw.query,
            accept=", ".join(raw.headers.getall("Accept", [])),
            content_type=_header(raw, "Content-Type"),
            agent=_header(raw, "User-Agent"),
            if_none_match=_header(raw, "If-None-Match"),
            user=_USER,
            body=await _body(raw),
            warnings=warnings,
            address=raw.host,
        )

    def _fault(self, request: Request) -> Fault | None:
        call = request.call(self.api.registry)
        return self.api.faults.consult(call) if call is not None else None

    async def _suffer(self, fault: Fault, raw: web.BaseRequest) -> None:
        if fault.delay:
            await self.api.clock.sleep(fault.delay)
        if not fault.after_commit:
            self._break(fault, raw)

    def _break(self, fault: Fault, raw: web.BaseRequest) -> None:
        if fault.reset:
            if raw.transport is not None:
                raw.transport.abort()
            raise _Dropped
        if fault.error is not None:
            raise fault.error

    def _headers(self, warnings: list[str]) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        headers["Cache-Control"] = "no-cache, private"
        headers["Audit-Id"] = new_uid(self.api.audit)
        for warning in dict.fromkeys(warnings):
            printed = "".join(char if char.isprintable() else " " for char in replace_surrogates(warning))
            escaped = printed.replace("\\", "\\\\").replace('"', '\\"')
            headers.add("Warning", f'299 - "{escaped}"')
        return headers

    async def _send(self, raw: web.BaseRequest, reply: Reply, warnings: list[str]) -> web.StreamResponse:
        headers = self._headers(warnings)
        for name, value in reply.headers:
            headers[name] = value
        if reply.status == 304:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = reply.content_type
        if reply.chunks is None:
            response = web.Response(status=reply.status, body=reply.body, headers=headers)
            if len(reply.body) > _GZIP_FROM:
                response.enable_compression()
            return response
        return await self._send_chunks(raw, reply, headers)

    async def _send_chunks(
        self, raw: web.BaseRequest, reply: Reply, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        """A long list goes out in parts, so that encoding it never holds up everyone else."""
        assert reply.chunks is not None
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.enable_compression()
        await response.prepare(raw)
        for chunk in reply.chunks:
            await response.write(chunk)
            # A quick reader never makes a write wait, so the others get their turn here.
            await asyncio.sleep(0)
        await response.write_eof()
        return response


def _header(raw: web.BaseRequest, name: str) -> str:
    """A header's text; bytes that are no characters come as halves of surrogate pairs."""
    return replace_surrogates(raw.headers.get(name, ""))


async def _body(raw: web.BaseRequest) -> bytes:
    if not raw.can_read_body:
        return b""
    if raw.content_length is not None and raw.content_length > LIMIT:
        raise status.too_large(LIMIT)
    parts, size = [], 0
    async for part in raw.content.iter_any():
        size += len(part)
        if size > LIMIT:
            raise status.too_large(LIMIT)
        parts.append(part)
    return b"".join(parts)


@asynccontextmanager
async def serve(
    api: ApiServer, host: str, port: int, token: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Running]:
    """Listen while the context is open; port 0 picks a free one."""
    options: dict[str, Any] = {"handler_cancellation": True, "access_log": None, "keepalive_timeout": 300.0}
    # As a real server: a body is what was sent. Inflating it would make a megabyte a gigabyte.
    options["auto_decompress"] = False
    face = HttpServer(api, token)
    listening = web.Server(face.handle, **options)
    runner = web.ServerRunner(listening, shutdown_timeout=0.5)
    await runner.setup()
    house = asyncio.ensure_future(api.run())
    site = web.TCPSite(runner, host, port, ssl_context=tls)
    try:
        await site.start()
        bound = runner.addresses[0][1]
        yield Running(host, bound, tls is not None)
    finally:
        house.cancel()
        face.hang_up()
        open_still = [each.transport for each in listening.connections]
        await runner.cleanup()
        # A connection over TLS waits for the other side to say goodbye, too; not everyone does.
        for transport in open_still:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)
