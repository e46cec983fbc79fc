"""Serve a simulated AWS over HTTP in a process of its own, until its input ends.

Run as `python -m tests.bench.serve_aws`: the first line it prints is its address.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the builders of tests/support

from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws.wire.server import serve_aws
from support.aws import CLUSTER, simulated
from support.ec2_instances import QUEUE


async def main() -> None:
    aws = simulated(SystemClock(), cluster=CLUSTER)
    aws.queues.add(QUEUE)
    async with serve_aws(aws, moto=False) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
