"""Drifted nodes are replaced, the oldest first, no faster than budgets allow."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.api import labels
from support.builders import NOW
from support.disruption import pool
from support.fleet import Fleet, light
from support.world import POOLS, Scene, sample, virtual

ALLOWED = "karpenter_nodepools_allowed_disruptions"
CONSUMING = "karpenter_nodepools_nodes_consuming_budgets"


async def launched(fleet: Fleet) -> None:
    """Every replacement has its machine: until then the loop waits."""
    for claim in fleet.replacements():
        await fleet.scene.live(claim.name)


@pytest.mark.spec("disruption-124")
@virtual
async def test_a_drifted_node_goes_when_its_replacement_is_up() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "15"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        (new,) = fleet.replacements()
        await fleet.carry_on()
        assert fleet.going() == []
        await fleet.up(new)
        await fleet.carry_on()
        assert fleet.going() == ["a"]


@pytest.mark.spec("disruption-129")
@virtual
async def test_a_node_whose_pods_find_no_place_says_so() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        stuck = light("stuck", "a", node_selector={"no": "such"})
        fleet.node("a", stuck, drifted=NOW - timedelta(hours=1), consolidatable=False)
        fleet.node("b", light("q", "b", "15"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        assert fleet.marked() == ["b"]
        notes = [note for of, note in fleet.told("DisruptionBlocked") if of == "Node/a"]
        assert notes
        assert notes[0].startswith("Not all pods would schedule, default/stuck => ")


@pytest.mark.spec("disruption-131")
@virtual
async def test_one_command_a_turn_the_longest_drifted_first() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        for i, name in enumerate(("young", "old")):
            since = NOW - timedelta(hours=i)
            fleet.node(name, light(f"p-{name}", name, "15"), drifted=since, consolidatable=False)
        fleet.loop.drift_at_once = 1
        await fleet.turn()
        assert fleet.marked() == ["old"]
        await launched(fleet)
        await fleet.turn()
        assert fleet.marked() == ["old", "young"]


@pytest.mark.spec("disruption-132", "disruption-133")
@virtual
async def test_drift_stops_at_the_budget() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("drifting", nodes="30%"))
        for i in range(10):
            since = NOW if i < 5 else None
            fleet.node(
                f"n{i}", light(f"p{i}", f"n{i}", "15"), pool="drifting", drifted=since, consolidatable=False
            )
        for turn in range(5):
            await fleet.turn()
            if turn == 0:
                about = {"nodepool": "drifting", "reason": "Drifted"}
                assert (sample(ALLOWED, **about), sample(CONSUMING, **about)) == (3, 0)
            await launched(fleet)
        assert (fleet.commands(), len(fleet.marked())) == (3, 3)


@virtual
async def test_as_many_nodes_as_the_budget_allows_are_replaced_in_one_turn() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(nodes="4"))
        for i in range(10):
            fleet.node(f"n{i}", light(f"p{i}", f"n{i}", "9"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        assert (fleet.commands(), len(fleet.marked()), len(fleet.replacements())) == (4, 4, 4)


@pytest.mark.spec("disruption-133")
@virtual
async def test_each_pool_drifts_within_its_own_budget() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("x", nodes="1"), pool("y", nodes="0"), pool("z"))
        for name in ("x", "y", "z"):
            for i in range(2):
                node = f"{name}{i}"
                fleet.node(node, light(f"p-{node}", node, "15"), pool=name, drifted=NOW, consolidatable=False)
        for _ in range(6):
            await fleet.turn()
            await launched(fleet)
        assert [name[0] for name in fleet.marked()] == ["x", "z", "z"]
        note = "No allowed disruptions for disruption reason Drifted due to blocking budget"
        assert ("NodePool/y", note) in fleet.told("DisruptionBlocked")


@pytest.mark.spec("disruption-127")
@virtual
async def test_with_a_deadline_a_held_node_goes_and_nothing_is_bought_for_the_pod_that_stays() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        held = light("held", "a", "15", annotations={labels.DO_NOT_DISRUPT: "true"})
        grace = {"termination_grace_period": "5m"}
        fleet.node("a", held, drifted=NOW, consolidatable=False, claim=grace)
        await fleet.turn()
        await fleet.carry_on()
        assert (fleet.going(), fleet.replacements()) == (["a"], [])


@pytest.mark.spec("disruption-151")
@virtual
async def test_what_is_bought_for_one_command_serves_no_other() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        for name in ("a", "b"):
            fleet.node(name, light(f"p-{name}", name, "9"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        await launched(fleet)
        await fleet.turn()
        assert (fleet.commands(), len(fleet.replacements())) == (2, 2)


@virtual
async def test_a_change_of_template_replaces_every_node_and_loses_no_pod() -> None:
    async with Scene(kwok=True).running() as scene:
        scene.apply(pool(nodes="1"))
        scene.api.create(
            "deployments.apps",
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "replicas": 4,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {
                            "affinity": {
                                "podAntiAffinity": {
                                    "requiredDuringSchedulingIgnoredDuringExecution": [
                                        {
                                            "topologyKey": "kubernetes.io/hostname",
                                            "labelSelector": {"matchLabels": {"app": "web"}},
                                        }
                                    ]
                                }
                            },
                            "containers": [
                                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
                            ],
                        },
                    },
                },
            },
        )
        await scene.settle(120)
        before = {claim.name for claim in scene.claims()}
        assert len(before) == 4
        scene.api.patch(POOLS, "default", {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}})
        await scene.settle(900)
        after = {claim.name for claim in scene.claims()}
        assert len(after) == 4
        assert not before & after
        assert all(p.status.phase == "Running" for p in scene.pods())
