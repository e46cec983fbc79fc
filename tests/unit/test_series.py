"""Metrics have to be stored by somebody: the flight recorder adds few series, however large a cluster is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.series import ADDED, LABELS

ROOT = Path(__file__).parents[2]
# The size that is promised is 20 pools and 500 nodes: DOVETAIL_SERIES=20,500.
SIZE = os.environ.get("DOVETAIL_SERIES", "4,6")
MOST = 40


def test_every_feature_together_adds_forty_series_at_most(tmp_path: Path) -> None:
    pools, nodes = SIZE.split(",")
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    command = [sys.executable, "-m", "support.series", pools, nodes, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("{")]
    listed = {name: count for count, name in lines}
    total = int(listed.pop("series"))
    assert {name for name in ADDED if any(each.startswith(name) for each in listed)} >= {
        *("dovetail_history_", "dovetail_decision_log_", "dovetail_notifications_", "dovetail_recording_")
    }, "every feature was on"
    assert 10 < total <= MOST, done.stdout


def test_nothing_that_a_cluster_has_many_of_tells_them_apart() -> None:
    """What the small cluster above has, one of 500 nodes has too: no label names a node, a pod or a pool."""
    table = (ROOT / "docs" / "reference" / "metrics.md").read_text().splitlines()
    rows = [line.split("|") for line in table if line.startswith(tuple(f"| `{name}" for name in ADDED))]
    assert len(rows) > 8
    for row in rows:
        used = {label.strip(" `") for label in row[3].split(",")} - {""}
        assert used <= LABELS, row[1]
