"""The example of two clusters on one bus says what its README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-clusters"


def test_two_clusters_share_a_bus_as_the_readme_says() -> None:
    shown = re.search(r"```console\n\$ [^\n]+\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    assert shown is not None

    ended = subprocess.run(
        [sys.executable, EXAMPLE / "two_clusters.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == shown[1]
