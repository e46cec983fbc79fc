"""What a pass leaves behind in the metrics."""

from __future__ import annotations

import pytest

from dovetail.metrics import REGISTRY
from support.builders import nodepool, pod
from support.world import Scene, virtual

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
