"""The command line: what it costs to ask for help."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .registry import Figure, scenario

COMMAND = Path(sys.executable).with_name("dovetail")


@scenario("cli: help")
def help_text() -> Iterator[Figure]:
    cost = min(_cpu_seconds([str(COMMAND), "--help"]) for _ in range(5))
    yield Figure("dovetail --help, processor time", cost, "s", 0.35)


def _cpu_seconds(command: list[str]) -> float:
    """User and system time of one command, its children included."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {child.returncode}; run it to see why")
    return usage.ru_utime + usage.ru_stime
