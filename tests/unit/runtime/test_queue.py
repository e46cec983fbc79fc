"""The work queue: each key once, none lost, failures spaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dovetail.controllers.base import Backoff
from dovetail.runtime import metrics
from dovetail.runtime.queue import Closed, WorkQueue
from dovetail.sim.clock import VirtualClock, run_virtual

Story = Callable[[WorkQueue, VirtualClock], Awaitable[None]]
PATIENT = Backoff(first=1, last=8, per_second=1000, burst=1000)


def queued(story: Story, backoff: Backoff = PATIENT) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await story(WorkQueue("test", clock, backoff), clock)

    run_virtual(main())


def test_a_key_added_twice_is_worked_on_once() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        queue.add("a")
        queue.add("a")
        assert await queue.get() == "a"
        assert len(queue) == 0
        queue.mark_done("a")
        assert queue.idle

    queued(story)


def test_a_key_added_while_worked_on_waits_and_then_comes_again() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0, "the same key must never be worked on twice at once"
        queue.mark_done("a")
        assert len(queue) == 1

    queued(story)


def test_keys_come_in_the_order_they_were_added() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        for key in "cab":
            queue.add(key)
        assert [await queue.get() for _ in range(3)] == ["c", "a", "b"]

    queued(story)


def test_failures_back_off_per_key_up_to_a_last_delay() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        delays = []
        for _ in range(6):
            queue.retry("a")
            asked = clock.monotonic()
            key = await queue.get()
            delays.append(clock.monotonic() - asked)
            queue.mark_done(key)
        assert delays == pytest.approx([1, 2, 4, 8, 8, 8])
        queue.forget("a")
        queue.retry("a")
        asked = clock.monotonic()
        await queue.get()
        assert clock.monotonic() - asked == pytest.approx(1)

    queued(story)


def test_many_failures_at_once_are_spread_by_the_bucket() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        for n in range(30):
            queue.retry(str(n))
        for _ in range(30):
            queue.mark_done(await queue.get())
        assert clock.monotonic() == pytest.approx(2.0), "10 in the burst, the other 20 at 10 a second"

    queued(story, Backoff(first=0.001, last=1, per_second=10, burst=10))


def test_the_earlier_of_two_dates_wins_and_the_later_one_is_forgotten() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        queue.add_after("a", 30)
        queue.add_after("a", 10)
        queue.add_after("a", 20)
        queue.mark_done(await queue.get())
        assert clock.monotonic() == pytest.approx(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 100)

    queued(story)


def test_a_closed_queue_gives_no_more_keys() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add_after("later", 5)
        queue.close()
        queue.add("late")
        with pytest.raises(Closed):
            await waiting
        assert queue.idle

    queued(story)


def test_work_that_never_ends_is_seen_to_grow_old() -> None:
    def shown(name: str) -> float | None:
        return metrics.REGISTRY.get_sample_value(name, {"name": "test", "controller": "test"})

    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        for number in range(100):
            queue.add(str(number))
            await queue.get()
        await clock.sleep(60)
        queue.report()
        assert shown("workqueue_longest_running_processor_seconds") == pytest.approx(60)
        assert shown("workqueue_unfinished_work_seconds") == pytest.approx(6000)

    queued(story)


def test_a_retry_waits_at_least_as_long_as_the_other_side_asked() -> None:
    async def story(queue: WorkQueue, clock: VirtualClock) -> None:
        queue.retry("a", at_least=30)
        await queue.get()
        assert clock.monotonic() == pytest.approx(30)

    queued(story)
