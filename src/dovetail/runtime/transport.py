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

from dovetail.errors import Retry
from dovetail.runtime.credentials import Credentials

__all__ = ["HttpTransport", "Reply", "Request", "Transport"]

LINE_LIMIT = 64 * 2**20


class Request(msgspec.Struct, frozen=True):
    """One call to the API server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    timeout: float = 60.0


class Reply(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Lines(Protocol):
    """A watch stream: its status, then one line after another."""

    status: int

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Each line, without its end."""

    async def read(self) -> bytes:
        """The whole body, for a stream that was refused."""


class Transport(Protocol):
    """Carries requests. Raises Retry when the other side cannot be reached or breaks off."""

    async def send(self, request: Request) -> Reply:
        """One request, one reply."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[Lines]:
        """One request, an open-ended reply."""

    async def close(self) -> None:
        """Let go of every connection."""


class _HttpLines:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            pending = b""
            async for chunk in self._response.content.iter_any():
                *whole, pending = (pending + chunk).split(b"\n")
                if len(pending) > LINE_LIMIT:
                    raise Retry(
                        f"watching {self._response.url.path}: a line is longer than {LINE_LIMIT >> 20} MiB"
                    )
                for line in whole:
                    if line:
                        yield line
        except (aiohttp.ClientError, OSError) as error:
            raise Retry(f"watching {self._response.url.path}: the connection broke off") from error

    async def read(self) -> bytes:
        return await self._response.read()


class HttpTransport:
    """aiohttp's client, with the credentials of one cluster."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        user_agent: str = "karpenter",
        connections: int = 200,
    ) -> None:
        self._server = server.rstrip("/")
        self._credentials = credentials
        self._tls = tls
        self._server_name = server_name
        self._proxy = proxy
        self._user_agent = user_agent
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Reply:
        reply = await self._send_once(request)
        if reply.status == 401 and await self._credentials.refresh():
            return await self._send_once(request)
        return reply

    async def _send_once(self, request: Request) -> Reply:
        try:
            async with self._call(request, await self._headers(request), request.timeout) as response:
                return Reply(response.status, await response.read(), response.headers)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Retry(f"calling {request.method} {request.path}: {_what(error)}") from error

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Lines]:
        headers = await self._headers(request)
        try:
            response = await self._call(request, headers, None)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Retry(f"watching {request.path}: {_what(error)}") from error
        try:
            if response.status == 401:
                await self._credentials.refresh()
            yield _HttpLines(response)
        finally:
            response.close()

    def _call(
        self, request: Request, headers: Mapping[str, str], total: float | None
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, ssl=self._tls if self._tls is not None else True
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        return self._session.request(
            request.method,
            self._server + request.path,
            params=dict(request.query),
            data=request.body,
            headers=headers,
            proxy=self._proxy,
            server_hostname=self._server_name,
            timeout=aiohttp.ClientTimeout(total=total, sock_connect=30),
        )

    async def _headers(self, request: Request) -> dict[str, str]:
        headers = {"User-Agent": self._user_agent, "Accept": "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return headers | await self._credentials.headers()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _what(error: BaseException) -> str:
    # A timeout has no text of its own, and a person needs one.
    return str(error) or (
        "no answer in time" if isinstance(error, asyncio.TimeoutError) else type(error).__name__
    )
