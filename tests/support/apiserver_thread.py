"""An embedded API server in a thread and loop of its own, which a busy test cannot hold up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer


@contextmanager
def served_elsewhere(server: ApiServer | None = None) -> Iterator[str]:
    """The address of this server, or of an empty one, while the block lasts."""
    serving = server or ApiServer(SystemClock(), Random(1))
    found: list[str] = []
    ready, loops, stop = threading.Event(), list[asyncio.AbstractEventLoop](), asyncio.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with serving.serve() as running:
            found.append(running.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="api-server")
    thread.start()
    try:
        assert ready.wait(30), "the server did not start"
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(30)
