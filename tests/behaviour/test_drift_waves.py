"""Drift stops where new nodes do not come up, and goes on by itself when they do."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.conditions import DRIFT_PAUSED
from support.builders import NOW
from support.disruption import pool
from support.disruption_policies import asking
from support.fleet import Fleet, light
from support.world import POOLS, Scene, virtual


def drifting(scene: Scene, count: int = 6, nodes: str = "2", **knobs: str) -> Fleet:
    fleet = Fleet(scene, asking(pool(nodes=nodes), **knobs))
    for i in range(count):
        fleet.node(f"n{i}", light(f"p{i}", f"n{i}", "15"), drifted=NOW, consolidatable=False)
    return fleet


async def wave(fleet: Fleet) -> list[Any]:
    """One turn, and machines for what it ordered."""
    await fleet.scene.sleep(2)  # what was there before anything happened must be older than that
    before = {claim.name for claim in fleet.replacements()}
    await fleet.turn()
    new = [claim for claim in fleet.replacements() if claim.name not in before]
    for claim in new:
        await fleet.scene.live(claim.name)
    return new


@virtual
async def test_a_replacement_that_is_late_pauses_the_pool_and_says_so() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene, nodes="4", drift_pause_after="5m")
        first = await wave(fleet)
        assert len(first) == 4
        await fleet.up(first[0])
        await fleet.carry_on()
        assert len(fleet.going()) == 1
        fleet.forget(fleet.going()[0])
        await scene.sleep(360)
        assert await wave(fleet) == []
        status, reason = scene.pool_says(DRIFT_PAUSED) or ("", "")
        assert (status, reason) == ("True", "NodesNotReady")
        (told,) = fleet.told("DriftPaused")
        assert told[0] == "NodePool/default"
        assert "not ready after 5m0s" in told[1]
        for claim in first[1:]:
            await fleet.up(claim)
        await fleet.carry_on()
        for name in fleet.going():
            fleet.forget(name)
        await wave(fleet)
        # What came up has room for them: they go, and nothing more is bought.
        assert {"n4", "n5"} <= set(fleet.marked())
        assert scene.pool_says(DRIFT_PAUSED) is None
        assert fleet.told("DriftResumed") == [("NodePool/default", "Drift goes on")]


@virtual
async def test_a_lost_replacement_lets_one_node_try_at_a_time_until_one_comes_up() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene, nodes="3", drift_pause_after="10m")
        first = await wave(fleet)
        assert len(first) == 3
        for claim in first:
            fleet.forget(claim.name)
        await scene.heard()
        await fleet.carry_on()
        assert (fleet.marked(), fleet.commands()) == ([], 0)
        assert scene.pool_says(DRIFT_PAUSED) == ("True", "ReplacementLost")
        assert await wave(fleet) == []
        await scene.sleep(61)
        (probe,) = await wave(fleet)
        assert await wave(fleet) == []
        await fleet.up(probe)
        await fleet.carry_on()
        assert len(fleet.going()) == 1
        # It counts against the budget until it is gone; the others no longer wait for it.
        assert len(await wave(fleet)) == 2
        assert scene.pool_says(DRIFT_PAUSED) is None


@virtual
async def test_a_pause_outlives_the_process() -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene, drift_pause_after="10m")
        for claim in await wave(fleet):
            fleet.forget(claim.name)
        await scene.heard()
        await fleet.carry_on()
        assert scene.pool_says(DRIFT_PAUSED) == ("True", "ReplacementLost")
        await scene.stop()
        await scene.restart(acting=False)
        assert await wave(fleet) == []
        await scene.sleep(61)
        assert len(await wave(fleet)) == 1


@pytest.mark.parametrize("word", ["paused", "go"])
@virtual
async def test_people_pause_and_resume_with_an_annotation(word: str) -> None:
    async with Scene().still() as scene:
        fleet = drifting(scene, drift=word)
        new = await wave(fleet)
        if word == "go":
            assert len(new) == 2
            assert scene.pool_says(DRIFT_PAUSED) is None
            return
        assert new == []
        assert scene.pool_says(DRIFT_PAUSED) == ("True", "PausedByAnnotation")
        scene.api.patch(POOLS, "default", {"metadata": {"annotations": {labels.DRIFT: None}}})
        assert len(await wave(fleet)) == 2
        assert scene.pool_says(DRIFT_PAUSED) is None


@virtual
async def test_a_setting_of_nothing_never_pauses_and_what_was_lost_is_still_tried_later() -> None:
    async with Scene(flags=["--drift-pause-after=0s"]).still() as scene:
        fleet = drifting(scene)
        for claim in await wave(fleet):
            fleet.forget(claim.name)
        await scene.heard()
        await fleet.carry_on()
        assert scene.pool_says(DRIFT_PAUSED) is None
        assert await wave(fleet) == []
        await scene.sleep(61)
        assert len(await wave(fleet)) == 2
