"""A bar for a person who waits: on a terminal only, and only once a second has passed."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

__all__ = ["ProgressBar"]

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
