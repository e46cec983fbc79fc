"""Capacity buffers: how many pods they stand for, and what becomes of those."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.buffers import CapacityBuffer, CapacityBufferSpec
from dovetail.api.pod import PodSpec, PodTemplate, Volume
from dovetail.api.predicates import is_provisionable
from dovetail.scheduling.model.capacity_buffers import (
    build_virtual_pods,
    count_buffer_replicas,
    count_virtual_pods_by_node,
    find_provisioning_condition,
)
from dovetail.scheduling.model.plan import Plan
from support.builders import amounts, container, meta, nodepool
from support.worlds import World, running

TEMPLATE = PodTemplate(
    spec=PodSpec(containers=(container(cpu="1", memory="1Gi"),), volumes=(Volume(name="v"),))
)


def buffer(limits: dict[str, str] | None = None, **spec: Any) -> CapacityBuffer:
    return CapacityBuffer(
        metadata=meta("buffer", "spare", namespace="default"),
        spec=CapacityBufferSpec(limits=amounts(limits), **spec),
    )


@pytest.mark.spec("T-286")
@pytest.mark.parametrize(
    ("made", "workload", "count"),
    [
        pytest.param(buffer(replicas=7), None, 7, id="fixed"),
        pytest.param(buffer(replicas=10, limits={"cpu": "3"}), None, 3, id="capped"),
        pytest.param(buffer(replicas=3, limits={"cpu": "30"}), None, 3, id="loosely capped"),
        pytest.param(buffer(limits={"cpu": "5"}), None, 5, id="limits alone"),
        pytest.param(buffer(percentage=20), 10, 2, id="a share"),
        pytest.param(buffer(replicas=5, percentage=20), 10, 5, id="the larger is fixed"),
        pytest.param(buffer(replicas=5, percentage=80), 10, 8, id="the larger is the share"),
        pytest.param(buffer(replicas=5, percentage=80, limits={"cpu": "4"}), 10, 4, id="the share capped"),
        pytest.param(buffer(percentage=10), 1, 1, id="at least one"),
        pytest.param(buffer(percentage=10), 0, 0, id="of nothing nothing"),
        pytest.param(buffer(percentage=50), None, 1, id="a workload that does not say"),
        pytest.param(buffer(), None, 0, id="nothing usable"),
    ],
)
def test_a_buffer_stands_for_so_many_pods(made: CapacityBuffer, workload: int | None, count: int) -> None:
    assert count_buffer_replicas(made, TEMPLATE, workload) == count


@pytest.mark.spec("T-286")
def test_virtual_pods_wait_like_any_other_but_have_no_volumes() -> None:
    one, two = build_virtual_pods(buffer(), TEMPLATE, 2)
    assert (one.name, two.name) == ("capacity-buffer-spare-1", "capacity-buffer-spare-2")
    assert is_provisionable(one)
    assert one.annotations[names.BUFFER_NAME] == "spare"
    assert (one.spec.volumes, one.spec.priority) == ((), -(2**31))


@pytest.mark.spec("T-288")
@pytest.mark.parametrize(
    ("ready", "plan", "told"),
    [
        (False, Plan(), ("False", "NotReadyForProvisioning")),
        (True, Plan(existing={"n": ("default/capacity-buffer-spare-1",)}), ("True", "FitsExistingCapacity")),
        (
            True,
            Plan(unschedulable={"default/capacity-buffer-spare-1": "no"}),
            ("False", "RequiresNewCapacity"),
        ),
        (True, Plan(), None),
    ],
)
def test_a_buffer_says_whether_its_room_is_there(ready: bool, plan: Plan, told: Any) -> None:
    assert find_provisioning_condition(ready, build_virtual_pods(buffer(), TEMPLATE, 1), plan) == told


@pytest.mark.spec("T-288")
def test_an_empty_buffer_and_one_that_needs_a_node_say_so() -> None:
    assert find_provisioning_condition(True, (), Plan()) == ("False", "BufferEmpty")
    world = World()
    spare = build_virtual_pods(buffer(), TEMPLATE, 1)
    world.more["virtual"] = spare
    plan = world.solve()
    assert len(plan.new_nodes) == 1
    assert find_provisioning_condition(True, spare, plan) == ("False", "RequiresNewCapacity")


@pytest.mark.spec("T-289")
def test_virtual_pods_are_counted_on_running_nodes_only() -> None:
    world = World(nodepool(), nodes=[running("n", capacity={"cpu": "2", "memory": "4Gi", "pods": "9"})])
    spare = build_virtual_pods(buffer(), TEMPLATE, 3)
    world.more["virtual"] = spare
    plan = world.solve()
    assert count_virtual_pods_by_node(plan, spare) == {"n": 2}
    assert len(plan.new_nodes) == 1
