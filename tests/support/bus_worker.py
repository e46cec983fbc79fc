"""One daemon as a process of its own, over a socket: `python -m support.bus_worker SOCKET CONFIG`.

A line on stdin asks for its numbers, which it prints before it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from random import Random

from dovetail.bus.config import read_config
from dovetail.bus.daemon import RouterDaemon
from dovetail.bus.ports import BusTally, RouterContext, WallClock
from dovetail.logs import write_json_lines
from support.queue_socket import SocketAws
from support.queues import quiet


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)],
        "max": ordered[-1],
    }


class Own(BusTally):
    """Counts latency without the call to AWS that ended it."""

    def __init__(self, aws: SocketAws) -> None:
        super().__init__()
        self._aws = aws

    def observe(self, name: str, value: float, *labels: str) -> None:
        super().observe(
            name, value - self._aws.took if labels[-1:] == ("receive_to_sent",) else value, *labels
        )


def numbers(counts: BusTally, began: float) -> dict[str, object]:
    """What the parent wants to know."""
    latencies = {
        key[1]: _quantiles(values)
        for key, values in counts.observed.items()
        if (key[0], key[-1]) == ("latency_seconds", "receive_to_sent")
    }
    return {
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cpu": time.process_time(),
        "seconds": time.monotonic() - began,
        "latency": latencies,
        "totals": {"/".join(key): value for key, value in counts.totals.items()},
        "deadline": _quantiles(counts.observed.get(("deadline_remaining_seconds", "spot_interrupted"), [])),
    }


async def main(path: str, document: object) -> None:
    began = time.monotonic()
    config = read_config(document, {})
    aws = await SocketAws.connected(config["region"], path)
    counts = Own(aws)
    write_json_lines(quiet)
    daemon = RouterDaemon(RouterContext(config, aws, WallClock(), counts, Random(os.getpid())))
    await daemon.prepare()
    running = asyncio.create_task(daemon.run(asyncio.Event()))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    assert not running.done()
    print(json.dumps(numbers(counts, began)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))))
