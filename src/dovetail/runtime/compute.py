"""Where heavy pure work is done, so that the loop never stalls."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, ParamSpec, TypeVar
from zlib import crc32

from dovetail.errors import Retry
from dovetail.runtime.parcels import Sender, serve

__all__ = ["Workers", "inline"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
FEW = 256
"""So few items are not worth a second worker, which has to be told of the whole world first."""


class Inline:
    """Do the work here and now: for tests and simulation, where one thread makes one story."""

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return work(*args, **kwargs)

    async def spread(
        self, work: Callable[[S, Sequence[T]], Sequence[R]], shared: S, items: Sequence[T]
    ) -> list[R]:
        """The work done for all the items."""
        return list(work(shared, items))


inline = Inline()


class Workers:
    """Worker processes. One that dies takes its work with it once; the work is then tried on a new one.

    Single questions go to the first; the others start when there is enough to spread.
    """

    def __init__(self, count: int = 1) -> None:
        self._lanes = [_Lane() for _ in range(count)]

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._lanes[0].ask(work, args, kwargs)
        return result

    async def spread(
        self, work: Callable[[S, Sequence[T]], Sequence[R]], shared: S, items: Sequence[T]
    ) -> list[R]:
        """The work done for all the items, some by each worker; the results in the order of the items."""
        lanes = self._lanes[: max(1, len(items) // FEW)]
        shares: list[list[T]] = [[] for _ in lanes]
        dealt = [_dealt(item, len(lanes)) for item in items]
        for item, to in zip(items, dealt, strict=True):
            shares[to].append(item)
        done = await asyncio.gather(
            *(lane.ask(work, (shared, share), {}) for lane, share in zip(lanes, shares, strict=True))
        )
        results = [iter(each) for each in done]
        return [next(results[to]) for to in dealt]

    def close(self) -> None:
        """End the workers; whatever they were at is of no use to anyone now."""
        for lane in self._lanes:
            lane.close()


def _dealt(item: object, lanes: int) -> int:
    """Which worker an item goes to: the same as last time, who knows most about it.

    Where it stands among the others has no say in it, for that changes with every little thing.
    """
    return crc32(repr(item).encode()) % lanes if lanes > 1 else 0


class _Lane:
    """One worker and what it has been told. Questions to it wait for one another."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._sender = Sender()
        self._turn = asyncio.Lock()

    async def ask(self, work: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        async with self._turn:
            for last in (False, True):
                pool = self._started()
                try:
                    return await self._asked(pool, (work, args, kwargs))
                except BrokenProcessPool as error:
                    pool.shutdown(wait=False)
                    self._pool = None
                    if last:
                        raise Retry(
                            f"computing {getattr(work, '__name__', 'a plan')}: two workers died on it"
                        ) from error
        raise AssertionError("the second try returns or raises")

    async def _asked(self, pool: ProcessPoolExecutor, question: object) -> Any:
        loop, sender = asyncio.get_running_loop(), self._sender
        answer = None
        try:
            for parcel in sender.pack(question):
                answer = loop.run_in_executor(pool, serve, parcel)
                if not parcel.body:
                    await answer
        except BaseException:
            # It is not known what the worker has been told: another one is told everything.
            self.close()
            raise
        assert answer is not None, "the last parcel has the question"
        return sender.unpack(await answer)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Spawned, not forked: a fork would copy the event loop's threads in an unknown state.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_leave_signals)
            self._sender = Sender()
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            workers = tuple((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.kill()
                worker.join()
            self._pool = None


def _leave_signals() -> None:
    # Ctrl-C reaches the whole group; the main process decides what becomes of work under way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
