"""A server for strangers: connections, headers and bodies within bounds, whoever asks and however slowly."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import compression_utils, web

from dovetail.errors import Misconfigured
from dovetail.runtime import health
from dovetail.runtime.http_listener import HttpListener, LimitedHandler, ServerLimits, start_listener

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def serving(
    limits: ServerLimits | None = None, handler: type[LimitedHandler] = LimitedHandler
) -> AsyncIterator[tuple[HttpListener, int]]:
    listener = await start_listener(
        health.build_probes_app([]), 0, "127.0.0.1", limits=limits, handler=handler
    )
    try:
        yield listener, int(listener.addresses[0][1])
    finally:
        await listener.cleanup()


async def opened(port: int, count: int, said: bytes = b"") -> list[Connection]:
    found = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        found.append((reader, writer))
    return found


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def end(connections: list[Connection]) -> None:
    for _, writer in connections:
        writer.close()


async def test_idle_connections_beyond_the_bound_make_room_for_who_asks() -> None:
    async with serving(ServerLimits(connections=20, per_source=10)) as (listener, port):
        idle = await opened(port, 100)
        assert b"200 OK" in await asked(port, GET)
        assert len(listener.gate) <= 10
        assert listener.gate.cut >= 90
        end(idle)


async def test_all_sources_together_have_a_bound_too() -> None:
    async with serving(ServerLimits(connections=20, per_source=1_000)) as (listener, port):
        idle = await opened(port, 100)
        assert b"200 OK" in await asked(port, GET)
        assert len(listener.gate) <= 20
        assert listener.gate.cut >= 80
        end(idle)


@pytest.mark.parametrize("said", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: "])
async def test_who_does_not_finish_a_request_is_cut_off(said: bytes) -> None:
    cut: list[LimitedHandler] = []

    class NotedHandler(LimitedHandler):
        __slots__ = ()

        def abort(self) -> None:
            cut.append(self)
            super().abort()

    async with serving(ServerLimits(headers=0.05, idle=1.0), NotedHandler) as (_, port):
        ((reader, writer),) = await opened(port, 1, said)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
    assert cut, "by us, and not by aiohttp for being idle"


async def test_a_second_request_that_is_never_finished_is_cut_off_as_an_idle_connection_is() -> None:
    async with serving(ServerLimits(headers=0.05, idle=0.1)) as (_, port):
        ((reader, writer),) = await opened(port, 1, GET.replace(b"Connection: close\r\n", b"") + b"GET /he")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(100_000)
        writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/nowhere"])
async def test_a_packed_body_is_not_unpacked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inflated: list[int] = []
    made = compression_utils.ZLibDecompressor.__init__

    def noted(self: object, *given: object, **named: object) -> None:
        inflated.append(1)
        made(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(compression_utils.ZLibDecompressor, "__init__", noted)
    bomb = gzip.compress(bytes(64 * 2**20))[: 2**20]
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    async with serving(ServerLimits(idle=0.1)) as (_, port):
        answer = await asked(port, head.encode() + bomb)

    assert answer == b"" or b" 40" in answer.partition(b"\r\n")[0]
    assert inflated == []


async def test_headers_have_bounds() -> None:
    async with serving() as (_, port):
        assert (
            b"400" in (await asked(port, b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 10_000 + b"\r\n\r\n"))[:20]
        )
        many = b"".join(b"X-%d: y\r\n" % number for number in range(500))
        assert b"400" in (await asked(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n"))[:20]


async def test_a_port_in_use_is_one_sentence() -> None:
    async with serving() as (_, port):
        with pytest.raises(Misconfigured, match=f"listening on port {port}"):
            await start_listener(web.Application(), port, "127.0.0.1")


async def test_probes_that_come_together_ask_once() -> None:
    times = 0

    async def check() -> str | None:
        nonlocal times
        times += 1
        await asyncio.sleep(0)
        return None

    answer = health.shared_check([check])
    assert await asyncio.gather(*(answer() for _ in range(50))) == [[]] * 50
    assert times == 1
    await answer()
    assert times == 2


async def test_probes_are_answered_among_idle_and_half_open_connections_and_packed_bodies() -> None:
    fed = 0

    class Counted(LimitedHandler):
        __slots__ = ()

        def data_received(self, data: bytes) -> None:
            nonlocal fed
            fed += len(data)
            super().data_received(data)

    bomb = gzip.compress(bytes(1024 * 2**20 // 64), 1)[:1].ljust(2**20, b"\x00")
    head = (
        f"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    )
    async with serving(handler=Counted) as (listener, port):
        crowd = await opened(port, 300) + await opened(port, 100, b"GET /healthz HTTP/1.1\r\nHost:")
        for _ in range(20):
            await asked(port, head.encode() + bomb)
            assert b"200 OK" in await asked(port, GET)
        assert len(listener.gate) <= ServerLimits().per_source
        end(crowd)
    # Of twenty megabytes only what the kernel had ready was read: refused requests are not read to their end.
    assert fed < 20 * 2**20 / 2
