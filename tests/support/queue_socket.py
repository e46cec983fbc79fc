"""The fleet's AWS for other processes: the Aws port over a Unix socket, as cheap as a call can be."""

from __future__ import annotations

import asyncio
import pickle
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dovetail.aws import Answer, Aws, AwsError, aws_error
from support.queues import FleetAws

__all__ = ["SocketAws", "listening"]

HEAD = struct.Struct(">I")


async def _framed(reader: asyncio.StreamReader) -> Any:
    (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
    return pickle.loads(await reader.readexactly(size))


def _frame(value: Any) -> bytes:
    data = pickle.dumps(value, protocol=5)
    return HEAD.pack(len(data)) + data


@asynccontextmanager
async def listening(aws: FleetAws, path: str) -> AsyncIterator[None]:
    """Answer whoever connects while the block lasts."""
    tasks: set[asyncio.Task[None]] = set()

    async def answer(writer: asyncio.StreamWriter, number: int, asked: tuple[Any, ...]) -> None:
        try:
            told: tuple[Any, ...] = (number, "answer", await aws.call(*asked))
        except AwsError as error:
            told = (number, "refused", (error.operation, error.code, error.message, error.status))
        if not writer.is_closing():
            writer.write(_frame(told))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                number, asked = await _framed(reader)
                task = asyncio.create_task(answer(writer, number, asked))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SocketAws:
    """The port's other end."""

    def __init__(self, region: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.region = region
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._number, self.took = 0, 0.0
        self._listener = asyncio.create_task(self._listen())

    @staticmethod
    async def connected(region: str, path: str) -> SocketAws:
        return SocketAws(region, *await asyncio.open_unix_connection(path))

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return self

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self._number += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = future
        begun = time.monotonic()
        self._writer.write(_frame((self._number, (service, operation, dict(parameters)))))
        answer = await future
        # Whoever asked goes on at once, so that this is true of the call it has just made.
        self.took = time.monotonic() - begun
        return answer

    async def _listen(self) -> None:
        while True:
            number, how, told = await _framed(self._reader)
            future = self._waiting.pop(number)
            if future.done():
                continue
            if how == "answer":
                future.set_result(told)
            else:
                future.set_exception(aws_error(*told))
