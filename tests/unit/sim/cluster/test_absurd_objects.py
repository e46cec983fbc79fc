"""One absurd object in the embedded cluster is one bad item: everybody else is served."""

from __future__ import annotations

import pytest

from support.cluster import ZONE, cluster, in_virtual_time, node_of, pod, refusal, running, workload

DIGITS = "9" * 5_000


@pytest.mark.parametrize("cpu", ["1e30", "1e400", DIGITS])
@in_virtual_time
async def test_a_pod_that_requests_cpu_without_end_waits_and_the_others_are_bound(cpu: str) -> None:
    async with cluster(2) as world:
        world.api.create("pods", pod("absurd", {"cpu": cpu, "memory": cpu}))
        # Its node was chosen without asking the scheduler, as a kubelet's own pods are.
        world.api.create("pods", pod("forced", {"cpu": cpu}, nodeName="a"))
        world.api.create("pods", pod("other", {"cpu": "1"}))
        await world.settle(10)
        assert node_of(world, "other") == "b"
        assert "Insufficient cpu" in refusal(world, "absurd")


@in_virtual_time
async def test_a_node_that_offers_memory_without_end_stops_nobody() -> None:
    async with cluster(1) as world:
        world.add_node("b", {ZONE: "zone-2"}, memory="9" * 400, cpu="1e30")
        world.api.create("pods", pod("other", {"cpu": "2"}, nodeSelector={ZONE: "zone-1"}))
        await world.settle(10)
        assert node_of(world, "other") == "a"


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
@in_virtual_time
async def test_an_affinity_and_a_toleration_of_five_thousand_digits_stop_nobody(operator: str) -> None:
    expression = {"key": "generation", "operator": operator, "values": [DIGITS]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    async with cluster(1) as world:
        world.api.patch("nodes", "a", {"metadata": {"labels": {"generation": "7"}}})
        world.api.create("pods", pod("absurd", affinity=affinity))
        world.api.create("pods", pod("other"))
        await world.settle(10)
        assert (node_of(world, "absurd"), node_of(world, "other")) == ("a", "a")


@in_virtual_time
async def test_an_object_that_a_neighbour_cannot_cope_with_is_named_once_and_the_others_go_on() -> None:
    async with cluster(1, bad_items=True) as world:
        for name in ("bad", "good"):
            world.api.create("deployments.apps", workload(name, 1))
        await world.settle(10)
        for each in world.api.list("replicasets.apps", "default", "app=bad"):
            note = {"deployment.kubernetes.io/revision": DIGITS}
            patch = {"metadata": {"annotations": note}}
            world.api.patch("replicasets.apps", each["metadata"]["name"], patch, "default")
        world.api.patch("deployments.apps", "bad", {"spec": {"replicas": 2}}, "default")
        world.api.patch("deployments.apps", "good", {"spec": {"replicas": 3}}, "default")
        await world.settle(120)
        assert len(running(world.api.list("pods", "default", "app=good"))) == 3
        assert len([what for what in world.manager.set_aside if "default/bad" in what]) == 1
