"""Laws of the work queue: no key is lost, and none is worked on twice at once."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.controllers.base import Backoff
from dovetail.runtime.queue import Closed, WorkQueue
from dovetail.sim.clock import VirtualClock, run_virtual

Step = tuple[str, str, float]

steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "later", "wait")),
        st.sampled_from("abcd"),
        st.sampled_from((0.0, 0.5, 3.0, 20.0)),
    ),
    max_size=60,
)


class Worker:
    """Works on keys for a while each, fails now and then, and keeps a book."""

    def __init__(self, queue: WorkQueue, clock: VirtualClock, chance: Random) -> None:
        self.queue, self.clock, self.chance = queue, clock, chance
        self.wanted: dict[str, float] = {}
        self.busy: set[str] = set()
        self.failing: set[str] = set()

    async def run(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except Closed:
                return
            assert key not in self.busy, f"{key} is worked on twice at once"
            self.busy.add(key)
            begun = self.clock.monotonic()
            await self.clock.sleep(self.chance.choice((0, 0.3, 2)))
            self.busy.discard(key)
            if self.chance.random() < 0.3:
                self.failing.add(key)
                self.queue.retry(key)
            else:
                self.failing.discard(key)
                self.queue.forget(key)
                if self.wanted.get(key, 0) <= begun:
                    self.wanted.pop(key, None)
            self.queue.mark_done(key)


@settings(max_examples=200, deadline=None)
@given(story=steps, workers=st.integers(1, 3), seed=st.integers(0, 1000))
def test_every_key_that_was_added_is_worked_on_after_it_was_added(
    story: list[Step], workers: int, seed: int
) -> None:
    async def main() -> None:
        clock = VirtualClock()
        queue = WorkQueue("laws", clock, Backoff(first=0.1, last=5, per_second=100, burst=100))
        worker = Worker(queue, clock, Random(seed))
        tasks = [asyncio.create_task(worker.run()) for _ in range(workers)]
        for verb, key, seconds in story:
            if verb == "wait":
                await clock.sleep(seconds)
                continue
            # An earlier date for the same key stands for a later one, as long as it is still to come.
            worker.wanted[key] = clock.monotonic()
            queue.add(key) if verb == "add" else queue.add_after(key, seconds)
        await clock.sleep(300)
        assert not worker.wanted, f"never worked on after they were added: {worker.wanted}"
        assert not worker.failing, "what failed is tried until it works"
        assert queue.idle
        queue.close()
        await asyncio.gather(*tasks)

    run_virtual(main())
