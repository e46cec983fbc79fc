"""Asking why: pods that fit none of a thousand nodes, each for another reason, and a node among them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dovetail.api.pod import Affinity, PodAffinity, PodAffinityTerm
from dovetail.cli.nodeview import about_node
from dovetail.cli.output import LEFT_OUT
from dovetail.cli.podview import about_pod
from dovetail.cli.seen import Seen, to_file
from support.builders import pod
from support.explained import world

from .registry import Figure, best_of, scenario

COMMAND = Path(sys.executable).with_name("dovetail")
NODES = 1_000
NEAR_NOBODY = Affinity(pod_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="rack"),)))
STUCK = {
    "asks for too much": pod("stuck", cpu="10000"),
    "selects labels nobody has": pod("stuck", node_selector={"team": "blue"}),
    "wants to be near nobody": pod("stuck", affinity=NEAR_NOBODY),
}


@scenario("explain: a pod among 1,000 nodes")
def stuck_pods() -> Iterator[Figure]:
    for why, waiting in STUCK.items():
        seen = Seen(world(NODES, [waiting]))
        assert about_pod(seen, "default/stuck").nearest
        cost = best_of(3, lambda seen=seen: about_pod(seen, "default/stuck"))  # type: ignore[misc]
        yield Figure(f"a pod that {why}", cost, "s", 1.0)


@scenario("explain: the whole command")
def whole_command() -> Iterator[Figure]:
    snapshot = world(NODES, [STUCK["asks for too much"]])
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        file = Path(folder) / "snapshot.json"
        file.write_bytes(to_file(snapshot))
        for name, code in (("stuck", LEFT_OUT), ("node-0500", 0)):
            costs = [_explain(file, name, code) for _ in range(3)]
            wall, cost = min(wall for wall, _ in costs), min(cost for _, cost in costs)
            yield Figure(f"dovetail explain {name}, from a file, processor time", cost, "s", 1.0)
            yield Figure(f"dovetail explain {name}, from a file", wall, "s")
    cost = best_of(3, lambda: about_node(snapshot, snapshot.nodes[NODES // 2]))
    yield Figure("a node, in process", cost, "s", 0.5)


def _explain(file: Path, name: str, code: int) -> tuple[float, float]:
    """Seconds one command takes, by the wall and of processor time."""
    begun = time.perf_counter()
    command = [str(COMMAND), "explain", name, "--snapshot", str(file)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != code:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}; run it to see why")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime
