"""Pods that wait become orders: once per burst, once per pod, and not before everything is known."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.errors import InsufficientCapacity
from dovetail.sim.faults import FaultRule
from support.builders import nodepool, pod
from support.world import CLAIMS, POOLS, Scene, sample, virtual

DECIDED = "karpenter_pods_scheduling_decision_duration_seconds_count"


@pytest.mark.spec("T-025")
@virtual
async def test_a_pod_gets_a_node_and_is_told_where() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool(), pod("web"))
        await scene.settle()
        claim = scene.claims()[0]
        assert scene.node_of("web").name == claim.status.node_name
        told = ("Normal", "Pod/web", f"Pod should schedule on: nodeclaim/{claim.name}")
        assert told in scene.events("Nominated")


@pytest.mark.spec("T-029", "T-030")
@virtual
async def test_nothing_is_ordered_while_an_order_is_open() -> None:
    async with Scene().running() as scene:
        scene.cloud.slow("create", 40)
        scene.apply(nodepool(), pod("first"))
        await scene.until(scene.claims, within=10)
        scene.create(pod("second", cpu="3"))
        await scene.settle(20)
        assert len(scene.claims()) == 1
        scene.api.delete(CLAIMS, scene.claims()[0].name)
        scene.cloud.slow("create", 0)
        await scene.settle(60)
        assert scene.node_of("first")
        assert scene.node_of("second")


@pytest.mark.spec("T-034")
@virtual
async def test_a_hundred_pods_in_one_burst_are_all_decided() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        await scene.settle(2)
        before = sample(DECIDED)
        for number in range(100):
            scene.create(pod(f"web-{number:03d}", cpu="100m", memory="10Mi"))
        await scene.settle(60)
        assert all(each.node_name for each in scene.pods()), scene.told()
        assert sample(DECIDED) == before + 100


@virtual
async def test_no_capacity_is_tried_again_until_there_is_some() -> None:
    async with Scene().running() as scene:
        scene.cloud.fail("create", *(InsufficientCapacity("none left") for _ in range(3)))
        scene.apply(nodepool(), pod("web"))
        await scene.settle(120)
        assert scene.node_of("web")
        assert scene.cloud.calls["create"] == 4
        assert len(scene.cloud.instances) == 1


@virtual
async def test_a_pool_at_its_limit_orders_nothing_more() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool(limits={"cpu": "4"}))
        for number in range(6):
            scene.create(pod(f"web-{number}", cpu="1"))
        await scene.settle(60)
        assert scene.dovetail.cluster.compute_usage("default")["cpu"].value <= 4
        assert any(not each.node_name for each in scene.pods())
        assert scene.events("FailedScheduling")
        scene.api.patch(POOLS, "default", {"spec": {"limits": {"cpu": "100"}}})
        await scene.settle(60)
        assert all(each.node_name for each in scene.pods()), scene.told()


@virtual
async def test_what_is_ordered_counts_against_the_limit_as_the_machine_it_will_be() -> None:
    async with Scene().running() as scene:
        scene.cloud.slow("create", 30)
        scene.apply(nodepool(limits={"cpu": "8"}))
        for number in range(3):
            scene.create(pod(f"web-{number}", cpu="3"))
        await scene.settle(3)
        assert [claim.status.capacity for claim in scene.claims()] == [{}, {}], "nothing has come yet"
        assert scene.dovetail.cluster.compute_usage("default")["cpu"].value == 8, (
            "four cores each, not the pods' three"
        )
        scene.create(pod("small", cpu="1500m"))
        await scene.settle(300)
        assert len(scene.claims()) == 2, "there was room for neither the third nor the small one"
        assert scene.dovetail.cluster.compute_usage("default")["cpu"].value == 8


@virtual
async def test_an_order_that_is_refused_is_made_again() -> None:
    async with Scene().running() as scene:
        scene.trouble(FaultRule(trouble="server-error", verbs=("create",), resources=(CLAIMS,), count=2))
        scene.apply(nodepool(), pod("web"))
        await scene.settle(60)
        assert scene.node_of("web")
        assert len(scene.cloud.instances) == 1


@virtual
async def test_machines_whose_labels_are_still_to_be_written_are_not_ordered_again() -> None:
    """Between a claim's status and its labels, its zone is unknown: its pods seem to have no place."""
    slow = ("--kube-client-qps=10", "--kube-client-burst=20")
    async with Scene(flags=slow).running() as scene:
        scene.apply(nodepool())
        zone = scene.cloud.types[0].offerings[0].zone
        for number in range(30):
            scene.create(pod(f"web-{number}", cpu="3", node_selector={labels.ZONE: zone}))
        await scene.until(lambda: all(each.node_name for each in scene.pods()), within=120, step=2)
        assert len(scene.claims()) == 30
