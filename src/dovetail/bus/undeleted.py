"""How many messages of a lane may be delivered and not yet deleted: all that a killed router sends twice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

__all__ = ["Undeleted"]


class Undeleted:
    """Receipts of messages that may lie in a cluster's queue and still lie in their own.

    A message with several copies is counted once. Its second copy never waits for room: room comes from
    messages that are deleted, and they are deleted when all their copies are sent.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[str, int] = {}
        self._line: deque[tuple[Sequence[str], asyncio.Future[None]]] = deque()
        self._waiting: dict[str, list[tuple[Sequence[str], asyncio.Future[None]]]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    async def admit(self, receipts: Sequence[str]) -> None:
        """Return once copies of these messages may be sent; first come, first served."""
        if any(each in self._copies for each in receipts) or (not self._line and self._has_room(receipts)):
            self._add(receipts)
            return
        entry = (receipts, asyncio.get_running_loop().create_future())
        self._line.append(entry)
        for each in receipts:
            self._waiting.setdefault(each, []).append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def withdraw(self, receipts: Iterable[str]) -> None:
        """Take off copies that were not delivered."""
        for each in receipts:
            left = self._copies.get(each, 0) - 1
            if left > 0:
                self._copies[each] = left
            else:
                self._copies.pop(each, None)
        self._let_in()

    def remove(self, receipts: Iterable[str]) -> None:
        """Take off messages that are deleted, or come again."""
        for each in receipts:
            self._copies.pop(each, None)
        self._let_in()

    def _has_room(self, receipts: Sequence[str]) -> bool:
        return not self._copies or len(self._copies) + len(receipts) <= self._most

    def _let_in(self) -> None:
        while self._line and (self._line[0][1].done() or self._has_room(self._line[0][0])):
            receipts, admitted = self._line.popleft()
            if not admitted.done():
                admitted.set_result(None)
                self._add(receipts)

    def _add(self, receipts: Sequence[str]) -> None:
        """Count copies, and with them those of the same messages that stand in line."""
        entering = [receipts]
        while entering:
            for each in entering.pop():
                self._copies[each] = self._copies.get(each, 0) + 1
                for others, admitted in self._waiting.pop(each, ()):
                    if not admitted.done():
                        admitted.set_result(None)
                        entering.append(others)

    def _leave(self, entry: tuple[Sequence[str], asyncio.Future[None]]) -> None:
        """Whoever is stopped while it waits gives its place back."""
        receipts, admitted = entry
        if admitted.done() and not admitted.cancelled():
            self.withdraw(receipts)
        self._let_in()
