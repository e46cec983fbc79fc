"""What is remembered for a while: answers that may be used again until their time is over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import timedelta
from typing import Generic, TypeVar

from dovetail.ports import Clock

__all__ = ["TtlCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by key, each forgotten `ttl` after it was last put. `on_expire` is told what time took.

    Time is looked at when the cache is: whoever asks sees the world as if entries had left on the dot.
    """

    def __init__(self, clock: Clock, ttl: timedelta, on_expire: Callable[[K, V], None] | None = None) -> None:
        self._clock = clock
        self._ttl = ttl.total_seconds()
        self._on_expire = on_expire
        # In the order of their ends, since every entry lasts equally long.
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        self.drop_expired()
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: K, value: V) -> None:
        self.drop_expired()
        self._entries.pop(key, None)
        self._entries[key] = (self._clock.monotonic() + self._ttl, value)

    def drop(self, key: K) -> V | None:
        self.drop_expired()
        entry = self._entries.pop(key, None)
        return None if entry is None else entry[1]

    def clear(self) -> None:
        self._entries.clear()

    def items(self) -> tuple[tuple[K, V], ...]:
        self.drop_expired()
        return tuple((key, value) for key, (_, value) in self._entries.items())

    def drop_expired(self) -> None:
        """Forget what is over."""
        now = self._clock.monotonic()
        while self._entries:
            key = next(iter(self._entries))
            until, value = self._entries[key]
            if until > now:
                return
            del self._entries[key]
            if self._on_expire is not None:
                self._on_expire(key, value)

    def __contains__(self, key: K) -> bool:
        self.drop_expired()
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        self.drop_expired()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self.drop_expired()
        return len(self._entries)
