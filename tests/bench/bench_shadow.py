"""A shadow with two twins beside 500 nodes and 5,000 pods: what it takes, and how far it falls behind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dovetail.play.shadow_twins import ALL_ROLES

from .registry import Figure, scenario

MINUTES = 30
TESTS = Path(__file__).parents[1]


def _hold(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.hold_shadow", *arguments]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@scenario("shadow: 500 nodes, 5,000 pods, two twins")
def beside_five_hundred() -> Iterator[Figure]:
    """The recorder's share is that of the whole simulated cluster, which it is a part of: an upper mark."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = _hold("play", f"{folder}/recording", str(MINUTES))
        parts = {role: _hold("follow", f"{folder}/recording", role) for role in ALL_ROLES}
    assert all(each["nodes"] >= 450 and each["pods"] >= 4_500 for each in parts.values()), parts
    seconds = 60.0 * MINUTES
    for role, each in parts.items():
        yield Figure(f"{role}: of a core", 100 * each["cpu"] / seconds, "%")
        yield Figure(f"{role}: memory", each["memory"], "MiB")
    yield Figure("recorder, at most: of a core", 100 * cluster["cpu"] / cluster["seconds"], "%")
    yield Figure("recorder, at most: memory", cluster["memory"], "MiB")
    cores = sum(each["cpu"] for each in parts.values()) / seconds + cluster["cpu"] / cluster["seconds"]
    yield Figure("all together, at most", cores, "cores", 1.0)
    yield Figure(
        "memory of all", cluster["memory"] + sum(each["memory"] for each in parts.values()), "MiB", 1536
    )
    # A core is shared by three: the slowest has a third of it when all are busy.
    yield Figure("behind, at most", max(each["behind"] for each in parts.values()) / 60, "min", 10)
