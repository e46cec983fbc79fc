"""Copies that a cluster's queue has confirmed, remembered for a while. No I/O; time is handed in.

An optimisation: destinations may hear the same twice without harm, so forgetting costs nothing but a message.
What is remembered is an event, the cluster that was told, and of which instances. What was parked, dropped,
refused or not confirmed is not in here, so that a replay of it is news.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Delivered"]

WINDOW = 600.0


class Delivered:
    """Keys of delivered copies, the oldest forgotten first."""

    def __init__(self, size: int = 200_000, window: float = WINDOW) -> None:
        self._size = size
        self._window = window
        self._keys: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key: Hashable, now: float) -> bool:
        """Was it delivered within the window?"""
        at = self._keys.get(key)
        return at is not None and now - at < self._window

    def add(self, key: Hashable, now: float) -> None:
        """Remember a copy that its queue has confirmed."""
        keys = self._keys
        keys.pop(key, None)
        keys[key] = now
        if len(keys) > self._size:
            del keys[next(iter(keys))]

    def forget(self, now: float) -> None:
        """Let go of what is past the window; the oldest stand first."""
        keys = self._keys
        while keys:
            oldest = next(iter(keys))
            if now - keys[oldest] < self._window:
                return
            del keys[oldest]
