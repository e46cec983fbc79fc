"""At the end of a process, work is finished; what only waits is not waited for."""

from __future__ import annotations

import asyncio
from random import Random

from dovetail.controllers.base import DONE, SINGLETON, Backoff, Result, Trigger, mark_idle
from dovetail.runtime.manager import Manager
from dovetail.sim.clock import VirtualClock
from support.stage import virtual


class Waiting:
    """Waits for long, then has something to do that takes a while."""

    name = "waiting"
    singleton = False
    concurrency = 1
    backoff = Backoff()
    triggers: tuple[Trigger, ...] = ()

    def __init__(self, waits: float, works: float) -> None:
        self.waits, self.works, self.done = waits, works, False

    async def reconcile(self, key: str) -> Result:
        with mark_idle():
            await asyncio.sleep(self.waits)
        await asyncio.sleep(self.works)
        self.done = True
        return DONE


async def ended_after(controller: Waiting, stop_at: float) -> float:
    """Seconds from the wish to stop to the end."""
    clock = VirtualClock()
    manager = Manager(clock, Random(0))
    queue = manager.add(controller)
    queue.add(SINGLETON)
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(stop_at)
    began = clock.monotonic()
    manager.stop()
    await running
    return clock.monotonic() - began


@virtual
async def test_who_only_waits_is_let_go_at_once() -> None:
    controller = Waiting(20.0, 1.0)
    assert await ended_after(controller, 5.0) < 1.0
    assert not controller.done


@virtual
async def test_who_works_may_finish() -> None:
    controller = Waiting(2.0, 6.0)
    assert 2.9 < await ended_after(controller, 5.0) < 4.0
    assert controller.done
