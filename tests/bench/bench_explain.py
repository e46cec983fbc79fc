"""Asking why: pods that fit none of a thousand nodes, each for another reason, and a node among them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dovetail.api.pod import Affinity, PodAffinity, PodAffinityTerm
from dovetail.cli.views.nodes import explain_node
from dovetail.cli.views.output import LEFT_OUT
from dovetail.cli.views.pods import explain_pod
from support.builders import pod
from support.explain_snapshots import world
from support.seen_clusters import encode_world, see
from support.up_process import up

from .registry import Figure, best_of, scenario

COMMAND = Path(sys.executable).with_name("dovetail")
NODES = 1_000
POOLS = "/apis/karpenter.sh/v1/nodepools"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SINCE = "2026-01-01T00:00:00Z"
NEAR_NOBODY = Affinity(pod_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="rack"),)))
STUCK = {
    "asks for too much": pod("stuck", cpu="10000"),
    "selects labels nobody has": pod("stuck", node_selector={"team": "blue"}),
    "wants to be near nobody": pod("stuck", affinity=NEAR_NOBODY),
}


@scenario("explain: a pod among 1,000 nodes")
def stuck_pods() -> Iterator[Figure]:
    for why, waiting in STUCK.items():
        seen = see(world(NODES, [waiting]))
        assert explain_pod(seen, "default/stuck").nearest
        cost = best_of(3, lambda seen=seen: explain_pod(seen, "default/stuck"))  # type: ignore[misc]
        yield Figure(f"a pod that {why}", cost, "s", 1.0)


@scenario("explain: the whole command")
def whole_command() -> Iterator[Figure]:
    snapshot = world(NODES, [STUCK["asks for too much"]])
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        file = Path(folder) / "snapshot.json"
        file.write_bytes(encode_world(snapshot))
        for name, code in (("stuck", LEFT_OUT), ("node-0500", 0)):
            costs = [_explain(name, code, "--snapshot", str(file)) for _ in range(3)]
            wall, cost = min(wall for wall, _ in costs), min(cost for _, cost in costs)
            yield Figure(f"dovetail explain {name}, from a file, processor time", cost, "s", 1.0)
            yield Figure(f"dovetail explain {name}, from a file", wall, "s")
    cost = best_of(3, lambda: explain_node(see(snapshot), snapshot.nodes[NODES // 2]))
    yield Figure("a node, in process", cost, "s", 0.5)


@scenario("explain: a pod of a live cluster of 1,000 nodes and 3,000 pods")
def live_command() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        costs = asyncio.run(_asked_live(Path(folder)))
    yield Figure("dovetail explain stuck, live, processor time", min(cost for _, cost in costs), "s", 1.0)
    yield Figure("dovetail explain stuck, live", min(wall for wall, _ in costs), "s")


async def _asked_live(home: Path) -> list[tuple[float, float]]:
    async with up(home, "--cloud", "kwok", "--nodes", str(NODES), "--no-controller") as cluster:
        for path, document in _live_objects():
            status, answer = await cluster.ask(path, "POST", json=document)
            assert status == 201, answer
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "lastTransitionTime": SINCE,
            "message": "",
        }
        await cluster.ask(
            f"{POOLS}/default/status",
            "PATCH",
            data=json.dumps({"status": {"conditions": [ready]}}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
        return [_explain("stuck", LEFT_OUT, "--kubeconfig", str(cluster.kubeconfig)) for _ in range(3)]


def _live_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    bought = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [bought]}}
    yield "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", {"metadata": {"name": "default"}}
    yield POOLS, {"metadata": {"name": "default"}, "spec": {"template": template}}
    small = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}
    made = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [small]}}
    spec = {"replicas": 3 * NODES, "selector": {"matchLabels": {"app": "web"}}, "template": made}
    yield DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}
    large = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "10000"}}}
    yield "/api/v1/namespaces/default/pods", {"metadata": {"name": "stuck"}, "spec": {"containers": [large]}}


def _explain(name: str, code: int, *where: str) -> tuple[float, float]:
    """Seconds one command takes, by the wall and of processor time."""
    begun = time.perf_counter()
    command = [str(COMMAND), "explain", name, *where]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != code:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}; run it to see why")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime
