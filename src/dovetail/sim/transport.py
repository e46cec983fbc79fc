"""The way to an embedded API server without a socket: same requests, same answers, same faults.

It runs in virtual time, where sockets do not belong. What the network does is done here as well: a
request that is held back still arrives when its sender has given up on it, as letters do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from dovetail.errors import Retry
from dovetail.runtime.transport import USER_AGENT, Lines, Reply, Request
from dovetail.sim.faults import LateReply
from dovetail.sim.kube import replies, requests, status
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults_hook import Fault
from dovetail.sim.kube.routes import NotServed, split_path
from dovetail.sim.kube.streams import Stream, send_lines

__all__ = ["LocalTransport"]

BATCH = 100
_USER = "system:admin"


class _Reset(Exception):
    """The connection was dropped by a fault rule."""


class LocalTransport:
    """Reaches an ApiServer in this process. Fault rules know its client by the agent's name."""

    def __init__(self, server: ApiServer, user_agent: str = USER_AGENT) -> None:
        self._server = server
        self._user_agent = user_agent
        # Owned here, or a request whose sender gave up could be collected on its way.
        self._on_the_way: set[asyncio.Task[replies.Reply | Stream]] = set()

    async def send(self, request: Request) -> Reply:
        answer = await self._in_time(request)
        assert isinstance(answer, replies.Reply), "a watch is opened with stream()"
        return _reply(answer)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Lines]:
        answer = await self._in_time(request)
        if isinstance(answer, replies.Reply):
            yield _Refusal(_reply(answer))
            return
        lines = _LocalLines(self._server, request.path, answer)
        try:
            yield lines
        finally:
            lines.close()

    async def close(self) -> None:
        for task in tuple(self._on_the_way):
            task.cancel()
        await asyncio.gather(*self._on_the_way, return_exceptions=True)

    async def _in_time(self, request: Request) -> replies.Reply | Stream:
        try:
            async with asyncio.timeout(request.timeout):
                return await self._answered(request)
        except TimeoutError:
            raise Retry(f"calling {request.method} {request.path}: no answer in time") from None
        except _Reset:
            raise Retry(f"calling {request.method} {request.path}: the connection was reset") from None

    async def _answered(self, request: Request) -> replies.Reply | Stream:
        asked = self._asked(request)
        call = asked.call(self._server.registry)
        fault = self._server.faults.consult(call) if call is not None else None
        if fault is None:
            return await self._respond(asked, None)
        task = asyncio.create_task(self._suffered(asked, fault))
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)
        try:
            answer = await asyncio.shield(task)
            if isinstance(fault, LateReply):
                await self._server.clock.sleep(fault.reply_delay)
        except asyncio.CancelledError:
            task.add_done_callback(_unheard)
            raise
        return answer

    async def _suffered(self, asked: requests.Request, fault: Fault) -> replies.Reply | Stream:
        if fault.delay:
            await self._server.clock.sleep(fault.delay)
        if not fault.after_commit:
            broken = _broken(fault)
            return broken if broken is not None else await self._respond(asked, fault)
        answer = await self._respond(asked, fault)
        return _broken(fault) or answer

    async def _respond(self, asked: requests.Request, fault: Fault | None) -> replies.Reply | Stream:
        try:
            return await requests.respond(self._server, asked, fault)
        except NotServed:
            return replies.text("404 page not found\n", 404)
        except status.ApiError as error:
            return replies.error(error)

    def _asked(self, request: Request) -> requests.Request:
        return requests.Request(
            method=request.method,
            parts=split_path(request.path),
            query=request.query,
            accept="application/json",
            content_type=request.content_type if request.body is not None else "",
            agent=self._user_agent,
            user=_USER,
            body=request.body or b"",
        )


def _unheard(task: asyncio.Task[replies.Reply | Stream]) -> None:
    """Nobody waits for the answer any more: let go of what it holds."""
    if not task.cancelled() and task.exception() is None and isinstance(stream := task.result(), Stream):
        stream.watch.close()


def _broken(fault: Fault) -> replies.Reply | None:
    if fault.reset:
        raise _Reset
    return replies.error(fault.error) if fault.error is not None else None


def _reply(answer: replies.Reply) -> Reply:
    body = answer.body if answer.chunks is None else b"".join(answer.chunks)
    return Reply(answer.status, body, dict(answer.headers))


class _Refusal:
    """A watch that was answered like any other request."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._body = reply.body

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        for one in (self._body,):
            yield [one]

    async def read(self) -> bytes:
        return self._body


class _LocalLines:
    """An open watch."""

    def __init__(self, server: ApiServer, path: str, stream: Stream) -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self._server = server
        self._path = path
        self._stream = stream
        self._ending = asyncio.ensure_future(self._end_in_time(server))

    async def _end_in_time(self, server: ApiServer) -> None:
        await server.clock.sleep(self._stream.seconds)
        self._stream.watch.bookmark(server.store.revision)
        self._stream.watch.close()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        async for lines in send_lines(self._server, self._stream, BATCH):
            yield [each.rstrip(b"\n") for each in lines]
        if self._stream.watch.broken:
            raise Retry(f"watching {self._path}: the connection broke off")

    async def read(self) -> bytes:
        return b""

    def close(self) -> None:
        self._ending.cancel()
        self._stream.watch.close()
