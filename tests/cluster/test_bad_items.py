"""What a real API server admits from anybody with a pod or a kubelet stops nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.controller_process import NODES, cluster_with_kinds, controller, fleet
from support.two_servers import MERGE, Json

DIGITS = "9" * 5_000


@pytest.fixture(scope="module")
def autoscaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bad-items")
    with cluster_with_kinds(folder / "real") as kubeconfig:
        log = folder / "controller.log"
        with controller(kubeconfig, log) as running:
            yield kubeconfig
            assert running.poll() is None, log.read_text()[-2000:]
        assert "a bug in this controller" not in log.read_text(), log.read_text()[-2000:]


async def test_a_preferred_affinity_of_five_thousand_digits_stops_nobody(autoscaled: Path) -> None:
    expression = {"key": "example.com/generation", "operator": "Gt", "values": [DIGITS]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity: Json = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    async with fleet(autoscaled) as ours:
        await ours.start()
        await ours.deploy("absurd", 1, affinity=affinity)
        await ours.deploy("web", 3)
        await ours.running("web", 3, 90)
        assert await ours.claims(), "the pods run on nodes that were bought for them"


async def test_a_node_of_four_hundred_digits_of_memory_stops_nobody(autoscaled: Path) -> None:
    async with fleet(autoscaled) as ours:
        await ours.start()
        name = f"absurd-{ours.pool}"
        node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await ours.ask("POST", NODES, node)
        endless = {"cpu": "64", "memory": "9" * 400, "pods": "110"}
        try:
            status = {"status": {"allocatable": endless, "capacity": endless}}
            await ours.ask("PATCH", f"{NODES}/{name}/status", status, MERGE)
            await ours.deploy("web", 3)
            await ours.running("web", 3, 90)
            assert await ours.claims(), "the pods run on nodes that were bought for them"
        finally:
            await ours.ask("DELETE", f"{NODES}/{name}")
