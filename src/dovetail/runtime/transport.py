"""Requests and replies as the client sees them: over HTTP, or in process for the simulator.

A Transport moves bytes and knows nothing of Kubernetes; kube.py gives replies their meaning.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import aiohttp
import msgspec

from dovetail import __version__
from dovetail.errors import Retry
from dovetail.runtime.credentials import Credentials

__all__ = ["USER_AGENT", "ApiReply", "ApiRequest", "HttpTransport", "Lines", "Transport"]

USER_AGENT = f"karpenter/{__version__}"
LINE_LIMIT = 64 * 2**20
CONNECT_SECONDS = 30.0
# Each connection has a buffer of a quarter of a MiB for TLS alone, and as much again on the other side.
REQUESTS_AT_ONCE = 32


class ApiRequest(msgspec.Struct, frozen=True):
    """One call to the API server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    timeout: float = 60.0
    """Seconds until the answer must be there, or, of a stream, its beginning."""
    known: str = ""
    """The ETag of what the caller has already; an answer that is the same is a 304."""

    def __repr__(self) -> str:
        # Without the body: what is written may be a secret, and this may end up in a log.
        return f"Request({self.method} {self.path})"


class ApiReply(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"


class Lines(Protocol):
    """A watch stream: its status, then its lines, as many at a time as have arrived."""

    status: int
    headers: Mapping[str, str]

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """The lines without their ends, in batches that are never empty."""

    async def read(self) -> bytes:
        """The whole body, for a stream that was refused."""


class Transport(Protocol):
    """Carries requests. Raises Retry when the other side cannot be reached or breaks off."""

    async def send(self, request: ApiRequest) -> ApiReply:
        """One request, one reply."""

    def stream(self, request: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        """One request, an open-ended reply."""

    async def close(self) -> None:
        """Let go of every connection."""


class _HttpLines:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        path = self._response.url.path
        try:
            pending = b""
            async for chunk in self._response.content.iter_any():
                *whole, pending = (pending + chunk).split(b"\n")
                if len(pending) > LINE_LIMIT:
                    raise Retry(f"watching {path}: a line is longer than {LINE_LIMIT >> 20} MiB")
                if lines := [line for line in whole if line]:
                    yield lines
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"watching {path}: the connection broke off") from error
        if pending:
            raise Retry(f"watching {path}: the stream ended inside a line")

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"watching {self._response.url.path}: the connection broke off") from error


class HttpTransport:
    """aiohttp's client, with the credentials of one cluster. It belongs to the loop it was first used on."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        user_agent: str = USER_AGENT,
    ) -> None:
        self._server = server.rstrip("/")
        self._credentials = credentials
        self._tls = tls
        self._server_name = server_name
        self._proxy = proxy
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def send(self, request: ApiRequest) -> ApiReply:
        signed = await self._credentials.build_headers()
        reply = await self._send_once(request, signed)
        if reply.status == 401 and await self._credentials.refresh(signed):
            return await self._send_once(request, await self._credentials.build_headers())
        return reply

    async def _send_once(self, request: ApiRequest, signed: Mapping[str, str]) -> ApiReply:
        async with self._slots, self._open_response(request, signed, request.timeout) as response:
            try:
                return ApiReply(response.status, await response.read(), response.headers)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise _connection_error(request, error) from error

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        signed = await self._credentials.build_headers()
        async with self._open_response(request, signed, None) as response:
            if response.status != 401 or not await self._credentials.refresh(signed):
                yield _HttpLines(response)
                return
        async with self._open_response(request, await self._credentials.build_headers(), None) as response:
            yield _HttpLines(response)

    @asynccontextmanager
    async def _open_response(
        self, request: ApiRequest, signed: Mapping[str, str], seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = self._build_headers(request) | dict(signed)
        try:
            # Even an open-ended answer must begin: a server that takes the request and says nothing is gone.
            async with asyncio.timeout(request.timeout):
                response = await self._ensure_session().request(
                    request.method,
                    self._server + request.path,
                    params=dict(request.query),
                    data=request.body,
                    headers=headers,
                    proxy=self._proxy,
                    server_hostname=self._server_name,
                    timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _connection_error(request, error) from error
        try:
            yield response
        finally:
            # A reply that was read to its end has already given its connection back to the pool.
            response.close()

    def _ensure_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Every watch holds a connection of its own, so their number must not be bounded here.
            tls = self._tls if self._tls is not None else True
            connector = aiohttp.TCPConnector(limit=0, ssl=tls)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    def _build_headers(self, request: ApiRequest) -> dict[str, str]:
        headers = {"User-Agent": self._user_agent, "Accept": "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if request.known:
            headers["If-None-Match"] = request.known
        return headers

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _connection_error(request: ApiRequest, error: BaseException) -> Retry:
    # A timeout has no text of its own, and a person needs one.
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return Retry(f"calling {request.method} {request.path}: {why}")
