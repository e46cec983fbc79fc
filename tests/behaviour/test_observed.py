"""What can be seen from outside: numbers for dashboards, and events when conditions turn."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from dovetail.api import labels
from dovetail.runtime.metrics import render_exposition
from support.builders import nodepool, pod
from support.world import CLAIMS, POOLS, Scene, sample, virtual


def families() -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(render_exposition().decode()):
        for each in family.samples:
            found.setdefault(each.name, []).append((each.labels, each.value))
    return found


def added_up(name: str) -> float:
    return sum(value for _, value in families().get(name, []))


@virtual
async def test_nodes_and_pods_are_added_up_where_they_are_alike() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        for number in range(4):
            scene.create(pod(f"web-{number}", cpu="3"))
        await scene.settle(60)
        assert len(scene.nodes()) >= 2
        seen = families()
        cpu = [(a, v) for a, v in seen["karpenter_nodes_total_pod_requests"] if a["resource_type"] == "cpu"]
        assert sum(value for _, value in cpu) == 12.0
        assert {about["node_name"] for about, _ in cpu} == {""}
        assert {about["managed"] for about, _ in cpu} == {"true"}
        assert sum(value for _, value in seen["karpenter_pods_state"]) == 4
        used = {a["resource_type"]: v for a, v in seen["karpenter_cluster_utilization_percent"]}
        room = sum(each.status.allocatable["cpu"].nano for each in scene.nodes())
        assert used["cpu"] == 100 * (12 * 10**9) / room  # exactly: nothing is added to what there is
        assert sample("karpenter_pods_bound_duration_seconds_count") >= 4
        assert sample("karpenter_pods_startup_duration_seconds_count") >= 4


@virtual
async def test_many_nodes_do_not_make_many_series() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.look("nodepool.counter", "default")
        few = len(render_exposition().splitlines())
        for number in range(60):
            await scene.initialized(f"claim-{number}")
        many = len(render_exposition().splitlines())
        assert many - few < 300, Counter(name for name in families())


@virtual
async def test_those_who_have_waited_longest_are_named() -> None:
    async with Scene().running() as scene:
        for number in range(15):
            scene.create(pod(f"web-{number:02d}"))
            await scene.sleep(1)
        await scene.settle(30)
        waiting = families()["karpenter_pods_unbound_time_seconds"]
        assert sorted(about["name"] for about, _ in waiting) == [f"web-{number:02d}" for number in range(10)]
        assert min(value for _, value in waiting) > 30


@virtual
async def test_people_are_told_when_a_condition_turns() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        scene.claim()
        await scene.until(lambda: scene.says("Initialized") == ("True", "Initialized"), within=30)
        await scene.settle(1)
        note = "Status condition transitioned, Type: Registered, Status: Unknown -> True, Reason: Registered"
        assert ("Normal", "NodeClaim/claim", note) in scene.events("Registered")
        count = [
            value
            for about, value in families()["operator_nodeclaim_status_condition_count"]
            if (about["type"], about["status"]) == ("Ready", "True")
        ]
        assert count == [1.0]
        ended = added_up("operator_nodeclaim_termination_duration_seconds_count")
        scene.api.delete(CLAIMS, "claim")
        await scene.until(lambda: not scene.has(CLAIMS, "claim"), within=60)
        await scene.settle(1)
        told = ("Normal", "NodeClaim/claim", "Finalized karpenter.sh/termination")
        assert told in scene.events("Finalized")
        assert added_up("operator_nodeclaim_termination_duration_seconds_count") == ended + 1


@virtual
async def test_a_pool_that_is_gone_has_no_numbers() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool("short-lived", limits={"cpu": "10"}))
        await scene.settle(7)
        about = {"nodepool": "short-lived", "resource_type": "cpu"}
        assert sample("karpenter_nodepools_limit", **about) == 10
        scene.api.patch(POOLS, "short-lived", {"spec": {"limits": None}})
        await scene.settle(7)
        assert sample("karpenter_nodepools_limit", **about) == 0
        assert about in [labels for labels, _ in families()["karpenter_nodepools_usage"]]
        scene.api.delete(POOLS, "short-lived")
        await scene.settle(7)
        assert about not in [labels for labels, _ in families().get("karpenter_nodepools_usage", [])]


@virtual
async def test_what_a_pool_costs_an_hour_is_added_up() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool(), nodepool("idle"))
        await scene.settle(2)
        scene.create(pod("web", node_selector={"karpenter.sh/nodepool": "default"}))
        await scene.settle(30)
        claim = scene.claims()[0]
        kind = next(
            t for t in scene.cloud.types if t.name == claim.labels["node.kubernetes.io/instance-type"]
        )
        price = next(
            offering.price
            for offering in kind.offerings
            if offering.zone == claim.labels["topology.kubernetes.io/zone"]
            and offering.capacity_type == claim.labels["karpenter.sh/capacity-type"]
        )
        costs = {about["nodepool"]: value for about, value in families()["karpenter_nodepools_cost_total"]}
        assert costs == {"default": price, "idle": 0.0}


@virtual
async def test_a_pool_that_can_buy_nothing_is_told_of() -> None:
    async with Scene().running() as scene:
        nothing = (labels.INSTANCE_TYPE, "In", "no-such-type")
        scene.apply(nodepool(requirements=[nothing]), pod("web"))
        await scene.settle(20)
        assert {about for _, about, _ in scene.events("NoCompatibleInstanceTypes")} == {"NodePool/default"}


@virtual
async def test_calls_to_the_cloud_are_counted_by_who_made_them() -> None:
    async with Scene().running() as scene:
        scene.claim()
        await scene.settle(10)
        about = {"controller": "nodeclaim.lifecycle", "method": "Create", "provider": "fake"}
        assert sample("karpenter_cloudprovider_duration_seconds_count", **about) >= 1
        await scene.settle(1)
        scene.api.delete(CLAIMS, "claim")
        await scene.until(lambda: not scene.has(CLAIMS, "claim"), within=60)
        errors = families()["karpenter_cloudprovider_errors_total"]
        assert any(about["error"] == "NodeClaimNotFoundError" for about, _ in errors)
