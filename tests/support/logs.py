"""Logs as they were before a test that configures them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

__all__ = ["kept_logs"]


@contextmanager
def kept_logs() -> Iterator[None]:
    """Undo what configuring logs inside the block does to those who log after it."""
    root, ours = logging.getLogger(), logging.getLogger("dovetail")
    before, levels = list(root.handlers), (root.level, ours.level)
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root.handlers[:] = before
        # Not by the attribute: loggers remember what was enabled for them until a level is set.
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
