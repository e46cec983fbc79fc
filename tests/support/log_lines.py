"""The log as a process writes it, read back line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.runtime import logs
from support.logs import kept_logs

__all__ = ["Lines", "log_lines"]

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
