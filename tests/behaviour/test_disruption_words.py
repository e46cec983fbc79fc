"""How often nodes that stay are spoken of, and what validation says when a command is dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.sim.faults import FaultRule
from support.builders import NOW, pod
from support.disruption import LARGE, pool
from support.fleet import Fleet, light
from support.world import CLAIMS, Scene, sample, virtual

FAILED = "karpenter_voluntary_disruption_failed_validations_total"


@pytest.mark.spec("disruption-60")
@pytest.mark.parametrize(
    ("about", "node", "count"),
    [
        ({"consolidation_policy": "WhenEmpty"}, {}, 4),
        ({"consolidate_after": "Never"}, {}, 6),
        ({}, {"labels": {labels.INSTANCE_TYPE: ""}}, 4),
        ({}, {"labels": {labels.CAPACITY_TYPE: ""}}, 4),
        ({}, {"labels": {labels.ZONE: ""}}, 4),
    ],
)
@virtual
async def test_methods_speak_of_node_and_claim_each_time_they_pass_one_over(
    about: dict[str, Any], node: dict[str, Any], count: int
) -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(**about))
        fleet.node("a", light("p", "a"), **node)
        said: list[tuple[str, str]] = []
        recorder = fleet.loop._events._recorder
        tell = recorder.publish_event

        def listen(obj: Any, reason: str, note: str, **how: Any) -> None:
            said.append((obj.KIND.kind, reason))
            tell(obj, reason, note, **how)

        recorder.publish_event = listen  # type: ignore[method-assign]
        await fleet.turn()
        told = [kind for kind, reason in said if reason == "Unconsolidatable"]
        assert len(told) == count
        assert told.count("Node") == told.count("NodeClaim") == count // 2
        # People see each sentence once: the rest is folded away.
        assert len(fleet.told("Unconsolidatable")) == 2


async def interrupted(fleet: Fleet, meanwhile: Any) -> None:
    """One turn, with something happening while the command waits to be looked at again."""
    clock = fleet.scene.true_clock
    slept = clock.sleep

    async def sleep(seconds: float) -> None:
        await slept(seconds)
        if seconds == 15:
            meanwhile()
            await slept(1)

    clock.sleep = sleep  # type: ignore[method-assign]
    try:
        await fleet.turn()
    finally:
        clock.sleep = slept  # type: ignore[method-assign]


@pytest.mark.spec("disruption-99")
@pytest.mark.parametrize("kind", ["budget", "nominated", "scheduling", "churn"])
@virtual
async def test_a_dropped_command_says_what_was_wrong_with_it(kind: str) -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a"))

        def meanwhile() -> None:
            match kind:
                case "budget":
                    fleet.edit_pool(budgets=[{"nodes": "0"}])
                case "nominated":
                    scene.dovetail.cluster.nominate_node("kwok://a")
                case "scheduling":
                    fleet.pod(pod("more", cpu="3", memory="100Mi", node="a"))
                case _:
                    fleet.annotate_pod("p")

        before = sample(FAILED, consolidation_type="single")
        await interrupted(fleet, meanwhile)
        assert fleet.marked() == []
        word = "budget" if kind == "nominated" else kind
        (note,) = [note for of, note in fleet.told("ConsolidationRejected") if of == "Node/a"]
        assert f", reason: {word} (savings: $7.00)" in note
        assert sample(FAILED, consolidation_type="single") == before + 1


@pytest.mark.spec("disruption-150")
@pytest.mark.parametrize(("marked_early", "bought"), [(False, 0), (True, 1)])
@virtual
async def test_while_an_order_hangs_the_provisioner_buys_nothing(marked_early: bool, bought: int) -> None:
    """Only because the node is marked after its replacement is ordered: earlier, it would buy as well."""
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("a", light("p", "a", "9"), drifted=NOW, consolidatable=False)
        slow = FaultRule(trouble="latency", verbs=("create",), resources=(CLAIMS,), amount=30.0)
        scene.trouble(slow)
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(5)
        assert (fleet.marked(), turn.done(), fleet.replacements()) == (["a"], False, [])
        scene.trouble()
        if marked_early:
            scene.dovetail.cluster.mark_for_deletion(["kwok://a"])
        await scene.look("provisioner")
        assert len(fleet.replacements()) == bought
        await turn
        assert len(fleet.replacements()) == bought + 1


@pytest.mark.spec("disruption-151")
@virtual
async def test_later_commands_see_the_pods_of_earlier_ones_on_nodes_that_are_not_up_yet() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.loop.drift_at_once = 1
        for name in ("a", "b", "c"):
            fleet.node(name, light(f"p-{name}", name, "9"), drifted=NOW, consolidatable=False)
        bought: list[str] = []
        for number in range(1, 4):
            await fleet.turn()
            (new,) = [claim.name for claim in fleet.replacements() if claim.name not in bought]
            await scene.live(new)
            bought.append(new)
            assert fleet.commands() == number
        commands = [running.command for running in fleet.queue._running.values()]
        last = commands[-1]
        assert last.plan is not None
        earlier = {f"default/p-{command.candidates[0].name}" for command in commands[:-1]}
        # Each pod that is on its way out has its place on a replacement that has not even joined …
        seated = {pod for name in bought[:-1] for pod in last.plan.existing.get(name, ())}
        assert seated == earlier
        assert not any(scene.says("Initialized", name) == ("True", "Initialized") for name in bought)
        # … so that the command buys for its own pod alone.
        assert [node.pods for node in last.replacements] == [(f"default/p-{last.candidates[0].name}",)]


@pytest.mark.parametrize(("value", "told"), [("NaN", True), ("many", True), ("-5", False), ("", True)])
@virtual
async def test_a_deletion_cost_that_is_no_number_is_told_once(value: str, told: bool) -> None:
    async with Scene().running() as scene:
        scene.create(pod("web", annotations={labels.POD_DELETION_COST: value}))
        await scene.settle(5)
        scene.api.patch("pods", "web", {"metadata": {"labels": {"a": "b"}}}, "default")
        await scene.settle(5)
        said = scene.events("InvalidDeletionCost")
        assert [(kind, about) for kind, about, _ in said] == [("Warning", "Pod/web")] * told
        assert all(repr(value) in note and "give an integer" in note for _, _, note in said)
