"""Knobs against churn, as the controllers keep them, and several nodes for several."""

from __future__ import annotations

from typing import Any

from dovetail.api import labels
from support.builders import pod
from support.disruption import MEDIUM, machine, pool
from support.disruption_policies import asking
from support.fleet import Fleet, light
from support.world import POOLS, Scene, sample, virtual

HUGE = machine("huge", 64, 40.0)
DECISIONS = "karpenter_voluntary_disruption_decisions_total"


def recent(scene: Scene) -> str:
    return scene.pool_now().annotations.get(labels.RECENT, "")


@virtual
async def test_a_rate_holds_from_turn_to_turn_and_over_a_restart() -> None:
    async with Scene(flags=["--disruption-rate=2/1h"]).still() as scene:
        fleet = Fleet(scene, pool())
        for i in range(5):
            fleet.node(f"n{i}")
        await fleet.turn()
        assert len(fleet.marked()) == 2
        assert recent(scene).endswith("=2")
        await fleet.turns(2)
        assert len(fleet.marked()) == 2
        await fleet.carry_on()
        for name in fleet.going():
            fleet.forget(name)
            scene.api.patch("nodes", name, {"metadata": {"finalizers": None}})
            scene.api.delete("nodes", name)
        await scene.stop()
        await scene.restart(acting=False)
        await fleet.turn()
        assert (fleet.marked(), len(scene.nodes())) == ([], 3)
        await scene.sleep(3600)
        await fleet.turn()
        assert len(fleet.marked()) == 2


@virtual
async def test_a_pool_without_a_rate_is_not_written_on() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool())
        fleet.node("n")
        await fleet.turn()
        assert fleet.marked() == ["n"]
        assert recent(scene) == ""


@virtual
async def test_a_pools_own_word_wins_over_the_setting() -> None:
    async with Scene(flags=["--consolidation-min-saving=1000"]).still() as scene:
        fleet = Fleet(scene, pool("strict"), asking(pool("easy"), min_saving="0"))
        for name in ("strict", "easy"):
            mine = light(f"p-{name}", f"n-{name}", node_selector={labels.NODEPOOL: name})
            fleet.node(f"n-{name}", mine, pool=name)
        await fleet.turn()
        for claim in fleet.replacements():
            await scene.live(claim.name)
        await fleet.turn()
        assert fleet.marked() == ["n-easy"]
        notes = [note for of, note in fleet.told("Unconsolidatable") if of == "Node/n-strict"]
        assert any(note.startswith("Saving too small by $") for note in notes)


@virtual
async def test_turning_a_knob_makes_the_loop_look_again() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, asking(pool(), min_saving="1000"))
        fleet.node("n", light("p", "n"))
        await fleet.turns(2)
        assert fleet.marked() == []
        scene.api.patch(POOLS, "default", {"metadata": {"annotations": {labels.MIN_SAVING: None}}})
        await fleet.turn()
        assert fleet.marked() == ["n"]


async def splitting(scene: Scene, **about: Any) -> Fleet:
    """A huge node with five pods, for which five medium ones are the better deal."""
    fleet = Fleet(scene, asking(pool(**about), consolidation="many"), types=[HUGE, MEDIUM])
    pods = [pod(f"p{i}", cpu="3500m", memory="10Mi", node="n") for i in range(5)]
    fleet.node("n", *pods, of=HUGE)
    await fleet.turn()
    return fleet


@virtual
async def test_a_node_is_split_once_all_its_replacements_are_up() -> None:
    async with Scene().still() as scene:
        about = {"decision": "replace", "reason": "underutilized", "consolidation_type": "many"}
        before = sample(DECISIONS, **about)
        fleet = await splitting(scene)
        assert sample(DECISIONS, **about) == before + 1
        new = fleet.replacements()
        assert (fleet.marked(), len(new)) == (["n"], 5)
        note = "Consolidation candidate: replace: [n] -> [5 replacements] "
        note += "(savings: $30.00, evictions: 5, paid back in 2 min)"
        assert ("Node/n", note) in fleet.told("ConsolidationCandidate")
        for claim in new[:4]:
            await fleet.up(claim)
        await fleet.carry_on()
        assert fleet.going() == []
        await fleet.up(new[4])
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == (["n"], 0)


@virtual
async def test_a_split_is_taken_back_when_one_replacement_is_lost() -> None:
    async with Scene().still() as scene:
        fleet = await splitting(scene)
        new = fleet.replacements()
        await fleet.up(new[0])
        fleet.forget(new[1].name)
        await scene.heard()
        await fleet.carry_on()
        assert (fleet.marked(), fleet.going(), fleet.commands()) == ([], [], 0)
        assert scene.says("DisruptionReason", "n") is None


@virtual
async def test_a_split_waits_and_is_left_when_a_pod_comes_meanwhile() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, asking(pool(), consolidation="many"), types=[HUGE, MEDIUM])
        pods = [pod(f"p{i}", cpu="3500m", memory="10Mi", node="n") for i in range(5)]
        fleet.node("n", *pods, of=HUGE)
        slept = scene.true_clock.sleep

        async def meanwhile(seconds: float) -> None:
            await slept(seconds)
            if seconds == 15:
                fleet.pod(pod("new", cpu="20", memory="10Mi", node="n"))
                await slept(1)

        scene.dovetail.clock.sleep = meanwhile  # type: ignore[method-assign]
        try:
            await fleet.turn()
        finally:
            scene.dovetail.clock.sleep = slept  # type: ignore[method-assign]
        assert (fleet.marked(), fleet.replacements()) == ([], [])


@virtual
async def test_the_setting_turns_it_on_for_every_pool_and_a_pool_can_turn_it_off() -> None:
    for own, count in (({}, 5), ({"consolidation": "one"}, 0)):
        async with Scene(flags=["--consolidate-many=true"]).still() as scene:
            fleet = Fleet(scene, asking(pool(), **own), types=[HUGE, MEDIUM])
            pods = [pod(f"p{i}", cpu="3500m", memory="10Mi", node="n") for i in range(5)]
            fleet.node("n", *pods, of=HUGE)
            await fleet.turn()
            assert len(fleet.replacements()) == count


@virtual
async def test_budgets_hold_for_it_too() -> None:
    async with Scene().still() as scene:
        fleet = await splitting(scene, nodes="0")
        assert (fleet.marked(), fleet.replacements()) == ([], [])
