"""Keep a simulated cluster busy and see whether anything piles up.

An hour of 100 nodes and 3,000 pods with ten pods replaced every second passes in about half a minute of
virtual time; `--minutes` runs on the wall's clock instead. A line per (virtual) ten minutes, or per real
minute, says how much memory is held and how late watchers hear of things. Ends with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dovetail.runtime.clock import SystemClock
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.world import World, relax_garbage_collector
from support.churn import Churn, Size, leftovers, resident_bytes

LATE = 0.1


async def soak(world: World, size: Size, rounds: int, seconds: int, clock: str) -> list[str]:
    """Churn in rounds, a report after each; what went wrong comes back."""
    churn = Churn(world, size)
    churn.watched.clock = time.perf_counter if clock == "real" else time.process_time
    wrong: list[str] = []
    async with world.running():
        await churn.fill(30)
        churn.more_kinds()
        await world.settle(30)
        relax_garbage_collector()
        watching = asyncio.create_task(churn.watch())
        begun = time.process_time()
        for number in range(rounds):
            churn.watched.worst = 0.0
            await churn.run(seconds)
            worst, memory = churn.watched.worst, resident_bytes() / 1e6
            spent = time.process_time() - begun
            events = len(world.server.store.get_bucket("events").keys)
            print(
                f"{(number + 1) * seconds / 60:6.0f} min  {memory:6.0f} MB  {worst * 1000:5.1f} ms late"
                f"  {events:6d} events  revision {world.server.store.revision}  {spent:6.1f} s of processor",
                flush=True,
            )
            if worst > LATE:
                wrong.append(f"a watcher heard {worst:.3f} s late in round {number + 1}")
        await world.settle(60)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        wrong += [f"{count} {what}" for what, count in leftovers(world).items()]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, help="run this long on the wall's clock")
    parser.add_argument("--hours", type=float, default=1.0, help="hours of virtual time (default 1)")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--per-second", type=int, default=10, help="pods replaced each second")
    options = parser.parse_args()
    size = Size(options.nodes, 30, max(options.pods // 30, 1), options.per_second)
    if options.minutes:

        async def real() -> list[str]:
            return await soak(World(SystemClock(), 1), size, options.minutes, 60, "real")

        wrong = asyncio.run(real())
    else:

        async def virtual() -> list[str]:
            return await soak(World(VirtualClock(), 1), size, round(options.hours * 6), 600, "virtual")

        wrong = run_virtual(virtual())
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
