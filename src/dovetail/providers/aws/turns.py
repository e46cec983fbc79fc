"""Turns for work that takes milliseconds and comes a thousand times at once."""

from __future__ import annotations

import asyncio

__all__ = ["Turns"]


class Turns:
    """Lets one begin in each round of the loop, in the order they asked, so that everyone else comes between.

    A thousand tasks that are ready together run in one round, and nothing else does until the last is over.
    """

    def __init__(self) -> None:
        self._door = asyncio.Lock()

    async def __call__(self) -> None:
        async with self._door:
            await asyncio.sleep(0)
