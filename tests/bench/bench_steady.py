"""A large, quiet cluster: what Dovetail holds, what it takes while nothing happens, how soon it decides."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .registry import Figure, scenario

NODES, PODS = 5_000, 100_000
# What features that write to files leave in their folder.
FILES = {"decisions", "recording"}


@scenario("steady: 5,000 nodes, 100,000 pods")
def steady() -> Iterator[Figure]:
    """In a process of its own, every controller at work, in virtual time: only processor time is counted."""
    yield from _hold_cluster()


@scenario("steady: 5,000 nodes, 100,000 pods, every feature on")
def steady_with_everything() -> Iterator[Figure]:
    """The same with a decision log, notifications, a recording and every feature gate."""
    with TemporaryDirectory() as folder:
        yield from _hold_cluster(folder)
        assert {each.name for each in Path(folder).iterdir()} >= FILES, "a feature that writes did not"


def _hold_cluster(*folder: str) -> Iterator[Figure]:
    command = [sys.executable, "-m", "tests.bench.hold_cluster", str(NODES), str(PODS), *folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["places"], found["pods"]) == (NODES, PODS)
    yield Figure("memory", found["resident"] / 2**20, "MiB", 512)
    yield Figure("of a core while idle", 100 * found["idle_share"], "%", 5)
    yield Figure("one new pod, batch to decision", 1e3 * found["decision"], "ms", 200)
    yield Figure("fill the caches", found["filling"], "s")
