"""A newcomer's first ten minutes go well: README, `up`'s advice, every question, the corpus."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_first_ten_minutes_go_well() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "first-ten-minutes")],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"
    typed = [line.partition("$ ")[2] for line in ended.stdout.splitlines() if "$ " in line]
    for command in ("explain", "plan --live", "plan --disruption", "snapshot", "dashboard", "simulate"):
        assert any(line.startswith(f"dovetail {command}") for line in typed), command
    assert sum(line.startswith("kubectl apply") for line in typed) > 10
