"""Python's garbage collector, told what a simulated cluster is like.

The store is a million small documents without a cycle among them: reference counts free them, and a full
collection that walks them all finds nothing and stops the world for half a second while it looks.
"""

from __future__ import annotations

import gc

__all__ = ["calm"]

# Young objects are still looked at, for exceptions and tasks do make cycles; the old ones hardly ever.
THRESHOLDS = (10_000, 5, 1_000_000)


def calm() -> None:
    """Leave what is there now alone for good, and walk the whole heap almost never. Once per process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
