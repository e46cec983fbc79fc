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

from dovetail.sim.kube import status
from dovetail.sim.kube.faults import Fault
from dovetail.sim.kube.http import replies
from dovetail.sim.kube.http.bodies import LIMIT, replace_surrogates
from dovetail.sim.kube.http.replies import ServerReply
from dovetail.sim.kube.http.requests import answer_request
from dovetail.sim.kube.http.routes import NotServed, ServerRequest, split_path
from dovetail.sim.kube.http.streams import WatchStream, send_stream
from dovetail.sim.kube.meta import generate_uid

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.verbs.list_watch import ApiWatch

_GZIP_FROM = 128 * 1024
_USER = "system:admin"


@dataclass(frozen=True, slots=True)
class ListeningServer:
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
        self._streams: set[ApiWatch] = set()

    def close_streams(self) -> None:
        """End every stream, so that nobody waits for the server to go."""
        for watch in tuple(self._streams):
            watch.close()

    async def handle_request(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        warnings: list[str] = []
        try:
            request = await self._read_request(raw, warnings)
            fault = self._find_fault(request)
            if fault is not None:
                await self._apply_fault(fault, raw)
            answer = await answer_request(self.api, request, fault)
            if fault is not None and fault.after_commit:
                self._raise_fault(fault, raw)
        except _Dropped:
            return web.Response(status=500)  # goes nowhere: the connection is gone
        except NotServed:
            answer = replies.build_text_reply("404 page not found\n", 404)
        except status.ApiError as error:
            answer = replies.build_error_reply(error)
        if isinstance(answer, WatchStream):
            self._streams.add(answer.watch)
            try:
                return await send_stream(self.api, raw, answer, self._build_headers(warnings))
            finally:
                self._streams.discard(answer.watch)
        if raw.query.get("pretty") in ("true", "1"):
            answer = replies.indent_reply(answer)
        return await self._send_reply(raw, answer, warnings)

    async def _read_request(self, raw: web.BaseRequest, warnings: list[str]) -> ServerRequest:
        if self.token and raw.headers.get("Authorization", "") != f"Bearer {self.token}":
            raise status.unauthorized_request()
        return ServerRequest(
            method=raw.method,
            parts=split_path(raw.rel_url.raw_path),
            query=raw.query,
            accept=", ".join(raw.headers.getall("Accept", [])),
            content_type=_read_header(raw, "Content-Type"),
            agent=_read_header(raw, "User-Agent"),
            if_none_match=_read_header(raw, "If-None-Match"),
            user=_USER,
            body=await _read_body(raw),
            warnings=warnings,
            address=raw.host,
        )

    def _find_fault(self, request: ServerRequest) -> Fault | None:
        call = request.describe_call(self.api.registry)
        return self.api.faults.find_fault(call) if call is not None else None

    async def _apply_fault(self, fault: Fault, raw: web.BaseRequest) -> None:
        if fault.delay:
            await self.api.clock.sleep(fault.delay)
        if not fault.after_commit:
            self._raise_fault(fault, raw)

    def _raise_fault(self, fault: Fault, raw: web.BaseRequest) -> None:
        if fault.reset:
            if raw.transport is not None:
                raw.transport.abort()
            raise _Dropped
        if fault.error is not None:
            raise fault.error

    def _build_headers(self, warnings: list[str]) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        headers["Cache-Control"] = "no-cache, private"
        headers["Audit-Id"] = generate_uid(self.api.audit)
        for warning in dict.fromkeys(warnings):
            printed = "".join(char if char.isprintable() else " " for char in replace_surrogates(warning))
            escaped = printed.replace("\\", "\\\\").replace('"', '\\"')
            headers.add("Warning", f'299 - "{escaped}"')
        return headers

    async def _send_reply(
        self, raw: web.BaseRequest, reply: ServerReply, warnings: list[str]
    ) -> web.StreamResponse:
        headers = self._build_headers(warnings)
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
        self, raw: web.BaseRequest, reply: ServerReply, headers: CIMultiDict[str]
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


def _read_header(raw: web.BaseRequest, name: str) -> str:
    """A header's text; bytes that are no characters come as halves of surrogate pairs."""
    return replace_surrogates(raw.headers.get(name, ""))


async def _read_body(raw: web.BaseRequest) -> bytes:
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
async def serve_http(
    api: ApiServer, host: str, port: int, token: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[ListeningServer]:
    """Listen while the context is open; port 0 picks a free one."""
    options: dict[str, Any] = {"handler_cancellation": True, "access_log": None, "keepalive_timeout": 300.0}
    # As a real server: a body is what was sent. Inflating it would make a megabyte a gigabyte.
    options["auto_decompress"] = False
    face = HttpServer(api, token)
    listening = web.Server(face.handle_request, **options)
    runner = web.ServerRunner(listening, shutdown_timeout=0.5)
    await runner.setup()
    housekeeping = asyncio.ensure_future(api.run())
    site = web.TCPSite(runner, host, port, ssl_context=tls)
    try:
        await site.start()
        bound = runner.addresses[0][1]
        yield ListeningServer(host, bound, tls is not None)
    finally:
        housekeeping.cancel()
        face.close_streams()
        open_still = [each.transport for each in listening.connections]
        await runner.cleanup()
        # A connection over TLS waits for the other side to say goodbye, too; not everyone does.
        for transport in open_still:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)
