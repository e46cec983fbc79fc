"""A replacement that does not come up: the same is tried later, later each time, and never for two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.conditions import DRIFT_PAUSED, REPLACEMENTS_LOST
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.replacement_backoff import read_setbacks
from dovetail.disruption.report import build_report
from dovetail.sim.faults import FaultRule
from support.builders import NOW
from support.disruption import SIZES, pool
from support.fleet import Fleet, light
from support.world import POOLS, Scene, virtual


def drifting(scene: Scene, *names: str) -> Fleet:
    fleet = Fleet(scene, pool(nodes="1"), types=SIZES)
    for name in names or ("a",):
        fleet.node(name, light(f"p-{name}", name, "15"), drifted=NOW, consolidatable=False)
    return fleet


async def ordered(fleet: Fleet) -> list[NodeClaim]:
    """One turn of the loop, and what it ordered."""
    before = {claim.name for claim in fleet.replacements()}
    await fleet.turn()
    return [claim for claim in fleet.replacements() if claim.name not in before]


async def lose(fleet: Fleet, claims: Iterable[NodeClaim]) -> None:
    for claim in claims:
        await fleet.scene.live(claim.name)
        fleet.forget(claim.name)
    await fleet.scene.heard()
    await fleet.carry_on()


@virtual
async def test_what_was_lost_is_tried_again_after_a_minute_then_two_then_four_and_one_at_a_time() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        for wait in (60, 120, 240):
            new = await ordered(fleet)
            assert len(new) == 1
            await lose(fleet, new)
            assert (fleet.marked(), fleet.commands()) == ([], 0)
            assert await ordered(fleet) == []
            await scene.sleep(wait - 5)
            assert await ordered(fleet) == []
            await scene.sleep(10)
        (last,) = await ordered(fleet)
        await fleet.up(last)
        await fleet.carry_on()
        assert fleet.going() == ["a"]
        assert read_setbacks(scene.pool_now()) == {}


@virtual
async def test_the_pool_says_what_was_lost_and_until_when_it_waits() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene)
        await lose(fleet, await ordered(fleet))

        assert scene.pool_says(REPLACEMENTS_LOST) == ("True", "Drifted")
        (told,) = fleet.told("ReplacementsLost")
        assert told[0] == "NodePool/default"
        assert told[1].startswith("Drifted: replacement did not come up; the next is tried at ")
        await scene.heard()
        (stays,) = build_report(await fleet.loop.build_input(), 1).blocked_nodes
        assert stays.main.blocked_reason is BlockedReason.BACKED_OFF
        assert stays.main.why == told[1]
        await scene.sleep(70)
        await fleet.turn()
        assert scene.pool_says(REPLACEMENTS_LOST) is None


@virtual
async def test_a_pool_that_is_edited_is_tried_at_once() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        await lose(fleet, await ordered(fleet))
        assert await ordered(fleet) == []
        scene.api.patch(POOLS, "default", {"spec": {"weight": 7}})
        assert len(await ordered(fleet)) == 1


@virtual
async def test_a_wait_outlives_the_process() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        await lose(fleet, await ordered(fleet))
        await scene.stop()
        await scene.restart(acting=False)
        assert await ordered(fleet) == []
        await scene.sleep(61)
        assert len(await ordered(fleet)) == 1


@virtual
async def test_a_loss_that_could_not_be_written_down_is_with_the_next_turn_and_outlives_the_process() -> None:
    """Else a leader that comes after would buy the same machine again at once, and nobody would know why."""
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        new = await ordered(fleet)
        scene.trouble(FaultRule(trouble="unavailable", verbs=("patch",), resources=(POOLS,)))
        await lose(fleet, new)
        assert scene.storm.record, "the note was refused"
        assert (read_setbacks(scene.pool_now()), scene.pool_says(REPLACEMENTS_LOST)) == ({}, None)
        assert await ordered(fleet) == [], "it counts all the same"
        scene.storm.end_faults()
        assert await ordered(fleet) == []
        assert set(read_setbacks(scene.pool_now())) == {"Drifted"}
        assert scene.pool_says(REPLACEMENTS_LOST) == ("True", "Drifted")
        await scene.stop()
        await scene.restart(acting=False)
        assert await ordered(fleet) == []


@virtual
async def test_the_wait_holds_before_the_watch_has_told_of_it() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        new = await ordered(fleet)
        stale = scene.pool_now()
        await lose(fleet, new)
        known = fleet.loop._losses.add_losses(stale)
        assert set(read_setbacks(known)) == {"Drifted"}
        assert fleet.loop._losses.add_losses(stale) is known


@virtual
async def test_a_cause_waits_for_its_own_losses_only() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        note = f"Underutilized=1@{scene.true_clock.now().strftime('%Y-%m-%dT%H:%M:%SZ')}/1"
        scene.api.patch(POOLS, "default", {"metadata": {"annotations": {labels.LOST_REPLACEMENTS: note}}})
        assert set(read_setbacks(scene.pool_now())) == {"Underutilized"}
        assert len(await ordered(fleet)) == 1


@virtual
async def test_losses_of_one_wave_count_once() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene, "a", "b", "c")
        fleet.edit_pool(budgets=[{"nodes": "3"}])
        new = await ordered(fleet)
        assert len(new) == 3
        await lose(fleet, new)
        assert read_setbacks(scene.pool_now())["Drifted"].count == 1


@virtual
async def test_the_provisioner_buys_nothing_for_the_pods_of_a_node_whose_replacement_was_lost() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene)
        (new,) = await ordered(fleet)
        await scene.live(new.name)
        place = scene.dovetail.cluster.find_by_node("a")
        assert place is not None
        assert place.marked
        fleet.forget(new.name)
        await scene.heard()
        # The queue has not come round to it, and already the node counts as one that stays.
        assert fleet.commands() == 1
        await scene.look("provisioner")
        assert fleet.replacements() == []


@virtual
async def test_a_replacement_that_is_on_its_way_out_is_lost() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene)
        (new,) = await ordered(fleet)
        await scene.live(new.name)
        scene.api.delete("nodeclaims.karpenter.sh", new.name)
        await scene.heard()
        assert scene.claim_now(new.name).deleting
        await fleet.carry_on()
        assert (fleet.marked(), fleet.commands()) == ([], 0)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "Drifted",
        "Drifted=x@2026-01-01T00:00:00Z/1",
        "Drifted=1@2026-99-99T00:00:00Z/1",
        "Drifted=1@9999-12-31T23:59:59Z/1",
        "Drifted=" + "9" * 5000 + "@2026-01-01T00:00:00Z/1",
    ],
)
@virtual
async def test_a_note_that_cannot_be_read_holds_nobody_up(note: str) -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene)
        scene.api.patch(POOLS, "default", {"metadata": {"annotations": {labels.LOST_REPLACEMENTS: note}}})
        assert len(await ordered(fleet)) == 1


@pytest.mark.parametrize(
    ("ours", "look", "at_once"),
    [
        pytest.param(REPLACEMENTS_LOST, 1, False, id="what was lost is told again"),
        pytest.param(DRIFT_PAUSED, 2, True, id="the pause is written again, for nobody sees the loss twice"),
    ],
)
@virtual
async def test_a_condition_that_somebody_else_writes_at_the_same_moment_stays(
    ours: str, look: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scene().still() as scene:
        fleet, looks = drifting(scene), 0
        ask = fleet.loop._losses._kube.get
        theirs = {"type": "Theirs", "status": "True", "reason": "Theirs", "message": ""}

        async def get(kind: Any, name: str) -> Any:
            nonlocal looks
            found = await ask(kind, name)
            looks += kind is NodePool
            if kind is NodePool and looks == look:
                since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
                now = [*scene.api.get(POOLS, "default")["status"]["conditions"], theirs | since]
                scene.api.patch(POOLS, "default", {"status": {"conditions": now}}, subresource="status")
            return found

        new = await ordered(fleet)
        monkeypatch.setattr(fleet.loop._losses._kube, "get", get)
        await lose(fleet, new)
        assert scene.pool_says("Theirs") == ("True", "Theirs")
        if not at_once:
            assert scene.pool_says(ours) is None
            await fleet.turn()
            assert scene.pool_says("Theirs") == ("True", "Theirs")
        assert (scene.pool_says(ours) or ("",))[0] == "True"
