"""Nodes and pools under a shift, and everyone else who writes to them: the edge cases by number."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector
from dovetail.sim.transport import LocalTransport
from support.stage import virtual
from support.zonal import LEDGER, POOLS, SHIFTS, ZONE, ZONE_ID, A, B, C, Shifted, entry, refused


async def active(world: Shifted, zone: str = A, within: float = 90) -> None:
    await world.shift(zone)
    await world.until(lambda: world.phase(zone) == "Active", within=within)


async def over(world: Shifted, zone: str = A) -> None:
    await world.settle(300)
    await world.cancel()
    await world.restored(zone)


@pytest.mark.spec("zonal-E12")
@virtual
async def test_e12_a_restart_after_half_of_the_nodes_goes_on_with_the_others() -> None:
    world = Shifted(nodes={A: 20, B: 3}, qps=1.0)
    world.pool("default", entry("In", A, B))
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        await world.until(lambda: 5 <= len(world.protected()) <= 15, within=200)
        half = len(world.protected())
        await world.killed(20)
        assert len(world.protected()) >= half
        await world.until(lambda: world.phase() == "Active", within=200)

        assert len(world.protected()) == 20
        assert world.away() == [A]
        await over(world)
        assert (world.protected(), world.wanted()) == ([], before)


@pytest.mark.spec("zonal-E13")
@pytest.mark.parametrize("where", ["/nodes/a0", "/nodepools/default", "/zoneshifts"])
@virtual
async def test_e13_a_crash_between_a_write_and_the_status_is_told_by_the_object_itself(where: str) -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        hit: list[str] = []

        def cut(request: Any) -> bool:
            if where in request.path and not hit:
                hit.append(request.path)
                return True
            return False

        world.transport.cut = cut
        await world.shift(A)
        await world.until(lambda: hit, within=90)
        await world.killed()
        await world.until(lambda: world.phase() == "Active", within=90)

        assert (world.protected(), world.away()) == (["a0", "a1"], [A])
        await over(world)
        assert (world.protected(), world.wanted()) == ([], before)
        assert world.marks("a0") == (None, None, False)


@pytest.mark.spec("zonal-E14")
@virtual
async def test_e14_a_leader_without_a_network_is_followed_by_another_within_its_lease() -> None:
    world = Shifted()
    async with world.running():
        leading: list[str] = []
        cut = [False]

        class Cut(LocalTransport):
            async def send(self, request: Any) -> Any:
                if cut[0]:
                    await asyncio.sleep(3600)
                return await super().send(request)

        terms = ElectionTerms(name="zonal", namespace="default")

        def elector(name: str, transport: Any) -> Elector:
            kube = KubeClient(transport, world.clock)

            def told(leads: bool) -> None:
                if leads:
                    leading.append(name)

            return Elector(kube, terms, name, clock=world.clock, rng=Random(name), on_change=told)

        first = asyncio.create_task(elector("in-the-zone", Cut(world.world.server)).run())
        await world.until(lambda: leading == ["in-the-zone"], within=30)
        second = asyncio.create_task(elector("elsewhere", LocalTransport(world.world.server)).run())
        await world.settle(10)
        cut[0] = True
        took = await world.until(lambda: leading[-1] == "elsewhere", within=60)

        assert took <= 20
        for each in (first, second):
            each.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


@pytest.mark.spec("zonal-E15")
@virtual
async def test_e15_what_a_person_edits_during_the_shift_is_kept() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C), entry("In", "amd64", key="kubernetes.io/arch"))
    async with world.running():
        await active(world)
        mine = [each for each in world.requirements() if each["key"] != "kubernetes.io/arch"]
        mine.insert(0, entry("In", "arm64", key="kubernetes.io/arch"))
        template = {"spec": {"requirements": mine, "expireAfter": "48h"}}
        world.api.patch(POOLS, "default", {"spec": {"template": template, "weight": 7}})
        await world.settle(60)
        assert A in world.away()
        await over(world)

        assert world.requirements() == [
            entry("In", "arm64", key="kubernetes.io/arch"),
            entry("In", A, B, C),
        ]
        spec = world.api.get(POOLS, "default")["spec"]
        assert (spec["weight"], spec["template"]["spec"]["expireAfter"]) == (7, "48h")
        assert LEDGER not in world.api.get(POOLS, "default")["metadata"].get("annotations", {})


@pytest.mark.spec("zonal-E15")
@virtual
async def test_e15_a_zone_a_person_took_out_for_good_is_not_put_back() -> None:
    world = Shifted(strategy="RemoveFromIn")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await active(world)
        assert world.requirements() == [entry("In", B, C)]
        note = {"metadata": {"annotations": {"zonalshift.dovetail.sh/keep-removed": A}}}
        world.api.patch(POOLS, "default", note)
        await over(world)

        assert world.requirements() == [entry("In", B, C)]
        assert any("keep it out" in note for _, note in world.events("ZonalShiftKept"))


@pytest.mark.spec("zonal-E16")
@virtual
async def test_e16_a_gitops_tool_that_puts_the_pool_back_is_answered_five_times_and_then_named() -> None:
    world = Shifted(mode="Both")
    base = [entry("In", A, B, C)]
    world.pool("default", *base)
    async with world.running():
        # Who edited another field before all this has no part in it.
        world.gitops.patch(POOLS, "default", {"spec": {"weight": 7}}, field_manager="kubectl-edit")
        await active(world)
        answered: list[float] = []
        began = world.clock.monotonic()
        for _ in range(8):
            patch = {"spec": {"template": {"spec": {"requirements": base}}}}
            world.gitops.patch(POOLS, "default", patch, field_manager="argocd-controller")
            try:
                await world.until(lambda: world.away() == [A], within=700, step=1)
            except AssertionError:
                break
            answered.append(world.clock.monotonic() - began)
            began = world.clock.monotonic()

        assert len(answered) == 5
        assert [round(each / 10) * 10 for each in answered] == [10, 30, 120, 300, 600]
        assert world.condition("Contested") == "True"
        ((name, note),) = world.events("ZonalShiftContested")
        assert name == "default"
        assert "argocd-controller" in note
        assert world.gates.is_launch_closed(world.ids(A)), "launches stay blocked"


@pytest.mark.spec("zonal-E17")
@virtual
async def test_e17_a_pool_made_during_the_shift_is_edited_and_given_back_as_it_was_made() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        await active(world)
        world.pool("late", entry("In", A, B))
        made = world.wanted("late")
        await world.until(lambda: world.away("late") == [A], within=5)
        await over(world)
        assert world.wanted("late") == made


@pytest.mark.spec("zonal-E18")
@virtual
async def test_e18_a_pool_deleted_or_made_anew_during_the_shift_leaves_no_ledger_behind() -> None:
    world = Shifted()
    world.pool("gone", entry("In", A, B))
    world.pool("again", entry("In", A, B))
    async with world.running():
        await active(world)
        old = world.api.get(POOLS, "again")
        for name in ("gone", "again"):
            world.api.delete(POOLS, name)
        anew = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": old["spec"]}
        notes = old["metadata"]["annotations"]
        world.api.create(POOLS, {**anew, "metadata": {"name": "again", "annotations": notes}})
        await world.settle(60)
        await over(world)

        # The namesake was made with the exclusion in its own spec: that is what its maker wanted.
        assert world.away("again") == [A]
        assert LEDGER not in world.api.get(POOLS, "again")["metadata"].get("annotations", {})
        assert refused(lambda: world.api.get(POOLS, "gone")) == 404


@pytest.mark.spec("zonal-E19")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Freeze", [entry("In", A), entry("NotIn", A)]),
        ("Leave", [entry("In", A)]),
        ("Fallback", [entry("In", C)]),
    ],
)
@virtual
async def test_e19_a_pool_with_only_that_zone_follows_its_policy(policy: Any, expected: Any) -> None:
    world = Shifted(only_zone=policy, strategy="RemoveFromIn")
    world.pool("default", entry("In", A))
    note = {"metadata": {"annotations": {"zonalshift.dovetail.sh/fallback-zones": C}}}
    world.api.patch(POOLS, "default", note)
    async with world.running():
        before = world.wanted()
        await active(world)

        assert world.requirements() == expected
        if policy != "Leave":
            assert [name for name, _ in world.events("OnlyZoneImpaired")] == ["default"]
        await over(world)
        assert world.wanted() == before


SHAPES: dict[str, list[Any]] = {
    "not in": [entry("NotIn", B)],
    "exists": [entry("Exists")],
    "does not exist": [entry("DoesNotExist")],
    "none": [],
    "zone id": [entry("In", "usw2-az1", "usw2-az2", key=ZONE_ID)],
    "minValues": [entry("In", A, B, C, minValues=3)],
    "twice": [entry("In", A, B, C), entry("In", A, C)],
}


@pytest.mark.spec("zonal-E20")
@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@pytest.mark.parametrize("shape", SHAPES)
@virtual
async def test_e20_every_shape_of_requirement_loses_the_zone_and_gets_it_back(
    shape: str, strategy: Any
) -> None:
    world = Shifted(strategy=strategy)
    world.pool("default", *SHAPES[shape])
    async with world.running():
        before = world.wanted()
        await active(world)

        if shape == "does not exist":
            assert world.wanted() == before
        else:
            assert not _admits(world.requirements(), A, world.ids(A))
            assert _admits(world.requirements(), C, world.ids(C)) or shape == "zone id"
        await over(world)
        assert world.wanted() == before


def _admits(requirements: list[Any], zone: str, zone_id: str) -> bool:
    for each in requirements:
        value = {ZONE: zone, ZONE_ID: zone_id}.get(each["key"])
        if value is None:
            continue
        if each["operator"] == "In" and value not in each["values"]:
            return False
        if each["operator"] == "NotIn" and value in each["values"]:
            return False
        if "minValues" in each and each["minValues"] > len(each["values"]):
            return False
    return True


@pytest.mark.spec("zonal-E21")
@virtual
async def test_e21_a_human_cordon_before_stays_and_an_uncordon_during_is_respected() -> None:
    world = Shifted(nodes={A: 3, B: 1})
    world.pool()
    world.api.patch("nodes", "a0", {"spec": {"unschedulable": True}})
    world.api.patch("nodes", "a1", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "4h"}}})
    async with world.running():
        await active(world)
        assert world.marks("a1") == ("true", "4h", True)
        world.api.patch("nodes", "a2", {"spec": {"unschedulable": None}})
        await world.settle(60)
        assert world.marks("a2") == ("true", "true", False)
        await over(world)

        assert world.marks("a0") == (None, None, True)
        assert world.marks("a1") == (None, "4h", False)
        assert world.marks("a2") == (None, None, False)


@pytest.mark.spec("zonal-E22")
@virtual
async def test_e22_a_node_that_comes_back_under_its_name_is_another_node() -> None:
    world = Shifted()
    world.pool()
    async with world.running():
        await active(world)
        old = world.api.get("nodes", "a0")["metadata"]["annotations"][LEDGER]
        world.api.delete("nodes", "a0")
        world.node("a0", A)
        # Restored from a backup, with the marks and the ledger of the one before.
        marks = {LEDGER: old, "karpenter.sh/do-not-disrupt": "true"}
        world.api.patch("nodes", "a0", {"metadata": {"annotations": marks}})
        world.api.patch("nodes", "a1", {"metadata": {"labels": {"karpenter.sh/nodepool": "other"}}})
        await world.settle(60)
        fresh = json.loads(world.api.get("nodes", "a0")["metadata"]["annotations"][LEDGER])
        assert fresh["uid"] == world.api.get("nodes", "a0")["metadata"]["uid"]
        await over(world)

        # Its annotation was there before us, as far as this node goes.
        assert world.marks("a0") == (None, "true", False)
        assert world.marks("a1") == (None, None, False)


@pytest.mark.spec("zonal-E27")
@virtual
async def test_e27_a_write_that_admission_rejects_is_told_and_the_others_go_on() -> None:
    world = Shifted()
    for name in ("default", "frozen"):
        world.pool(name, entry("In", A, B))
    async with world.running():
        world.transport.refuse = lambda request: (
            "nodepools/frozen" in request.path or "nodes/a0" in request.path
        )
        await world.shift(A)
        await world.until(lambda: world.away("default") == [A], within=120)

        await world.until(lambda: world.condition("Degraded") == "True", within=10)
        (trouble,) = [c for c in world.status()["conditions"] if c["type"] == "Degraded"]
        assert "frozen by policy" in trouble["message"]
        assert world.protected() == ["a1"]
        assert world.phase() == "Applying"
        world.transport.refuse = lambda request: False
        await world.until(lambda: world.phase() == "Active", within=150)
        assert (world.protected(), world.away("frozen")) == (["a0", "a1"], [A])
        await world.until(lambda: world.condition("Degraded") == "False", within=60)


@pytest.mark.spec("zonal-E28")
@virtual
async def test_e28_many_nodes_are_protected_within_the_clients_rate_and_progress_is_seen() -> None:
    world = Shifted(nodes={A: 400, B: 2}, qps=50.0)
    world.pool()
    async with world.running():
        seen: list[tuple[int, int]] = []
        await world.shift(A)

        def done() -> bool:
            told = world.status().get("steps", {}).get("nodes")
            if told and (told["desired"], told["done"]) not in seen:
                seen.append((told["desired"], told["done"]))
            return world.phase() == "Active"

        took = await world.until(done, within=60)
        assert len(world.protected()) == 400
        assert {desired for desired, _ in seen} == {400}, "as many as there are"
        assert len(seen) > 1, "and it is told how far it is"
        assert seen == sorted(seen)
        assert seen[-1] == (400, 400)
        assert took < 30 + 400 / 50 + 5
        writes = len(world.transport.written)
        assert writes < 400 + 60, "one write for each node"


@virtual
async def test_nodes_that_have_been_ready_for_longest_are_protected_first() -> None:
    """While writes are few and far between, those that serve the most are the ones to keep."""
    world = Shifted(nodes={A: 4, B: 1})
    world.pool()
    async with world.running():
        for name, hour in (("a1", 4), ("a0", 3), ("a3", 2)):
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            ready["lastTransitionTime"] = f"2025-01-01T0{hour}:00:00Z"
            world.api.patch("nodes", name, {"status": {"conditions": [ready]}}, subresource="status")
        await active(world)
        paths = [path.rpartition("/nodes/")[2] for _, path in world.transport.written if "/nodes/" in path]
        assert [each for each in paths if each.startswith("a")] == ["a3", "a0", "a1", "a2"]


@pytest.mark.spec("zonal-E29")
@virtual
async def test_e29_switched_off_while_active_means_a_full_restore_first() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        await world.killed(enabled=False)
        await world.restored()

        assert (world.wanted(), world.protected()) == (before, [])
        assert world.status()["endReason"] == "Operator"


@pytest.mark.spec("zonal-E29")
@virtual
async def test_e29_with_leave_everything_stays_as_it_is() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await active(world)
        await world.killed(enabled=False, on_disable="leave")
        await world.settle(1200)
        assert (world.away(), world.phase()) == ([A], "Active")


@pytest.mark.spec("zonal-E30")
@virtual
async def test_e30_ledgers_of_the_version_before_are_undone_and_of_a_later_one_left_alone() -> None:
    world = Shifted(nodes={A: 2, B: 1})
    base, ours = [entry("In", A, B, C)], [entry("In", B, C)]
    for name in ("old", "newer"):
        world.pool(name, *ours)
    world.pool("old2", *ours)
    first = {"v": 1, "base": base, "ours": ours, "shifts": ["usw2-az1/old"]}
    _note(world, POOLS, "old", first)
    _note(world, POOLS, "newer", {"v": 99, "new": "shape"})
    _note(world, "nodes", "a0", {"v": 1, "shifts": ["usw2-az1/old"], "set": {"ann": None, "cordon": False}})
    world.api.patch("nodes", "a0", {"spec": {"unschedulable": True}})
    world.api.patch("nodes", "a0", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
    async with world.running():
        await world.settle(60)

        assert world.requirements("old") == base
        assert world.marks("a0") == (None, None, False)
        assert world.requirements("newer") == ours
        assert json.loads(world.api.get(POOLS, "newer")["metadata"]["annotations"][LEDGER])["v"] == 99
        assert world.requirements("old2") == ours


def _note(world: Shifted, resource: str, name: str, ledger: Any) -> None:
    world.api.patch(resource, name, {"metadata": {"annotations": {LEDGER: json.dumps(ledger)}}})


@pytest.mark.spec("zonal-E32")
@pytest.mark.parametrize("where", ["server", "client"])
@virtual
async def test_e32_a_dry_run_writes_nothing_and_tells_everything(where: Any) -> None:
    world = Shifted(dry_run=where, mode="Both")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before, nodes = world.wanted(), world.api.list("nodes")
        await world.shift(A)
        await world.settle(120)

        outside = [each for each in world.transport.written if "zoneshifts" not in each[1]]
        assert outside == []
        assert (world.wanted(), world.api.list("nodes")) == (before, nodes)
        assert not world.gates.is_launch_closed(world.ids(A))
        if where == "client":
            assert world.transport.written == []
            (imagined,) = world.zonal.controller.imagined
            plan = imagined.status.plan
        else:
            plan = tuple(world.status()["plan"])
        assert f"gate launches in {world.ids(A)}" in plan
        assert any(line.startswith("Node/a0 cordon: false -> true") for line in plan)
        assert any(line.startswith("NodePool/default requirements") for line in plan)


@virtual
async def test_deleting_a_zone_shift_is_an_operators_cancel_and_arc_does_not_bring_it_back() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        (shift,) = world.shifts()
        world.api.delete(SHIFTS, shift["metadata"]["name"])
        await world.restored()
        assert (world.wanted(), world.protected()) == (before, [])
        await world.settle(300)
        assert world.away() == []
        await world.cancel()
        await world.until(lambda: world.shifts() == [], within=120)


@virtual
async def test_a_zone_impaired_again_on_the_way_back_is_left_at_once() -> None:
    world = Shifted(nodes={A: 8, B: 2})
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        await world.settle(300)
        await world.cancel()
        await world.until(lambda: len(world.protected()) < 8, within=600)
        assert len(world.protected()) >= 4, "a quarter at a time"
        await active(world)
        assert len(world.protected()) == 8
        await over(world)
        assert (world.wanted(), world.protected()) == (before, [])


@virtual
async def test_without_marks_a_budget_keeps_drift_away_until_it_is_forgotten() -> None:
    world = Shifted(protect=False)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        guard = {"nodes": "0", "reasons": ["Drifted"]}
        assert guard in world.api.get(POOLS, "default")["spec"]["disruption"]["budgets"]
        assert world.protected() == []
        await over(world)
        assert world.wanted() == before


@virtual
async def test_pools_of_auto_mode_are_stood_in_for_and_never_edited() -> None:
    world = Shifted(auto=True, auto_mode="Clone")
    for name in ("general-purpose", "system"):
        world.pool(name, entry("In", "amd64", key="kubernetes.io/arch"), limits={"cpu": "100"})
    async with world.running():
        before = [world.wanted(name) for name in ("general-purpose", "system")]
        await active(world)

        clone = world.api.get(POOLS, "dovetail-zs-general-purpose")["spec"]
        assert clone["weight"] == 100
        zones = clone["template"]["spec"]["requirements"][-1]
        assert (zones["key"], zones["operator"], A in zones["values"]) == (ZONE, "In", False)
        assert [world.wanted(name) for name in ("general-purpose", "system")] == before
        await over(world)
        await world.until(
            lambda: refused(lambda: world.api.get(POOLS, "dovetail-zs-general-purpose")) == 404, within=120
        )
