"""Python's search for cyclic garbage, paused while a decision is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["pause_collector"]


@contextmanager
def pause_collector() -> Iterator[None]:
    """No search meanwhile: a decision leaves next to no garbage, and each search reads every pod there is."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
