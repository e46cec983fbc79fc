"""The way back: what is swept, when buying begins again, pools without their ledger, and stand-ins."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.zonal.controller.writes import GUARD
from dovetail.zonal.model.clone import RETIRED
from dovetail.zonal.model.state_machine import ShiftTiming
from support.stage import virtual
from support.zonal import CLAIMS, LEDGER, POOLS, SHIFTS, A, B, C, Shifted, entry, refused

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
            return bool(found[ended] == "Restored")

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
        assert world.gates.is_launch_closed(world.ids(A)) is not fast
        assert world.gates.is_disruption_closed(A), "what runs there is left alone until it has settled"
        await world.restored()
        assert not world.gates.is_launch_closed(world.ids(A))


# Pools whose ledger somebody removed


async def orphaned(world: Shifted) -> None:
    """A shift, in the middle of which somebody tidies annotations away; then it ends."""
    await world.shift(A)
    await world.until(lambda: world.phase() == "Active", within=60)
    await world.until(lambda: world.status().get("ledger", {}).get("nodePools") == ["default"], within=60)
    world.gitops.patch(POOLS, "default", {"metadata": {"annotations": {LEDGER: None, GUARD: None}}})
    await world.settle(310)
    await world.cancel()
    await world.restored()


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@virtual
async def test_a_pool_without_its_ledger_is_told_of_and_left_alone(strategy: str) -> None:
    world = Shifted(strategy=strategy)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await orphaned(world)
        (told,) = world.events("ZonalShiftOrphaned")
        assert told[0] == "default"
        assert "set adopt-orphans to true" in told[1]
        zones = [value for each in world.requirements() for value in each.get("values", ())]
        assert zones == ([A, B, C, A] if strategy == "AppendNotIn" else [B, C])


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@virtual
async def test_a_pool_without_its_ledger_is_mended_where_that_is_asked_for(strategy: str) -> None:
    world = Shifted(strategy=strategy, adopt_orphans=True)
    world.pool("default", entry("In", A, B, C))
    world.pool("theirs", entry("In", B, C))
    async with world.running():
        theirs = world.wanted("theirs")
        await orphaned(world)
        (left,) = world.requirements()
        assert (left["operator"], sorted(left["values"])) == ("In", [A, B, C])
        assert world.wanted("theirs") == theirs, "a pool we never edited keeps its zones"
        assert [each.reason for each in world.zonal.controller.writer.audits][-1] in ("adopted", "released")
        assert "adopted" in {each.reason for each in world.zonal.controller.writer.audits}


# Stand-ins for pools of EKS Auto Mode


CLONE = "dovetail-zs-general-purpose"


def owns_a_claim(world: Shifted) -> None:
    meta = {"name": "late", "labels": {"karpenter.sh/nodepool": CLONE}}
    reference = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}
    world.api.create(CLAIMS, {"metadata": meta, "spec": {"nodeClassRef": reference, "requirements": []}})


@virtual
async def test_a_stand_in_keeps_its_nodes_until_they_have_outlived_it_and_every_write_is_on_record() -> None:
    # The shift itself is forgotten before the stand-in is.
    pace = ShiftTiming(keep=timedelta(minutes=30))
    world = Shifted(auto=True, auto_mode="Clone", clone_retention=timedelta(hours=2), pace=pace)
    for name in ("general-purpose", "system"):
        world.pool(name, entry("In", "amd64", key="kubernetes.io/arch"), limits={"cpu": "100"})
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.until(lambda: refused(lambda: world.api.get(POOLS, CLONE)) == 0, within=60)
        owns_a_claim(world)
        await world.until(lambda: world.status().get("ledger", {}).get("clones") == [CLONE], within=60)
        await world.settle(310)
        await world.cancel()
        await world.restored()
        retired = world.api.get(POOLS, CLONE)
        assert (retired["spec"]["limits"]["cpu"], retired["spec"]["weight"]) == ("0", 1)
        await world.settle(5400)
        assert world.shifts() == []
        assert "metadata" not in world.api.get(POOLS, CLONE)["spec"]["template"], "still in time"
        await world.settle(2100)
        forced = world.api.get(POOLS, CLONE)["spec"]["template"]["metadata"]["annotations"]
        assert list(forced) == ["zonalshift.dovetail.sh/outlived"], "its nodes drift, within its budgets"
        world.api.delete(CLAIMS, "late")
        await world.until(lambda: refused(lambda: world.api.get(POOLS, CLONE)) == 404, within=120)
        told = [each.reason for each in world.zonal.controller.writer.audits if each.object.endswith(CLONE)]
        assert told == ["stands in", "retired", "outlived", "removed"]


@virtual
async def test_a_stand_in_that_was_about_to_go_is_used_again() -> None:
    world = Shifted(auto=True, auto_mode="Clone")
    for name in ("general-purpose", "system"):
        world.pool(name, entry("In", "amd64", key="kubernetes.io/arch"), limits={"cpu": "100"})
    async with world.running():
        await world.shift(A)
        await world.until(lambda: refused(lambda: world.api.get(POOLS, CLONE)) == 0, within=60)
        owns_a_claim(world)
        made = world.api.get(POOLS, CLONE)
        await world.settle(310)
        await world.cancel()
        await world.restored()
        assert world.api.get(POOLS, CLONE)["spec"] != made["spec"]
        await world.shift(A)
        await world.until(lambda: world.api.get(POOLS, CLONE)["spec"] == made["spec"], within=60)
        assert RETIRED not in world.api.get(POOLS, CLONE)["metadata"]["annotations"]
        assert world.api.get(POOLS, CLONE)["metadata"]["uid"] == made["metadata"]["uid"]


# Every write is on record


def written(world: Shifted, resource: str) -> int:
    """How many writes to objects of a kind the server took."""
    return sum(f"/{resource}/" in path for method, path in world.transport.written if method == "PATCH")


@virtual
async def test_every_write_is_on_record_with_what_it_changed_and_why() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        world.local(A, "second")  # a second reason to stay away changes only our own notes
        await world.until(lambda: "Active" in str(world.api.get(SHIFTS, "second").get("status")), within=60)
        await world.settle(310)
        await world.cancel()
        world.api.delete(SHIFTS, "second")
        await world.until(lambda: not world.protected(), within=1800, step=5)
        await world.restored()
        audits = list(world.zonal.controller.writer.audits)
        for kind, resource in (("Node/", "nodes"), ("NodePool/", "nodepools")):
            mine = [each for each in audits if each.object.startswith(kind)]
            assert len(mine) >= written(world, resource) > 0
        for name in ("Node/a0", "NodePool/default"):
            told = [each for each in audits if each.object == name]
            assert "ledger" in {each.field for each in told}
        assert all(each.before != each.after and each.shift and each.reason for each in audits)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("Clone", "pods that can only run in the zone may still be served there"),
        ("Native", "Native: EKS shifts away by itself; 1 of 2 nodes are cordoned"),
        ("Off", "Off: nothing keeps EKS Auto Mode out of the zone"),
    ],
)
@virtual
async def test_how_far_auto_mode_is_kept_out_is_told_on_the_shift(mode: str, told: str) -> None:
    world = Shifted(auto=True, auto_mode=mode, protect=False)
    for name in ("general-purpose", "system"):
        world.pool(name, entry("In", "amd64", key="kubernetes.io/arch"))
    world.api.patch("nodes", "a0", {"spec": {"unschedulable": True}})
    async with world.running():
        before = [world.wanted(name) for name in ("general-purpose", "system")]
        await world.shift(A)
        await world.until(lambda: told in world.status().get("impact", {}).get("autoMode", ""), within=60)
        assert (refused(lambda: world.api.get(POOLS, CLONE)) == 0) is (mode == "Clone")
        await world.settle(60)
        assert [world.wanted(name) for name in ("general-purpose", "system")] == before, (
            "nobody may edit them"
        )
