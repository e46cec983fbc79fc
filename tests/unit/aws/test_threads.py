"""Threads for sockets: as many as asked for, and none that holds up the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from dovetail.aws.boto import DaemonThreads

ENDS = """
import time
from dovetail.aws.boto import DaemonThreads
threads = DaemonThreads(2, "test")
threads.submit(time.sleep, 60)
time.sleep(0.2)
threads.shutdown()
"""


async def test_work_is_done_at_once_by_no_more_threads_than_there_may_be() -> None:
    threads, loop = DaemonThreads(3, "test"), asyncio.get_running_loop()
    busy: list[int] = []
    lock, at_once = threading.Lock(), []

    def work(number: int) -> tuple[int, str]:
        with lock:
            busy.append(number)
            at_once.append(len(busy))
        time.sleep(0.01)
        with lock:
            busy.remove(number)
        return number, threading.current_thread().name

    found = await asyncio.gather(*(loop.run_in_executor(threads, work, n) for n in range(30)))
    threads.shutdown()
    assert [number for number, _ in found] == list(range(30))
    assert max(at_once) <= 3
    assert {name for _, name in found} <= {"test-1", "test-2", "test-3"}


async def test_one_thread_does_for_work_that_comes_one_by_one() -> None:
    threads, loop = DaemonThreads(8, "test"), asyncio.get_running_loop()
    names = set()
    for _ in range(20):
        names.add(await loop.run_in_executor(threads, lambda: threading.current_thread().name))
        await asyncio.sleep(0.005)
    threads.shutdown()
    assert len(names) < 8


async def test_an_error_is_the_askers() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        await asyncio.get_running_loop().run_in_executor(threads, lambda: 1 / 0)
    assert await asyncio.get_running_loop().run_in_executor(threads, lambda: 7) == 7
    threads.shutdown()


async def test_what_has_not_begun_is_given_up_and_nothing_more_is_taken() -> None:
    threads, go = DaemonThreads(1, "test"), threading.Event()
    first, second = threads.submit(go.wait, 10), threads.submit(lambda: 2)
    threads.shutdown()
    go.set()
    assert first.result(10)
    assert second.cancelled()
    with pytest.raises(RuntimeError, match="let go"):
        threads.submit(lambda: 3)


def test_a_process_ends_while_a_thread_still_waits() -> None:
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", ENDS], timeout=50, check=False).returncode == 0
    assert time.monotonic() - began < 40
