"""Threads that wait for sockets and keep no process alive: a long poll must not hold up its end.

The standard library's pool is waited for when the interpreter ends: 20 seconds for a queue's long poll.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["Threads"]

P = ParamSpec("P")
R = TypeVar("R")


class Threads(Executor):
    """At most so many at once, started as they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads have been let go of")
            self._work.put((future, lambda: work(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Take nothing more, and give up what has not begun. What has begun ends by itself or with us."""
        with self._lock:
            self._closed = True
        while cancel_futures:
            try:
                left = self._work.get_nowait()
            except Empty:
                break
            if left is not None:
                left[0].cancel()
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (asked := self._work.get()) is not None:
            _do(*asked)
            # Not held while waiting: an answer would keep its memory until the next request.
            del asked
            self._idle.release()


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001
        # Whatever it is, it belongs to the one who asked.
        future.set_exception(error)
