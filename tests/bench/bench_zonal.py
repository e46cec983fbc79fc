"""Zonal shift at size: 5,000 nodes and 200 pools, in virtual time and within the client's rate."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from .registry import Figure, scenario

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail.sim.clock import run_virtual
from support.zonal import A, B, C, Shifted, entry

NODES, POOLS, QPS = 5000, 200, 50.0


@scenario("zonal-shift")
def measured() -> Iterator[Figure]:
    yield from run_virtual(_measured())


async def _measured() -> list[Figure]:
    third = NODES // 3
    world = Shifted(
        mode="Both", nodes={A: NODES, B: third // 20, C: third // 20}, qps=QPS, restore_interval=30.0
    )
    for number in range(POOLS):
        world.pool(f"pool-{number:03d}", entry("In", A, B, C))
    async with world.running():
        await world.settle(30)
        before = [world.wanted(f"pool-{number:03d}") for number in range(POOLS)]
        gc.collect()
        tracemalloc.start()
        cpu = time.process_time()
        await world.shift(A)
        world.zonal.controller.poll_now()
        gate = await world.until(lambda: world.gates.is_launch_closed(world.ids(A)), within=60, step=0.1)
        protect = gate + await world.until(lambda: len(world.protected()) == NODES, within=300, step=2)
        edited = protect + await world.until(lambda: world.phase() == "Active", within=300, step=1)
        writes = len(world.transport.written)
        gc.collect()
        grown = _ours()
        tracemalloc.stop()
        await world.settle(300)
        await world.cancel()
        restore = await world.restored(within=3600)
        same = before == [world.wanted(f"pool-{number:03d}") for number in range(POOLS)]
        spent = time.process_time() - cpu
    return [
        Figure("gate", gate, "s", 5.0),
        Figure("protect 5,000 nodes", protect, "s", 120.0),
        Figure("edit 200 pools", edited, "s"),
        Figure("writes until active", writes, "", NODES + POOLS + 300),
        Figure("restore", restore, "s"),
        Figure("restored to the byte", float(same), "", 1.0, more_is_better=True),
        Figure("memory", grown / 2**20, "MB", 50.0),
        Figure("processor time", spent, "s"),
    ]


def _ours() -> int:
    """What was made since tracing began and is held, without the embedded server's and the test's part."""
    held = tracemalloc.take_snapshot().statistics("filename")
    return sum(each.size for each in held if not _theirs(each.traceback[0].filename))


def _theirs(file: str) -> bool:
    return "/dovetail/sim/" in file or "/tests/" in file
