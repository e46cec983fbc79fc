"""A bar for a person who waits: on a terminal only, and only once a second has passed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from signal import SIGINT, default_int_handler, getsignal, signal
from types import TracebackType
from typing import Any

__all__ = ["ProgressBar", "count_interrupts", "draw_bar", "watch_progress", "wipe_bar"]

PATIENCE = 1.0


class ProgressBar:
    """Steps of something that may take a while. Nothing is drawn, or even imported, before it does."""

    def __init__(self, steps: int, patience: float = PATIENCE) -> None:
        self._steps = steps
        self._done = -1
        self._text = ""
        self._lock = threading.Lock()
        self._bar: _Bar | None = None
        self._ended = False
        self._timer = threading.Timer(patience, self._show_bar)
        self._timer.daemon = True

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def start_step(self, text: str) -> None:
        """The step before this one is done, and this one begins."""
        with self._lock:
            self._done += 1
            self._text = text
            if self._bar is not None:
                self._bar.show(text, self._done)

    def _show_bar(self) -> None:
        with self._lock:
            if not self._ended:
                self._bar = _Bar(self._steps)
                self._bar.show(self._text, max(0, self._done))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.close()


class _Bar:
    """The bar itself; it leaves no trace when it is closed."""

    def __init__(self, steps: int) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=steps)
        self._bar.start()

    def show(self, text: str, done: int) -> None:
        self._bar.update(self._task, description=text, completed=done)

    def close(self) -> None:
        self._bar.stop()


@contextmanager
def count_interrupts() -> Iterator[list[int]]:
    """Counts Ctrl-C instead of dying of the first; the second is obeyed at once."""
    count, before = [0], getsignal(SIGINT)

    def heard(number: int, frame: Any) -> None:
        count[0] += 1
        if count[0] > 1:
            default_int_handler(number, frame)

    signal(SIGINT, heard)
    try:
        yield count
    finally:
        signal(SIGINT, before)


def draw_bar(share: float, text: str) -> None:
    """Draw how much of something is over, and what moment it has reached, on one line of the terminal."""
    filled = int(share * 30)
    sys.stderr.write(f"\r{text:<18} [{'#' * filled}{'.' * (30 - filled)}] {share:4.0%}")
    sys.stderr.flush()


def wipe_bar() -> None:
    """Wipe the line away."""
    sys.stderr.write("\r" + " " * 64 + "\r")
    sys.stderr.flush()


@contextmanager
def watch_progress(first: datetime, last: datetime) -> Iterator[Callable[[datetime], bool]]:
    """A function to tell moments to: it draws how far that is, and says whether to stop."""
    show = sys.stderr.isatty()
    length = max((last - first).total_seconds(), 1.0)
    with count_interrupts() as interrupted:

        def tell(at: datetime) -> bool:
            if show:
                draw_bar(min(max((at - first).total_seconds() / length, 0.0), 1.0), f"{at:%a %d %b %H:%M}")
            return interrupted[0] > 0

        yield tell
    if show:
        wipe_bar()
