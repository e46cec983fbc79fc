"""Policy and dry run are changed while a process runs, by a ConfigMap; bad words change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from support.stage import virtual
from support.zonal import A, B, C, entry
from support.zonal_stores import Kept

MAP = "karpenter-zonal-shift"
FLAG = f"--zonal-shift-config-map=kube-system/{MAP}"


def write(world: Kept, **data: str) -> None:
    named = {key.replace("_", "-"): value for key, value in data.items()}
    body: dict[str, Any] = {"metadata": {"name": MAP, "namespace": "kube-system"}, "data": named}
    known = [each["metadata"]["name"] for each in world.api.list("configmaps", "kube-system")]
    if MAP in known:
        world.api.delete("configmaps", MAP, "kube-system")
    world.api.create("configmaps", body)


def world_of(**options: Any) -> Kept:
    world = Kept("Cluster", FLAG, mode="Both", **options)
    world.pool("default", entry("In", A, B, C))
    return world


@virtual
async def test_a_policy_is_changed_in_the_middle_of_a_shift_and_back() -> None:
    world = world_of()
    write(world, policy="manual=Observe")
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        assert (world.away(), world.gates.is_launch_closed(world.ids(A))) == ([], False)

        write(world, policy="manual=Protect")
        await world.until(lambda: world.gates.is_launch_closed(world.ids(A)), within=5)
        assert world.away() == []
        write(world, policy="manual=Enforce")
        await world.until(lambda: world.away() == [A], within=10)
        await world.until(lambda: world.protected() == ["a0", "a1"], within=10)
        write(world, policy="manual=Protect")
        await world.until(lambda: world.wanted() == before, within=400)
        assert world.gates.is_launch_closed(world.ids(A))


@virtual
async def test_a_dry_run_becomes_real_when_the_map_says_so() -> None:
    world = world_of(dry_run="server")
    write(world, dry_run="true")
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.status().get("plan"), within=60)
        assert (world.away(), world.protected(), world.gates.is_launch_closed(world.ids(A))) == (
            [],
            [],
            False,
        )

        write(world, dry_run="false")
        await world.until(lambda: world.away() == [A] and world.protected() == ["a0", "a1"], within=20)
        assert world.gates.is_launch_closed(world.ids(A))
        (shift,) = world.shifts()
        assert not shift["spec"].get("dryRun")


@pytest.mark.parametrize("word", ["true", "client"])
@pytest.mark.spec("zonal-E32")
@virtual
async def test_e32_a_dry_run_in_the_middle_of_a_real_shift_writes_nothing_and_lets_everything_stand(
    word: str,
) -> None:
    world = world_of()
    write(world, dry_run="false")
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        write(world, dry_run=word)
        await world.settle(10)
        world.transport.written.clear()
        world.node("a9", A)
        await world.cancel()
        await world.settle(1200)
        outside = [each for each in world.transport.written if "zoneshifts" not in each[1]]
        assert outside == []
        assert word == "true" or world.transport.written == []
        assert (world.away(), world.protected()) == ([A], ["a0", "a1"])
        assert world.gates.is_launch_closed(world.ids(A))

        write(world, dry_run="false")
        await world.restored()
        assert (world.wanted(), world.protected()) == (before, [])


@pytest.mark.parametrize(
    ("key", "bad", "said"),
    [
        (
            "policy",
            "manual=Explode",
            'policy in ConfigMap kube-system/karpenter-zonal-shift is "manual=Explode"',
        ),
        ("dry_run", "maybe", 'dry-run in ConfigMap kube-system/karpenter-zonal-shift is "maybe"'),
    ],
)
@virtual
async def test_a_bad_word_keeps_the_last_good_one_and_is_told(key: str, bad: str, said: str) -> None:
    world = world_of()
    write(world, policy="manual=Protect", dry_run="false")
    async with world.running():
        await world.settle(5)
        write(world, **{"policy": "manual=Protect", "dry_run": "false", key: bad})
        await world.settle(5)
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)

        assert (world.away(), world.gates.is_launch_closed(world.ids(A))) == ([], True)
        ((name, note),) = world.events("ZonalShiftMisconfigured")
        assert name == MAP
        assert note.startswith(said)
        assert "\n" not in note


@virtual
async def test_one_bad_key_does_not_hold_up_the_other() -> None:
    world = world_of()
    write(world, policy="manual=Ignore", dry_run="perhaps")
    async with world.running():
        await world.shift(A)
        await world.settle(60)
        assert world.shifts() == []


@virtual
async def test_a_map_that_goes_takes_nothing_back() -> None:
    world = world_of()
    write(world, policy="manual=Protect")
    async with world.running():
        await world.settle(5)
        world.api.delete("configmaps", MAP, "kube-system")
        await world.settle(5)
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        assert world.away() == []


@virtual
async def test_other_maps_are_nobodys_business() -> None:
    world = world_of()
    other = {"metadata": {"name": "other", "namespace": "kube-system"}, "data": {"policy": "manual=Ignore"}}
    world.api.create("configmaps", other)
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.away() == [A], within=60)
        assert world.phase() in ("Applying", "Active")


@virtual
async def test_fields_of_the_policy_change_how_a_shift_goes_while_it_goes() -> None:
    world = world_of()
    write(world, restore_batch="50%", restore_interval="10h")
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        await world.until(lambda: world.protected() == ["a0", "a1"], within=60)
        await world.cancel()
        await world.until(lambda: len(world.protected()) == 1, within=1200)
        await world.settle(3600)
        assert len(world.protected()) == 1, "the other half is released ten hours later"
        write(world, restore_batch="50%", restore_interval="0s")
        await world.restored()
        assert (world.wanted(), world.protected()) == (before, [])


@virtual
async def test_fields_reach_the_poller_and_the_messages_too() -> None:
    world = world_of()
    async with world.running():
        write(world, observer="true", poll_interval="7m", poll_interval_active="3m", adopt_orphans="true")
        await world.settle(5)
        controller = world.zonal.controller
        assert world.zonal.signals.observer
        assert (controller.arc._calm, controller.arc._active, controller.arc._observer) == (420, 180, True)
        assert controller._extras._orphans.adopt
        assert controller._edits._protection.options is controller._tracker.options is world.zonal.options
        assert controller._statuses.options is world.zonal.options
        write(world)
        await world.settle(5)
        assert (controller.arc._calm, world.zonal.signals.observer) == (30, False)
