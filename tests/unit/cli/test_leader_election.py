"""A program works while its process leads, and ends when another leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

from dovetail.app.leader_election import work_while_leading
from dovetail.runtime.leader import ElectorThread
from dovetail.runtime.manager import Manager
from dovetail.sim.clock import VirtualClock


class Lease:
    """An elector whose lease a test gives and takes."""

    def __init__(self) -> None:
        self.held, self.lost = asyncio.Event(), asyncio.Event()
        self.started = False

    def start(self) -> None:
        self.started = True

    async def wait_leading(self) -> None:
        await self.held.wait()

    async def wait_lost(self) -> None:
        await self.lost.wait()


class Program:
    """Works once it is elected, until it is stopped."""

    def __init__(self) -> None:
        self.manager = Manager(VirtualClock(), Random(0))
        self.working, self.told = False, asyncio.Event()

    async def run(self, elected: Callable[[], Awaitable[None]], /) -> None:
        await elected()
        self.working = True
        await self.told.wait()
        self.working = False

    def stop(self) -> None:
        self.told.set()


async def started(lease: Lease | None) -> tuple[Program, asyncio.Task[bool]]:
    program = Program()
    task = asyncio.create_task(work_while_leading(program, cast(ElectorThread, cast(Any, lease))))
    await asyncio.sleep(0.01)
    return program, task


async def test_work_begins_with_the_lease_and_ends_when_it_is_lost() -> None:
    lease = Lease()
    program, task = await started(lease)
    assert (lease.started, program.working) == (True, False)
    lease.held.set()
    await asyncio.sleep(0.01)
    assert program.working
    lease.lost.set()
    assert await asyncio.wait_for(task, 5) is False
    assert not program.working


async def test_a_program_that_is_told_to_stop_ends_well() -> None:
    lease = Lease()
    lease.held.set()
    program, task = await started(lease)
    program.stop()
    assert await asyncio.wait_for(task, 5) is True


async def test_without_election_work_begins_at_once() -> None:
    program, task = await started(None)
    assert program.working
    program.stop()
    assert await asyncio.wait_for(task, 5) is True
