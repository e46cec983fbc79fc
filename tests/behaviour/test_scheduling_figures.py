"""What a pass leaves behind in the metrics."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.metrics import REGISTRY
from support.builders import nodepool, pod
from support.world import Scene, virtual
from support.worlds import node_affinity

CONTROLLER = {"controller": "provisioner"}


def figure(name: str, labels: dict[str, str] = CONTROLLER) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.spec("T-271")
@virtual
async def test_a_pass_is_timed_and_pods_without_a_place_are_counted() -> None:
    before = figure("karpenter_scheduler_scheduling_duration_seconds_count")
    async with Scene().running() as scene:
        scene.apply(nodepool())
        scene.create(pod("web", cpu="500m"))
        scene.create(pod("giant", cpu="100000"))
        await scene.settle(30)
    assert figure("karpenter_scheduler_scheduling_duration_seconds_count") > before
    assert figure("karpenter_scheduler_unschedulable_pods_count") == 1
    depth = {**CONTROLLER, "scheduling_id": ""}
    assert REGISTRY.get_sample_value("karpenter_scheduler_queue_depth", depth) == 0


@virtual
async def test_pods_that_are_left_to_others_are_counted_apart() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        elsewhere = node_affinity([(labels.NODEPOOL, "DoesNotExist")])
        for number in range(3):
            scene.create(pod(f"theirs-{number}", cpu="1", affinity=elsewhere))
        scene.create(pod("web", cpu="500m"))
        await scene.settle(30)
        assert figure("karpenter_scheduler_ignored_pods_count", {}) == 3
        assert figure("karpenter_scheduler_unschedulable_pods_count") == 0
        for number in range(3):
            scene.api.delete("pods", f"theirs-{number}", "default")
        scene.create(pod("more", cpu="500m"))
        await scene.settle(30)
        assert figure("karpenter_scheduler_ignored_pods_count", {}) == 0
