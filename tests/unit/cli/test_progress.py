"""The bar: on a terminal only, only for those who wait, and gone without a trace."""

from __future__ import annotations

import io
import sys
import time

import pytest

from dovetail.cli.views.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, seconds: float, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is drawn by work that takes so long, when a bar is due after a twentieth of a second."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar(2, patience=0.05) as progress:
        progress.start_step("first")
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            time.sleep(0.01)
        progress.start_step("second")
        if seconds:
            time.sleep(0.2)
    return stream.getvalue()


def test_work_that_takes_a_while_has_a_bar_with_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(Terminal(), 1.0, monkeypatch)
    assert "first" in drawn
    assert "second" in drawn
    assert drawn.endswith(("\x1b[2K", "\x1b[?25h", "\x1b[1A\x1b[2K"))


def test_work_that_is_quick_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Terminal(), 0.0, monkeypatch) == ""


def test_a_pipe_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), 0.3, monkeypatch) == ""


def fail() -> None:
    with ProgressBar(1, patience=0.0) as progress:
        progress.start_step("first")
        time.sleep(0.1)
        raise ValueError("no")


def test_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="no"):
        fail()
    assert terminal.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))
