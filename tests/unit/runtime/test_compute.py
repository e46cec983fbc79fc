"""Heavy work elsewhere: its results, its errors, and workers that die."""

from __future__ import annotations

import asyncio
import operator
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.errors import Refused, Retry
from dovetail.runtime.compute import PassingWorkers, WorkerPool, inline
from support.worker_tasks import be_stubborn, crash_once, refuse


@pytest.fixture
async def workers() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool()
    yield pool
    pool.close()


async def test_inline_work_is_done_here_and_now() -> None:
    assert await inline(os.getpid) == os.getpid()
    assert await inline(sorted, [2, 1], reverse=True) == [2, 1]


async def test_a_worker_is_another_process_and_the_loop_stays_free(workers: WorkerPool) -> None:
    assert await workers(os.getpid) != os.getpid()
    work = asyncio.ensure_future(workers(time.sleep, 0.3))
    ticks = 0
    while not work.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5


async def test_an_error_comes_back_as_itself(workers: WorkerPool) -> None:
    with pytest.raises(ZeroDivisionError):
        await workers(operator.truediv, 1, 0)
    with pytest.raises(Refused, match="not today"):
        await workers(refuse)


async def test_work_whose_worker_dies_is_done_by_another(workers: WorkerPool, tmp_path: Path) -> None:
    assert await workers(crash_once, str(tmp_path / "flag")) == "done by another"


async def test_work_that_kills_every_worker_is_given_up_and_the_next_is_served(workers: WorkerPool) -> None:
    with pytest.raises(Retry, match="two workers died on it"):
        await workers(os._exit, 3)
    assert await workers(operator.add, 1, 2) == 3


async def test_closing_does_not_wait_for_work_under_way() -> None:
    pool = WorkerPool()
    assert await pool(operator.add, 1, 2) == 3
    work = asyncio.ensure_future(pool(time.sleep, 60))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 5
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def test_a_worker_does_not_outlive_the_process_that_asks() -> None:
    program = (
        "import asyncio, os\n"
        "from dovetail.runtime.compute import WorkerPool\n"
        "async def main():\n"
        "    print(await WorkerPool()(os.getpid), flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended(int(done.stdout), within=60.0)


def ended(pid: int, within: float) -> bool:
    """Whether a process that is no child of ours ends; looks at it no longer than it must."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within)[0])
    finally:
        os.close(process)


async def test_a_worker_has_no_helpers_beside_it(workers: WorkerPool) -> None:
    pid = await workers(os.getpid)
    assert children(os.getpid()) == {pid}
    assert children(pid) == set()


def children(pid: int) -> set[int]:
    found = (task / "children" for task in Path(f"/proc/{pid}/task").iterdir())
    return {int(child) for file in found for child in file.read_text().split()}


async def test_an_error_that_cannot_be_sent_is_told_in_words(workers: WorkerPool) -> None:
    with pytest.raises(RuntimeError, match="Stubborn"):
        await workers(be_stubborn)


async def test_a_passing_worker_ends_with_its_work_and_steps_back_for_all_others() -> None:
    workers = PassingWorkers()
    first, second = await workers(os.getpid), await workers(os.getpid)
    assert len({os.getpid(), first, second}) == 3
    for over in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(over, 0)
    assert await workers(os.nice, 0) == min(19, os.nice(0) + 10)
    assert await workers.map_items(operator.add, (1, 2), (3, 4)) == [1, 2, 3, 4]
