"""A newcomer's first ten minutes go well: README, `up`'s advice, every question, the corpus."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "hack" / "first-ten-minutes"


@pytest.mark.parametrize(
    "line",
    [
        "note: 3 pods were left out",
        "Warning: policy/v1beta1 PodDisruptionBudget is deprecated in v1.21+",
        "a.yaml:1: warning: NodePool/other spec.weight: is not kept",
        "note: no pod is pending in this cluster, so there is nothing to plan, and more",
    ],
)
def test_only_listed_sentences_may_stand_on_stderr(line: str) -> None:
    script = ModuleType("first_ten_minutes")
    script.__file__ = str(SCRIPT)
    SourceFileLoader(script.__name__, str(SCRIPT)).exec_module(script)
    script.expect_remarks("plan", "note: no pod is pending in this cluster, so there is nothing to plan\n")
    with pytest.raises(script.Failed, match="said on stderr"):
        script.expect_remarks("plan", line)


def test_the_first_ten_minutes_go_well() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)],
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
