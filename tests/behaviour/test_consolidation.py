"""Underutilised nodes: what is decided is looked at again, and only then done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dovetail.api import labels
from dovetail.controllers.disruption_events import SECONDS
from support.disruption import LARGE, SMALL, machine, pool
from support.fleet import Fleet, light
from support.world import CLAIMS, Scene, sample, virtual

FAILED = "karpenter_voluntary_disruption_failed_validations_total"
TIMEOUTS = "karpenter_voluntary_disruption_consolidation_timeouts_total"
MOVES, SCORE = "karpenter_consolidation_moves_total", "karpenter_consolidation_score_count"


def mergeable(fleet: Fleet) -> None:
    """Two nodes of which one would do; `a` holds less, so it is the one to go."""
    fleet.node("a", light("p", "a"))
    fleet.node("b", *(light(f"q{i}", "b") for i in range(3)))


@pytest.mark.spec("disruption-62", "disruption-72", "disruption-94")
@virtual
async def test_an_oversized_node_is_replaced_after_the_wait() -> None:
    async with Scene().still() as scene:
        both = machine("both", 2, 0.5, ("spot", "on-demand"))
        fleet = Fleet(scene, types=[both, LARGE])
        fleet.node("a", light("p", "a"))
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(14)
        assert (fleet.marked(), fleet.replacements()) == ([], [])
        await turn
        assert (fleet.marked(), fleet.commands()) == (["a"], 1)
        (new,) = fleet.replacements()
        asked = {r.key: r.values for r in new.spec.requirements}
        assert asked[labels.INSTANCE_TYPE] == ("both",)
        assert asked[labels.CAPACITY_TYPE] == ("spot",)
        note = "Consolidation candidate: replace: [a] -> [1 replacement] (savings: $7.50)"
        assert sorted(fleet.told("ConsolidationCandidate")) == [("Node/a", note), ("NodeClaim/a", note)]
        await fleet.up(new)
        await fleet.carry_on()
        assert fleet.going() == ["a"]


@pytest.mark.spec("disruption-60", "disruption-64")
@virtual
async def test_a_node_that_stays_says_why_once() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(consolidation_policy="WhenEmpty"))
        fleet.node("a", light("p", "a"))
        await fleet.turns(2)
        note = 'NodePool "default" has consolidation policy WhenEmpty, but node is not empty'
        assert sorted(fleet.told("Unconsolidatable")) == [("Node/a", note), ("NodeClaim/a", note)]
    async with Scene().still() as scene:
        cheap, dear = machine("cheap", 2, 0.5, ("spot",)), machine("dear", 8, 9.0, ("spot",))
        fleet = Fleet(scene, types=[cheap, dear])
        fleet.node("a", light("p", "a"), of=dear, kind="spot")
        await fleet.turn()
        note = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        assert ("Node/a", note) in fleet.told("Unconsolidatable")


@pytest.mark.spec("disruption-85")
@virtual
async def test_a_destination_that_is_not_up_keeps_the_node_and_is_named() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("a", light("p", "a"))
        fleet.node("b", light("q", "b"), initialized=False, claim={"true": ("Launched", "Registered")})
        await fleet.turn()
        told = [note for of, note in fleet.told("Unconsolidatable") if of == "Node/a"]
        assert told
        assert told[0].startswith("Not all pods would schedule")
        assert "would schedule against uninitialized nodeclaim/b" in told[0]


async def disturbed(scene: Scene, change: Callable[[Fleet], None]) -> Fleet:
    """A turn in whose wait something happens."""
    fleet = Fleet(scene, types=[LARGE])
    mergeable(fleet)
    turn = asyncio.create_task(fleet.turn())
    await scene.sleep(10)
    change(fleet)
    await turn
    return fleet


@pytest.mark.spec("disruption-96")
@virtual
async def test_a_pod_that_must_not_move_arrives_in_time() -> None:
    async with Scene().still() as scene:
        hold = {labels.DO_NOT_DISRUPT: "true"}
        before = sample(FAILED, consolidation_type="single")
        fleet = await disturbed(scene, lambda fleet: fleet.pod(light("held", "a", annotations=hold)))
        assert (fleet.marked(), fleet.commands()) == ([], 0)
        assert sample(FAILED, consolidation_type="single") == before + 1
        rejected = "Consolidation rejected: delete: [a], reason: churn (savings: $8.00)"
        assert ("Node/a", rejected) in fleet.told("ConsolidationRejected")


@pytest.mark.spec("disruption-97")
@pytest.mark.parametrize("change", ["budget", "room", "nominated"])
def test_a_change_during_the_wait_ends_the_command_and_is_not_remembered(change: str) -> None:
    def happens(fleet: Fleet) -> None:
        if change == "budget":
            fleet.edit_pool(budgets=[{"nodes": "0"}])
        elif change == "room":
            fleet.pod(light("big", "b", "14"))
        else:
            fleet.scene.dovetail.cluster.nominate_node("kwok://a")

    @virtual
    async def play() -> None:
        async with Scene().still() as scene:
            before = sample(FAILED, consolidation_type="single")
            fleet = await disturbed(scene, happens)
            assert (fleet.marked(), fleet.commands()) == ([], 0)
            assert sample(FAILED, consolidation_type="single") == before + 1
            assert "single" not in fleet.loop._quiet

    play()


@pytest.mark.spec("disruption-98")
@virtual
async def test_when_many_fail_one_is_tried_in_the_same_turn() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("a", light("p", "a"))
        fleet.node("b", light("q", "b"))
        fleet.node("room", *(light(f"r{i}", "room") for i in range(3)), consolidatable=False)
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(10)
        fleet.annotate_pod("p")
        await turn
        assert fleet.marked() == ["b"]


@pytest.mark.spec("disruption-101", "disruption-81")
@virtual
async def test_of_two_equal_nodes_the_one_with_fewer_pods_goes() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[SMALL])
        fleet.node("a", light("p", "a"), of=SMALL)
        fleet.node("b", light("q", "b"), light("r", "b"), of=SMALL)
        await fleet.turn()
        await fleet.carry_on()
        assert (fleet.going(), fleet.replacements()) == (["a"], [])
        # The node that takes the pods is left alone meanwhile.
        place = scene.dovetail.cluster.find_by_node("b")
        assert place is not None
        assert place.is_nominated(scene.true_clock.now())


@pytest.mark.spec("disruption-110")
@virtual
async def test_one_by_one_no_more_go_than_the_budget() -> None:
    async with Scene().still() as scene:
        medium = machine("half", 16, 4.0)
        fleet = Fleet(scene, pool(nodes="30%"), types=[medium, LARGE])
        for i in range(10):
            fleet.node(f"n{i}", light(f"p{i}", f"n{i}", "12"))
        for _ in range(5):
            await fleet.turn()
            for new in fleet.replacements():
                await scene.live(new.name)
        assert fleet.commands() == 3
        for new in fleet.replacements():
            await fleet.up(new)
        await fleet.carry_on()
        assert len(fleet.going()) == 3


@pytest.mark.spec("disruption-104", "disruption-109")
@virtual
async def test_a_search_that_takes_too_long_is_counted_and_pools_are_remembered() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("x"), pool("y"), types=[LARGE])
        for name in ("x", "y"):
            fleet.node(name, light(f"p-{name}", name, "15"), pool=name)
        before = [sample(TIMEOUTS, consolidation_type=kind) for kind in ("multi", "single")]
        methods = fleet.loop._list_methods()
        await scene.sleep(200)
        fleet.loop._list_methods = lambda: methods  # type: ignore[method-assign]
        await fleet.turn()
        now = [sample(TIMEOUTS, consolidation_type=kind) for kind in ("multi", "single")]
        assert [b - a for a, b in zip(before, now, strict=True)] == [1, 1]
        assert (fleet.marked(), fleet.loop._unseen) == ([], frozenset(("x", "y")))
        del fleet.loop._list_methods
        await fleet.turn()
        assert fleet.loop._unseen == frozenset()


@virtual
async def test_a_quiet_cluster_is_not_searched_again_until_something_changes() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("a", light("p", "a", "15"))
        fleet.node("b", light("q", "b", "15"))
        await fleet.turn()
        assert set(fleet.loop._quiet) == {"empty", "multi", "single"}
        seen = fleet.loop._hash_cluster()
        scene.api.delete("pods", "q", "default", grace_seconds=0)
        await scene.heard()
        assert fleet.loop._hash_cluster() != seen
        await fleet.turn()
        assert fleet.marked() == ["b"]


@pytest.mark.spec("disruption-111", "disruption-123")
@virtual
async def test_balanced_moves_are_counted_scored_and_told() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("even", consolidation_policy="Balanced"))
        fleet.node("a", light("p", "a"), pool="even")
        about = {"decision": "approved", "nodepool": "even", "policy": "Balanced"}
        before = sample(MOVES, **about), sample(SCORE, **about)
        await fleet.turn()
        assert (sample(MOVES, **about), sample(SCORE, **about)) == (before[0] + 1, before[1] + 1)
        told = dict(fleet.told("ConsolidationApproved"))
        assert set(told) == {"Node/a", "NodeClaim/a"}
        assert told["Node/a"] == ("score 0.88 >= threshold 0.50 (k: 2, savings 87.5%, disruption 100.0%)")
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool("even", consolidation_policy="Balanced"))
        for name in ("a", "b", "c"):
            fleet.node(name, light(f"p-{name}", name), pool="even")
        await fleet.turn()
        assert [of for of, _ in fleet.told("ConsolidationApproved")] == ["NodePool/even"]


@pytest.mark.spec("disruption-112", "disruption-123")
@virtual
async def test_a_move_not_worth_it_is_counted_and_nobody_is_told() -> None:
    async with Scene().still() as scene:
        slightly = machine("slightly", 16, 7.9)
        fleet = Fleet(scene, pool("even", consolidation_policy="Balanced"), types=[slightly, LARGE])
        fleet.node("a", light("p", "a"), pool="even")
        about = {"decision": "rejected", "nodepool": "even", "policy": "Balanced"}
        before = sample(MOVES, **about)
        await fleet.turn()
        assert sample(MOVES, **about) == before + 1
        assert (fleet.marked(), fleet.told("ConsolidationApproved")) == ([], [])


@pytest.mark.spec("disruption-153")
@virtual
async def test_a_node_that_waits_for_pods_is_not_taken_away_as_empty() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "15"), drifted=scene.true_clock.now(), consolidatable=False)
        await fleet.turn()
        (new,) = fleet.replacements()
        await fleet.up(new)
        await scene.look("nodeclaim.disruption", new.name)
        await scene.look("provisioner")
        await fleet.turn()
        assert not scene.claim_now(new.name).deleting
        assert f"node-{new.name}" not in fleet.marked()


# The whole cluster at work


@virtual
async def test_a_whole_cluster_shrinks_and_then_rests() -> None:
    async with Scene(kwok=True).running() as scene:
        scene.pool(requirements=[(labels.CAPACITY_TYPE, "In", "on-demand")])
        fleet = 12
        scene.api.create(
            "deployments.apps",
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "replicas": fleet,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {
                            "containers": [
                                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
                            ]
                        },
                    },
                },
            },
        )
        await scene.settle(90)
        scene.api.patch("deployments.apps", "web", {"spec": {"replicas": 2}}, "default")
        await scene.settle(1200)
        names = sorted(claim.name for claim in scene.claims())
        running = [p for p in scene.pods() if p.status.phase == "Running"]
        assert len(running) == 2
        await scene.settle(1800)
        assert sorted(claim.name for claim in scene.claims()) == names
        assert all(not scene.has(CLAIMS, name) or not scene.claim_now(name).deleting for name in names)


@virtual
async def test_a_cluster_in_which_nothing_was_found_is_not_asked_again_until_it_changes() -> None:
    def asked() -> float:
        samples = [each for family in SECONDS.collect() for each in family.samples]
        return sum(each.value for each in samples if each.name.endswith("_count"))

    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[SMALL])
        fleet.node("a", light("p", "a"), of=SMALL)  # a candidate, and there is nothing cheaper
        await fleet.turn()
        once = asked()
        await fleet.turns(3)
        assert asked() == once
        fleet.node("b", of=SMALL)
        await fleet.turn()
        assert asked() > once
