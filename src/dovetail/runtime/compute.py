"""Where heavy pure work is done, so that the loop never stalls."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import ParamSpec, TypeVar

from dovetail.errors import Retry

__all__ = ["Workers", "inline"]

P = ParamSpec("P")
R = TypeVar("R")


async def inline(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Do the work here and now: for tests and simulation, where one thread makes one story."""
    return work(*args, **kwargs)


class Workers:
    """Worker processes. One that dies takes its work with it once; the work is then tried on a new one."""

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    async def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        call = partial(work, *args, **kwargs)
        loop = asyncio.get_running_loop()
        for last in (False, True):
            pool = self._started()
            try:
                return await loop.run_in_executor(pool, call)
            except BrokenProcessPool as error:
                if self._pool is pool:
                    self._pool = None
                    pool.shutdown(wait=False)
                if last:
                    raise Retry(
                        f"computing {getattr(work, '__name__', 'a plan')}: two workers died on it"
                    ) from error
        raise AssertionError("the second try returns or raises")

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Spawned, not forked: a fork would copy the event loop's threads in an unknown state.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, mp_context=context, initializer=_leave_signals)
        return self._pool

    def close(self) -> None:
        """End the workers; whatever they were at is of no use to anyone now."""
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
