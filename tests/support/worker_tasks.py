"""Work for other processes, which can only be handed what they can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dovetail.errors import Refused


def crash_once(flag: str) -> str:
    """Die at the first try, and answer at the next."""
    path = Path(flag)
    if path.exists():
        return "done by another"
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def refuse() -> None:
    """Fail as the core does."""
    raise Refused("not today")


class Stubborn(Exception):
    """An error that no other process can make again."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__(first)
        self.second = second


def be_stubborn() -> None:
    raise Stubborn(1, 2)
