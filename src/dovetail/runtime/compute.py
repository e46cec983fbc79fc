"""Where heavy pure work is done, so that the loop never stalls."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar
from zlib import crc32

from dovetail.errors import Retry
from dovetail.runtime.worker_transfer import HEAD, Parcel, ParcelSender, as_frame

__all__ = ["PassingWorkers", "WorkerPool", "inline"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
NICE = 10
FEW = 256
"""So few items are not worth a second worker, which has to be told of the whole world first."""


class InlineCompute:
    """Do the work here and now: for tests and simulation, where one thread makes one story."""

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return work(*args, **kwargs)

    async def map_items(
        self, work: Callable[[S, Sequence[T]], Sequence[R]], shared: S, items: Sequence[T]
    ) -> list[R]:
        """The work done for all the items."""
        return list(work(shared, items))


inline = InlineCompute()


class WorkerPool:
    """Worker processes. One that dies takes its work with it once; the work is then tried on a new one.

    Single questions go to the first; the others start when there is enough to spread.
    """

    def __init__(self, count: int = 1) -> None:
        self._lanes = [_Lane() for _ in range(count)]

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._lanes[0].run_work(work, args, kwargs)
        return result

    async def map_items(
        self, work: Callable[[S, Sequence[T]], Sequence[R]], shared: S, items: Sequence[T]
    ) -> list[R]:
        """The work done for all the items, some by each worker; the results in the order of the items."""
        lanes = self._lanes[: max(1, len(items) // FEW)]
        shares: list[list[T]] = [[] for _ in lanes]
        dealt = [_choose_worker(item, len(lanes)) for item in items]
        for item, to in zip(items, dealt, strict=True):
            shares[to].append(item)
        done = await asyncio.gather(
            *(lane.run_work(work, (shared, share), {}) for lane, share in zip(lanes, shares, strict=True))
        )
        results = [iter(each) for each in done]
        return [next(results[to]) for to in dealt]

    def close(self) -> None:
        """End the workers; whatever they were at is of no use to anyone now."""
        for lane in self._lanes:
            lane.close()


class PassingWorkers:
    """A worker process for each piece of work, which ends with it and steps back for all others.

    For what is rare and may take long: nothing else waits behind it, and no memory is held between.
    """

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        lane = _Lane(NICE)
        try:
            result: R = await lane.run_work(work, args, kwargs)
        finally:
            lane.close()
        return result

    async def map_items(
        self, work: Callable[[S, Sequence[T]], Sequence[R]], shared: S, items: Sequence[T]
    ) -> list[R]:
        """The work done for all the items, by one worker."""
        return list(await self(work, shared, items))


def _choose_worker(item: object, lanes: int) -> int:
    """Which worker an item goes to: the same as last time, who knows most about it.

    Where it stands among the others has no say in it, for that changes with every little thing.
    """
    return crc32(repr(item).encode()) % lanes if lanes > 1 else 0


class WorkerDied(Exception):
    """The worker is gone, and nobody knows how far it came."""


class _Worker:
    """A child process at the other end of a socket."""

    def __init__(self, nice: int) -> None:
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        # Not forked: that would copy the event loop's threads in an unknown state.
        program = (
            f"import os, sys; os.nice({nice}); sys.path[:] = {sys.path!r}; "
            "from dovetail.runtime.worker_transfer import answer_questions; "
            f"answer_questions({theirs.fileno()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-c", program],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    async def send_parcel(self, parcel: Parcel) -> bytes:
        """The packed answer; WorkerDied when there will be none."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._line, as_frame(pickle.dumps(parcel)))
            size = int.from_bytes(await self._read_bytes(HEAD), "big")
            answered, answer = pickle.loads(await self._read_bytes(size))
        except OSError as error:
            raise WorkerDied(str(error)) from error
        if not answered:
            raise answer
        packed: bytes = answer
        return packed

    async def _read_bytes(self, size: int) -> bytearray:
        loop, found = asyncio.get_running_loop(), bytearray(size)
        rest = memoryview(found)
        while rest:
            count = await loop.sock_recv_into(self._line, rest)
            if not count:
                raise WorkerDied("the worker closed its line")
            rest = rest[count:]
        return found

    def close(self) -> None:
        with suppress(OSError):
            # Whoever still waits for an answer hears that there will be none.
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        self._process.kill()
        self._process.wait()


class _Lane:
    """One worker and what it has been told. Questions to it wait for one another."""

    def __init__(self, nice: int = 0) -> None:
        self._nice = nice
        self._worker: _Worker | None = None
        self._sender = ParcelSender()
        self._turn = asyncio.Lock()
        self._ended = False

    async def run_work(self, work: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        async with self._turn:
            for last in (False, True):
                try:
                    return await self._send_question(self._ensure_worker(), (work, args, kwargs))
                except WorkerDied as error:
                    if last:
                        raise Retry(
                            f"computing {getattr(work, '__name__', 'a plan')}: two workers died on it"
                        ) from error
        raise AssertionError("the second try returns or raises")

    async def _send_question(self, worker: _Worker, question: object) -> Any:
        answer = b""
        try:
            for parcel in self._sender.pack(question):
                answer = await worker.send_parcel(parcel)
        except (WorkerDied, asyncio.CancelledError):
            # It is not known what the worker has been told: another one is told everything.
            self._drop_worker()
            raise
        return self._sender.unpack(answer)

    def _ensure_worker(self) -> _Worker:
        if self._ended:
            raise Retry("computing: the workers were told to end")
        if self._worker is None:
            self._worker, self._sender = _Worker(self._nice), ParcelSender()
        return self._worker

    def _drop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End the worker for good."""
        self._ended = True
        self._drop_worker()
