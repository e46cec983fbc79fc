"""One seed, one story: two processes that order their sets differently store the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STORY = """
import hashlib, sys
from support.churn import Size, story
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.world import World

async def main():
    world = World(VirtualClock(), int(sys.argv[1]))
    await story(world, Size(nodes=8, deployments=3, replicas=8, per_second=1), int(sys.argv[2]))
    return world

world = run_virtual(main())
print(world.server.store.revision, hashlib.sha256(world.server.dump()).hexdigest())
"""


def told(seed: int, hashing: int, seconds: int = 3600) -> str:
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.parent / "src")]
    env = {**os.environ, "PYTHONHASHSEED": str(hashing), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", STORY, str(seed), str(seconds)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def test_a_busy_hour_ends_in_the_same_bytes_whatever_the_hash_seed() -> None:
    first = told(5, 1)
    assert int(first.split()[0]) > 20_000, "it was a busy hour"
    assert told(5, 2) == first


def test_another_seed_is_another_story() -> None:
    assert told(5, 1, 30) != told(6, 1, 30)
