"""A decision can be made in another process: all it needs travels, and so does what comes of it."""

from __future__ import annotations

import pickle
from functools import partial

from dovetail.controllers.deadline import Deadline
from dovetail.disruption.methods.consolidation import choose_single_node
from dovetail.disruption.validate import validate_command
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import WorkerPool
from support.builders import pod
from support.disruption import pdb, scene, state


async def test_a_search_in_another_process_finds_the_same() -> None:
    world = scene(state("a", pod("p", cpu="500m", node="a")), pdbs=[pdb(allowed=1)])
    clock, workers = SystemClock(), WorkerPool()
    try:
        method = partial(choose_single_node, should_stop=Deadline(clock, clock.monotonic() + 60))
        found = await workers(method, world)
        valid = await workers(validate_command, world, found.commands[0])
    finally:
        workers.close()
    assert str(found.commands[0]) == str(choose_single_node(world).commands[0])
    assert str(valid) == str(found.commands[0])


async def test_time_that_is_up_here_is_up_there() -> None:
    world = scene(state("a", pod("p", cpu="500m", node="a")))
    clock = SystemClock()
    method = partial(choose_single_node, should_stop=Deadline(clock, clock.monotonic() - 1))
    there = pickle.loads(pickle.dumps(method))
    assert there(world).timed_out
