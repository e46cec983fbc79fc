"""The way back: what is swept, when buying begins again, pools without their ledger, and stand-ins."""

from __future__ import annotations

import pytest

from support.stage import virtual
from support.zonal import A, B, C, Shifted, entry

LABEL = "karpenter.sh/do-not-disrupt"


def legacy(world: Shifted, name: str, **notes: str) -> None:
    """A node as a tool without records would have left it."""
    patch = {"metadata": {"labels": {LABEL: "true"}, "annotations": notes}, "spec": {"unschedulable": True}}
    world.api.patch("nodes", name, patch)


async def there_and_back(world: Shifted, zone: str = A) -> None:
    await world.shift(zone)
    await world.until(lambda: world.phase(zone) == "Active", within=60)
    await world.settle(310)
    await world.cancel()
    await world.restored(zone)


@virtual
async def test_marks_without_a_ledger_are_swept_only_in_the_zone_and_only_when_asked_for() -> None:
    world = Shifted(protect=False, sweep_legacy=True)
    world.pool()
    legacy(world, "a0", **{LABEL: "4h"})
    legacy(world, "b0")
    world.api.patch("nodes", "a1", {"spec": {"unschedulable": True}})
    async with world.running():
        await there_and_back(world)
        assert world.marks("a0") == (None, "4h", False), (
            "label and cordon go; an annotation is somebody's own"
        )
        assert world.marks("a1") == (None, None, True), "a cordon without the label is a person's"
        assert world.marks("b0") == ("true", None, True), "another zone is not touched"
        swept = [each for each in world.zonal.controller.writer.audits if each.object == "Node/a0"]
        assert [(each.field, each.before, each.after) for each in swept] == [
            ("label", "true", None),
            ("cordon", True, False),
        ]
        assert all(each.shift and each.reason == "released" for each in swept)


@virtual
async def test_without_being_asked_nobodys_marks_are_swept() -> None:
    world = Shifted(protect=True)
    world.pool()
    legacy(world, "a0")
    async with world.running():
        await there_and_back(world)
        assert world.marks("a0") == ("true", None, True)
        assert world.marks("a1") == (None, None, False)


@virtual
async def test_a_zone_still_shifted_by_another_is_not_swept() -> None:
    world = Shifted(protect=True, sweep_legacy=True)
    world.pool()
    legacy(world, "a0")
    async with world.running():
        world.local(A)
        await world.shift(A)
        await world.until(lambda: len(world.shifts()) == 2 and world.phase() == "Active", within=60)
        await world.settle(310)
        await world.cancel()
        mine = next(each for each in world.shifts() if each["spec"]["kind"] == "ZONAL_SHIFT")
        ended = mine["metadata"]["name"]

        def over() -> bool:
            found = {each["metadata"]["name"]: each.get("status", {}).get("phase") for each in world.shifts()}
            return found[ended] == "Restored"

        await world.until(over, within=1800, step=5)
        assert world.marks("a0")[0] == "true"
        assert world.marks("a1") == ("true", "true", True)


@pytest.mark.parametrize("fast", [False, True])
@virtual
async def test_buying_begins_again_before_all_nodes_are_released_only_if_wanted_fast(fast: bool) -> None:
    world = Shifted(nodes={A: 8, B: 2, C: 2}, mode="Both", restore_fast=fast)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(310)
        await world.cancel()
        await world.until(lambda: world.status().get("step") == "nodes", within=900, step=1)
        await world.settle(6)
        assert 0 < len(world.protected()) < 8, "in the middle of it"
        assert world.gates.launches(world.ids(A)) is not fast
        assert world.gates.disruption(A), "what runs there is left alone until it has settled"
        await world.restored()
        assert not world.gates.launches(world.ids(A))
