"""A transport to an embedded API server without a socket: same requests, same answers, same faults.

It runs in virtual time, where sockets do not belong. What the network does is done here as well: a
request that is held back still arrives when its sender has given up on it, as letters do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from dovetail.errors import Retry
from dovetail.runtime.transport import USER_AGENT, ApiReply, ApiRequest, Lines
from dovetail.sim.faults import LateReply
from dovetail.sim.kube import status
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import Fault
from dovetail.sim.kube.http import replies, requests
from dovetail.sim.kube.http.routes import NotServed, ServerRequest, split_path
from dovetail.sim.kube.http.streams import WatchStream, send_lines

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
        self._on_the_way: set[asyncio.Task[replies.ServerReply | WatchStream]] = set()

    async def send(self, request: ApiRequest) -> ApiReply:
        answer = await self._answer_in_time(request)
        assert isinstance(answer, replies.ServerReply), "a watch is opened with stream()"
        return _build_reply(answer)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        answer = await self._answer_in_time(request)
        if isinstance(answer, replies.ServerReply):
            yield _Refusal(_build_reply(answer))
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

    async def _answer_in_time(self, request: ApiRequest) -> replies.ServerReply | WatchStream:
        try:
            async with asyncio.timeout(request.timeout):
                return await self._answer_request(request)
        except TimeoutError:
            raise Retry(f"calling {request.method} {request.path}: no answer in time") from None
        except _Reset:
            raise Retry(f"calling {request.method} {request.path}: the connection was reset") from None

    async def _answer_request(self, request: ApiRequest) -> replies.ServerReply | WatchStream:
        asked = self._translate_request(request)
        call = asked.describe_call(self._server.registry)
        fault = self._server.faults.find_fault(call) if call is not None else None
        if fault is None:
            return await self._respond(asked, None)
        task = asyncio.create_task(self._apply_fault(asked, fault))
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)
        try:
            answer = await asyncio.shield(task)
            if isinstance(fault, LateReply):
                await self._server.clock.sleep(fault.reply_delay)
        except asyncio.CancelledError:
            task.add_done_callback(_drop_answer)
            raise
        return answer

    async def _apply_fault(self, asked: ServerRequest, fault: Fault) -> replies.ServerReply | WatchStream:
        if fault.delay:
            await self._server.clock.sleep(fault.delay)
        if not fault.after_commit:
            broken = _break_answer(fault)
            return broken if broken is not None else await self._respond(asked, fault)
        answer = await self._respond(asked, fault)
        return _break_answer(fault) or answer

    async def _respond(self, asked: ServerRequest, fault: Fault | None) -> replies.ServerReply | WatchStream:
        try:
            return await requests.answer_request(self._server, asked, fault)
        except NotServed:
            return replies.build_text_reply("404 page not found\n", 404)
        except status.ApiError as error:
            return replies.build_error_reply(error)

    def _translate_request(self, request: ApiRequest) -> ServerRequest:
        return ServerRequest(
            method=request.method,
            parts=split_path(request.path),
            query=request.query,
            accept="application/json",
            content_type=request.content_type if request.body is not None else "",
            agent=self._user_agent,
            if_none_match=request.known,
            user=_USER,
            body=request.body or b"",
        )


def _drop_answer(task: asyncio.Task[replies.ServerReply | WatchStream]) -> None:
    """Nobody waits for the answer any more: let go of what it holds."""
    if not task.cancelled() and task.exception() is None and isinstance(stream := task.result(), WatchStream):
        stream.watch.close()


def _break_answer(fault: Fault) -> replies.ServerReply | None:
    if fault.reset:
        raise _Reset
    return replies.build_error_reply(fault.error) if fault.error is not None else None


def _build_reply(answer: replies.ServerReply) -> ApiReply:
    body = answer.body if answer.chunks is None else b"".join(answer.chunks)
    return ApiReply(answer.status, body, dict(answer.headers))


class _Refusal:
    """A watch that was answered like any other request."""

    def __init__(self, reply: ApiReply) -> None:
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

    def __init__(self, server: ApiServer, path: str, stream: WatchStream) -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self._server = server
        self._path = path
        self._stream = stream
        self._ending = asyncio.ensure_future(self._end_in_time(server))

    async def _end_in_time(self, server: ApiServer) -> None:
        await server.clock.sleep(self._stream.seconds)
        self._stream.watch.send_bookmark(server.store.revision)
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
