"""The AWS provider through boto3 and HTTP: catalogue, memory, launches, and a queue that is full."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.sim.clock import run_virtual
from support.ec2_instances import MachineScene
from support.interruption_messages import claims, messages

from .registry import Figure, scenario

ROOT = Path(__file__).parents[2]
CLAIMS, MESSAGES, OURS = 1_000, 2_000, 500
MANY = 10_000
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA111122223333", "AWS_SECRET_ACCESS_KEY": "secret"}


@cache
def held() -> dict[str, Any]:
    """What a process with the provider in it says, AWS being another process."""
    serve = [sys.executable, "-m", f"{__package__}.serve_aws"]
    server = subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        url = server.stdout.readline().strip()
        child = [sys.executable, "-m", f"{__package__}.hold_aws", url, str(CLAIMS), str(MESSAGES)]
        done = subprocess.run(
            child, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **KEYS}
        )
    finally:
        server.stdin.close()
        server.wait(timeout=10)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@scenario("aws: the catalogue is refreshed")
def catalogue() -> Iterator[Figure]:
    told = held()
    yield Figure("instance types", told["types"], "")
    yield Figure("types and zones", told["types seconds"], "s", 3)
    yield Figure("longest wait for a turn, types", 1e3 * told["types lag"], "ms", 100)
    yield Figure("prices", told["prices seconds"], "s")
    yield Figure("longest wait for a turn, prices", 1e3 * told["prices lag"], "ms", 100)
    yield Figure("a class's view of all types", told["class seconds"], "s", 1)
    # The first class also has the tables of the package read.
    yield Figure("longest wait for a turn, class", 1e3 * told["class lag"], "ms", 200)


@scenario("aws: memory of the provider")
def memory() -> Iterator[Figure]:
    told = held()
    yield Figure("boto3, types, prices and offerings", told["memory"] / 2**20, "MB", 150)
    yield Figure("the whole process", told["resident"] / 2**20, "MB")


@scenario("aws: 1,000 claims are launched through HTTP")
def launches() -> Iterator[Figure]:
    told = held()
    assert told["launched"] == CLAIMS
    yield Figure("launched", told["launch seconds"], "s", 60)
    yield Figure("longest wait for a turn", 1e3 * told["launch lag"], "ms", 200)


@scenario("aws: a full queue is emptied")
def queue() -> Iterator[Figure]:
    told = held()
    assert told["drained"] == MESSAGES
    yield Figure("messages a second through HTTP", MESSAGES / told["drain seconds"], "/s")
    seconds, ours = _storm()
    yield Figure(f"{MANY} messages, {ours} of them ours, in memory", seconds, "s", 30)


def _storm() -> tuple[float, int]:
    async def story() -> float:
        async with MachineScene().still() as scene:
            ours = claims(scene, OURS)
            await scene.heard()
            scene.tell(*messages(scene, ours, MANY, malformed=0))
            begun = time.process_time()
            while scene.waiting:
                await scene.controller("interruption").reconcile("")
            taken = time.process_time() - begun
            await asyncio.sleep(1)
            assert all(scene.deleting(each) for each in ours)
            return taken

    return run_virtual(story()), OURS
