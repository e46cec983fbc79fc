"""Empty nodes go, after a moment's thought, and as far as budgets allow."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from support.builders import owner, pod
from support.disruption import pool
from support.fleet import Fleet, light
from support.world import Scene, sample, virtual

FAILED = "karpenter_voluntary_disruption_failed_validations_total"
ELIGIBLE = "karpenter_voluntary_disruption_eligible_nodes"


def failed(kind: str = "empty") -> float:
    return sample(FAILED, consolidation_type=kind)


@pytest.mark.spec("disruption-46", "disruption-47", "disruption-56", "disruption-61")
@virtual
async def test_empty_nodes_go_together_after_the_wait_and_not_before() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a")
        fleet.node("b")
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(14)
        assert (fleet.marked(), turn.done()) == ([], False)
        await scene.sleep(2)
        assert (await turn).after is not None
        assert (fleet.marked(), fleet.commands()) == (["a", "b"], 1)
        assert scene.says("DisruptionReason", "a") == ("True", "Empty")
        assert sample(ELIGIBLE, reason="empty") == 2
        await fleet.carry_on()
        assert fleet.going() == ["a", "b"]


@pytest.mark.spec("disruption-57")
@virtual
async def test_a_pod_that_arrives_during_the_wait_keeps_its_node() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a")
        fleet.node("b")
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(5)
        fleet.pod(light("late", "a"))
        await turn
        assert fleet.marked() == ["b"]


@pytest.mark.spec("disruption-57")
@pytest.mark.parametrize("change", ["budget", "churn", "nominated"])
def test_what_happens_during_the_wait_can_stop_it_all(change: str) -> None:
    @virtual
    async def play() -> None:
        async with Scene().still() as scene:
            fleet = Fleet(scene)
            fleet.node("a")
            before = failed()
            turn = asyncio.create_task(fleet.turn())
            await scene.sleep(5)
            if change == "budget":
                fleet.edit_pool(budgets=[{"nodes": "0"}])
            elif change == "churn":
                fleet.pod(light("late", "a", "15"))
            else:
                await scene.sleep(5)
                scene.dovetail.cluster.nominate_node("kwok://a")
            await turn
            assert (fleet.marked(), fleet.commands()) == ([], 0)
            assert failed() == before + 1
            assert "empty" not in fleet.loop._quiet

    play()


@pytest.mark.spec("disruption-58")
@virtual
async def test_a_turn_held_back_by_a_budget_is_not_remembered() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("x", nodes="0"), pool("y", nodes="0"))
        fleet.node("a", pool="x")
        fleet.node("b", pool="y")
        await fleet.turn()
        assert "empty" not in fleet.loop._quiet
        told = fleet.told("DisruptionBlocked", "NodePool")
        note = "No allowed disruptions for disruption reason Empty due to blocking budget"
        assert sorted(told) == [("NodePool/x", note), ("NodePool/y", note)]
        for name in ("x", "y"):
            fleet.edit_pool(name, budgets=[{"nodes": "1"}])
        await fleet.turn()
        assert fleet.marked() == ["a", "b"]


@pytest.mark.spec("disruption-52")
@virtual
async def test_a_pool_without_consolidation_says_so() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(consolidate_after="Never"))
        fleet.node("a")
        await fleet.turn()
        note = 'NodePool "default" has consolidation disabled'
        assert sorted(fleet.told("Unconsolidatable")) == [("Node/a", note), ("NodeClaim/a", note)]
        assert fleet.marked() == []


@pytest.mark.spec("disruption-53")
@virtual
async def test_a_waiting_pod_does_not_turn_an_empty_node_into_another() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a")
        fleet.pod(pod("big", cpu="15", memory="100Mi"))
        await scene.look("provisioner")
        await fleet.turn()
        assert fleet.replacements() == []


@virtual
async def test_in_a_whole_cluster_empty_nodes_go_and_the_rest_stays() -> None:
    async with Scene(kwok=True).running() as scene:
        scene.pool()
        scene.pool("other", limits={"cpu": "0"})
        scene.apply(pod("a", cpu="3", memory="1Gi"), pod("b", cpu="30", memory="1Gi"))
        await scene.settle(60)
        home = scene.node_of("a").name
        scene.api.delete("pods", "b", "default")
        await scene.settle(120)
        assert [node.name for node in scene.nodes()] == [home]
        assert len(scene.claims()) == 1


@virtual
async def test_daemons_alone_do_not_keep_a_node() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        made = scene.api.create(
            "daemonsets.apps",
            {
                "metadata": {"name": "d", "namespace": "default"},
                "spec": {
                    "selector": {"matchLabels": {"app": "d"}},
                    "template": {
                        "metadata": {"labels": {"app": "d"}},
                        "spec": {"containers": [{"name": "c", "image": "x"}]},
                    },
                },
            },
        )
        of = replace(owner("DaemonSet", "d"), uid=made["metadata"]["uid"])
        fleet.node("a", light("daemon", "a", owned_by=of))
        await fleet.turn()
        assert fleet.marked() == ["a"]
