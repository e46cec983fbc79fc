"""A file log by processes that are killed with -9: every gap is declared, and no line is torn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "hack" / "kill_decision_log.py"


@pytest.mark.spec("NO-1")
def test_kills_in_the_middle_of_writing_leave_a_log_without_a_fault() -> None:
    """The same with 100,000 records and 50 kills is hack/kill_decision_log.py by itself."""
    command = [sys.executable, str(SCRIPT), "--records", "4000", "--kills", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 unlinked, 0 torn lines; no fault" in done.stdout
