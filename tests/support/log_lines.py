"""The log as a process writes it, read back line by line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.logs import ROOT, write_json_lines
from dovetail.runtime import logs
from support.logs import kept_logs

__all__ = ["Lines", "log_lines", "open_json_lines"]

Lines = Callable[[], list[dict[str, Any]]]


@contextmanager
def log_lines(level: str = "info") -> Iterator[Lines]:
    """What is said inside, so far. Who listened before listens again afterwards, whoever asked for this."""
    with kept_logs(), TemporaryDirectory() as folder:
        path = Path(folder, "log")
        logs.configure_logging(level, (str(path),))
        try:
            yield lambda: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        finally:
            logs.configure_logging("error", ("stderr",))


@contextmanager
def open_json_lines(write: Callable[[str], object], level: str = "info") -> Iterator[None]:
    """Hand each line of ours to `write` for the length of a block, as the Lambda function does."""
    ours = logging.getLogger(ROOT)
    before = list(ours.handlers), ours.propagate, ours.level
    write_json_lines(write, level)
    try:
        yield
    finally:
        ours.handlers[:], ours.propagate = before[:2]
        ours.setLevel(before[2])
