"""The example of a zone that is shifted away and back runs as its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "zonal-shift"


def test_the_example_loses_no_pod_and_leaves_the_pools_as_they_were() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / "zonal_shift.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (told,) = re.findall(
        r"```console\n\$ python examples/zonal-shift/zonal_shift.py\n(.*?)```", page, re.DOTALL
    )
    assert ran.stdout == told
    assert "pods lost: 0; the pools are as they were, to the byte" in ran.stdout
