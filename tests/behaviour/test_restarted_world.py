"""A world that is stopped and begun again from its dump goes on where it was."""

from __future__ import annotations

from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cluster.objects import is_pod_ready
from dovetail.sim.world import World

DEPLOYMENT = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 12,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        },
    },
}


async def _story() -> tuple[int, int]:
    before = World(VirtualClock(), 1)
    async with before.running():
        for number in range(4):
            before.add_node(f"n{number}")
        before.api.create("deployments.apps", DEPLOYMENT)
        await before.settle(30)
        up = sum(map(is_pod_ready, before.api.list("pods")))
    after = World(VirtualClock(), 2, snapshot=before.server.dump())
    async with after.running():
        await after.settle(60)
        return up, sum(map(is_pod_ready, after.api.list("pods")))


def test_pods_stay_ready_across_a_restart() -> None:
    assert run_virtual(_story()) == (12, 12)
