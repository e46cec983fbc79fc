"""At every instant: no budget overspent, no pods' budget violated, and no mark left behind."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.nodepool import Budget
from dovetail.sim.faults import FaultRule
from support.builders import nodepool
from support.world import POOLS, Scene, virtual

PDBS = "poddisruptionbudgets.policy"
REPLICAS, AVAILABLE = 8, 6


def deployment(replicas: int) -> dict[str, Any]:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "affinity": {
                        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
                    },
                    "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }


def going(scene: Scene) -> int:
    """The nodes that were chosen to go and are not gone."""
    return sum(1 for claim in scene.claims() if claim.deleting or _reason(claim))


def _reason(claim: Any) -> bool:
    said = claim.status.find_condition("DisruptionReason")
    return said is not None and said.status == "True"


def healthy(scene: Scene) -> int:
    return sum(
        1
        for pod in scene.pods()
        if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None and _ready(pod)
    )


def _ready(pod: Any) -> bool:
    said = pod.status.find_condition("Ready")
    return said is not None and said.status == "True"


async def fleet(scene: Scene, nodes: str) -> None:
    scene.apply(nodepool(budgets=(Budget(nodes=nodes),)))
    scene.api.create("deployments.apps", deployment(REPLICAS))
    spec = {"minAvailable": AVAILABLE, "selector": {"matchLabels": {"app": "web"}}}
    scene.api.create(PDBS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    await scene.until(lambda: healthy(scene) == REPLICAS, within=300)


def touch(scene: Scene, team: str) -> None:
    scene.api.patch(POOLS, "default", {"spec": {"template": {"metadata": {"labels": {"team": team}}}}})


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_a_rollout_never_oversteps_either_budget(nodes: str) -> None:
    @virtual
    async def play() -> None:
        async with Scene(kwok=True).running() as scene:
            await fleet(scene, nodes)
            before = {claim.name for claim in scene.claims()}
            touch(scene, "a")
            for _ in range(1200):
                await scene.sleep(1)
                assert going(scene) <= int(nodes), scene.told()
                assert healthy(scene) >= AVAILABLE, scene.told()
                if not before & {claim.name for claim in scene.claims()}:
                    break
            assert not before & {claim.name for claim in scene.claims()}
            await scene.settle(60)
            assert (healthy(scene), len(scene.claims())) == (REPLICAS, REPLICAS)

    play()


@virtual
async def test_a_rollout_through_a_storm_leaves_nothing_behind() -> None:
    async with Scene(7, kwok=True).running() as scene:
        await fleet(scene, "2")
        scene.trouble(
            FaultRule(trouble="conflict", probability=0.1),
            FaultRule(trouble="server-error", probability=0.05),
            FaultRule(trouble="reset", probability=0.03),
        )
        touch(scene, "b")
        for _ in range(600):
            await scene.sleep(1)
            assert going(scene) <= 2, scene.told()
            assert healthy(scene) >= AVAILABLE, scene.told()
        scene.trouble()
        await scene.settle(900)
        assert healthy(scene) == REPLICAS
        assert going(scene) == 0
        taints = [taint.key for node in scene.nodes() for taint in node.spec.taints]
        assert "karpenter.sh/disrupted" not in taints
        assert {node.labels.get("team") for node in scene.nodes()} == {"b"}


@virtual
async def test_a_new_process_takes_the_marks_of_the_old_one_off() -> None:
    async with Scene(kwok=True).running() as scene:
        await fleet(scene, "2")
        touch(scene, "c")
        await scene.until(lambda: going(scene) > 0, within=120, step=0.1)
        await scene.kill()
        scene.api.patch(POOLS, "default", {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}})
        await scene.restart()
        await scene.settle(300)
        left = [node.name for node in scene.nodes() for t in node.spec.taints if "disrupted" in t.key]
        assert left == []
        assert going(scene) == 0


@virtual
async def test_a_schedule_holds_disruption_back_until_it_is_over() -> None:
    async with Scene(kwok=True).running() as scene:
        await fleet(scene, "100%")
        closed = [{"nodes": "0", "schedule": "@daily", "duration": "1h"}]
        scene.api.patch(POOLS, "default", {"spec": {"disruption": {"budgets": closed}}})
        before = {claim.name for claim in scene.claims()}
        await scene.settle(2)
        touch(scene, "d")
        start = scene.true_clock.now()
        assert start.hour == 0
        while scene.true_clock.now().minute < 58:
            await scene.sleep(30)
            assert {claim.name for claim in scene.claims()} == before
        await scene.settle(1200)
        assert not before & {claim.name for claim in scene.claims()}
