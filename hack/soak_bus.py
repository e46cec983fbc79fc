"""Keep the interruption router busy for ten real minutes and see whether anything piles up (`--minutes`).

200 events a second on 100 clusters, AWS answers in 20 ms. A line for each half minute says how much memory is
held and how many events have passed. Deliveries are remembered for one minute here instead of ten, so that a
full memory is reached soon. Ends with 1 when memory grows or an event is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dovetail.bus.generate import GeneratedFleet, generate_steady_stream
from dovetail.bus.prometheus import PrometheusCounts
from dovetail.logs import write_json_lines
from dovetail.runtime.clock import SystemClock
from support.churn import resident_bytes
from support.queues import FleetAws, quiet

RATE, STEP, REPORT = 200, 0.1, 30.0
# The least memory in the second half may exceed the least in the quarter before by this much. In MB.
GROWTH = 1.0


async def soak(seconds: float) -> int:
    fleet = GeneratedFleet.generate_fleet(100, 10_000)
    # The simulated queue remembers a deleted message for as long as it was hidden.
    aws = FleetAws(fleet, SystemClock(), visibility=(30, 30))
    put = taken = 0
    samples: list[tuple[float, float, int]] = []

    def consume() -> None:
        nonlocal taken
        for name in fleet.clusters:
            taken += len(aws.queue(name).messages)
            aws.queue(name).purge()
            aws.queue(name)._ready.clear()

    config = aws.config(dedupe__window="1m", receivers__wait="1s")
    async with aws.routing(config, PrometheusCounts()):
        stream, began, reported = (
            generate_steady_stream(fleet, rate=RATE, start=datetime.now(UTC)),
            time.monotonic(),
            0.0,
        )
        while (passed := time.monotonic() - began) < seconds:
            while put < passed * RATE:
                aws.put(next(stream))
                put += 1
            consume()
            if passed - reported >= REPORT:
                reported = passed
                gc.collect()
                samples.append((passed, resident_bytes() / 1e6, sys.getallocatedblocks()))
                print(
                    f"{passed / 60:5.1f} min  {samples[-1][1]:6.1f} MB  {samples[-1][2]:9,d} blocks"
                    f"  {put:8,d} events in  {taken:8,d} out",
                    flush=True,
                )
            await asyncio.sleep(STEP)
        await aws.drained(120.0)
    consume()
    return _judged(samples, put, taken)


def _judged(samples: list[tuple[float, float, int]], put: int, taken: int) -> int:
    lost = put - taken
    if lost > 0:
        print(f"{lost} events were lost")
        return 1
    half, quarter = len(samples) // 2, len(samples) // 4
    if half - quarter < 2:
        print("too short to tell whether memory grows")
        return 0
    before, after = samples[quarter:half], samples[half:]
    grown = min(each[1] for each in after) - min(each[1] for each in before)
    hours = (after[-1][0] - before[0][0]) / 3600
    blocks = (after[-1][2] - before[-1][2]) / max(after[-1][0] - before[-1][0], 1) * 3600
    print(
        f"memory grew by {grown:.2f} MB between two parts of {hours * 60:.0f} minutes; "
        f"{blocks:,.0f} blocks an hour; no event of {put:,} lost"
    )
    return 1 if grown > GROWTH else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    write_json_lines(quiet)
    return asyncio.run(soak(parser.parse_args().minutes * 60))


if __name__ == "__main__":
    sys.exit(main())
