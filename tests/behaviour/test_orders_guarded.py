"""Orders and deletions that would hurt if a check before them were missing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import ObjectMeta
from dovetail.controllers.provisioning import Provisioner
from dovetail.disruption.command import Command
from dovetail.disruption.methods.consolidation import choose_multi_node
from dovetail.disruption.methods.drift import choose_drift
from dovetail.errors import Refused
from dovetail.sim.faults import FaultRule
from support.builders import NOW, nodepool, pod
from support.disruption import LARGE, SIZES, pool
from support.fleet import Fleet, light
from support.world import CLAIMS, POOLS, Scene, sample, virtual

CREATED = "karpenter_nodeclaims_created_total"


def created(reason: str) -> float:
    return sample(CREATED, reason=reason, nodepool="default", min_values_relaxed="false")


async def to_replace(fleet: Fleet, name: str = "a") -> Command:
    """The command that replaces a drifted node whose pods fit nowhere else; it is not begun."""
    fleet.node(name, light(f"p-{name}", name, "15"), drifted=NOW, consolidatable=False)
    await fleet.scene.heard()
    (command,) = choose_drift(await fleet.loop.build_input()).commands
    assert command.replacements
    return command


# Orchestration


@virtual
async def test_a_node_is_never_part_of_two_commands() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        command = await to_replace(fleet)
        await fleet.queue.start_command(command)
        with pytest.raises(Refused, match="already being disrupted"):
            await fleet.queue.start_command(command)
        assert (fleet.commands(), len(fleet.replacements())) == (1, 1)


async def of_three(fleet: Fleet, *, room: bool) -> Command:
    """Three nodes that could go together: onto a fourth where there is room, or for one new node."""
    for name in ("a", "b", "c"):
        fleet.node(name, light(f"p-{name}", name))
    if room:
        fleet.node("room", *(light(f"r{i}", "room") for i in range(3)), consolidatable=False)
    await fleet.scene.heard()
    (command,) = choose_multi_node(await fleet.loop.build_input()).commands
    return command


@virtual
async def test_nodes_that_cannot_all_be_marked_are_not_replaced() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        command = await of_three(fleet, room=False)
        assert len(command.replacements) == 1
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), resources=("nodes",), names=("b",)))
        with pytest.raises(Refused, match="could not be marked"):
            await fleet.queue.start_command(command)
        assert (fleet.commands(), fleet.replacements()) == (0, [])


@virtual
async def test_of_nodes_that_go_for_nothing_those_that_could_be_marked_go() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        command = await of_three(fleet, room=True)
        assert command.replacements == ()
        left = sorted(candidate.name for candidate in command.candidates)[1:]
        first = min(candidate.name for candidate in command.candidates)
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), resources=("nodes",), names=(first,)))
        await fleet.queue.start_command(command)
        scene.trouble()
        await fleet.carry_on()
        assert fleet.going() == left


@virtual
async def test_a_replacement_is_not_ordered_above_its_pools_limit() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        command = await to_replace(fleet)
        scene.api.patch(POOLS, "default", {"spec": {"limits": {"cpu": "1"}}})
        await scene.heard()
        with pytest.raises(Refused, match="cpu limit"):
            await fleet.queue.start_command(command)
        assert (fleet.commands(), fleet.replacements()) == (0, [])


@virtual
async def test_a_namesake_of_the_claim_that_was_to_go_stays() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        await fleet.queue.start_command(await to_replace(fleet))
        (new,) = fleet.replacements()
        old = scene.claim_now("a")
        fleet.forget("a")
        bare = ObjectMeta(name="a", labels=old.metadata.labels, annotations=old.metadata.annotations)
        scene.create(replace(old, metadata=bare))
        assert scene.claim_now("a").uid != old.uid
        await fleet.up(new)
        await fleet.carry_on()
        assert scene.has(CLAIMS, "a")
        assert fleet.going() == []


# Provisioning


def provisioning(scene: Scene) -> Provisioner:
    found = scene.controller("provisioner")
    assert isinstance(found, Provisioner)
    return found


def waiting(scene: Scene, name: str, cpu: str = "3") -> None:
    scene.create(pod(name, cpu=cpu))
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    scene.set_status("pods", name, {"conditions": [unschedulable]}, "default")


@virtual
async def test_a_pool_that_is_being_deleted_does_not_grow() -> None:
    async with Scene().still() as scene:
        scene.apply(nodepool())
        scene.api.patch(POOLS, "default", {"metadata": {"finalizers": ["example.com/hold"]}})
        waiting(scene, "web")
        await scene.heard()
        scene.api.delete(POOLS, "default")
        await scene.heard()
        assert scene.pool_now().deleting
        # Deleting it was a change of its own, which its readiness has taken note of.
        for name in ("nodepool.validation", "nodepool.readiness"):
            await scene.look(name, "default")
        assert conditions.is_true(scene.pool_now(), conditions.READY)
        await scene.heard()
        assert await provisioning(scene)._list_offers() == []
        await scene.look("provisioner")
        assert scene.claims() == []


@virtual
async def test_limits_are_asked_again_before_each_order() -> None:
    async with Scene().still() as scene:
        scene.apply(nodepool())
        scene.claim("there", owned=True)
        await scene.live("there")
        waiting(scene, "web")
        await scene.heard()
        plan = await provisioning(scene).make_plan()
        assert plan is not None
        (node,) = plan.new_nodes
        # Planned while there was room; by the time of the order there is none.
        scene.api.patch(POOLS, "default", {"spec": {"limits": {"cpu": "1"}}})
        await scene.heard()
        with pytest.raises(Refused, match="cpu limit"):
            await provisioning(scene)._order_node(node)
        assert [claim.name for claim in scene.claims()] == ["there"]


# Orders that the watch tells of late


def with_late_claims(*flags: str) -> Scene:
    """A world that tells us of claims half a minute late, or later."""
    scene = Scene(flags=flags)
    scene.trouble(FaultRule(trouble="watch-delay", resources=(CLAIMS,), amount=60.0))
    return scene


@virtual
async def test_a_node_is_ordered_once_however_late_the_watch_tells_of_it() -> None:
    async with with_late_claims().still() as scene:
        scene.apply(nodepool())
        waiting(scene, "web")
        await scene.sleep(100.0)
        for _ in range(3):
            await scene.look("provisioner")
        assert len(scene.claims()) == 1


@virtual
async def test_a_replacement_is_ordered_once_however_late_the_watch_tells_of_it() -> None:
    async with with_late_claims().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        fleet.node("a", light("p-a", "a", "15"), drifted=NOW, consolidatable=False)
        await scene.sleep(100.0)
        (command,) = choose_drift(await fleet.loop.build_input()).commands
        await fleet.queue.start_command(command)
        waiting(scene, "web", "100m")
        await scene.heard()
        await scene.look("provisioner")
        assert len(fleet.replacements()) == 1


@virtual
async def test_a_static_pool_is_filled_once_however_late_the_watch_tells_of_it() -> None:
    async with with_late_claims("--feature-gates=StaticCapacity=true").still() as scene:
        scene.apply(pool(replicas=2))
        await scene.sleep(100.0)
        for _ in range(3):
            await scene.look("static.provisioning", "default")
        assert len(scene.claims()) == 2


# Counts


@virtual
async def test_every_claim_that_is_ordered_is_counted_by_its_reason() -> None:
    before = created("provisioned"), created("drifted")
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        await fleet.queue.start_command(await to_replace(fleet))
        assert (created("provisioned"), created("drifted")) == (before[0], before[1] + 1)
        for claim in fleet.replacements():
            await scene.live(claim.name)
        waiting(scene, "web", "15")
        await scene.heard()
        await scene.look("provisioner")
        assert (created("provisioned"), created("drifted")) == (before[0] + 1, before[1] + 1)


@virtual
async def test_every_claim_of_a_static_pool_is_counted() -> None:
    before = created("provisioned")
    gate: Any = ["--feature-gates=StaticCapacity=true"]
    async with Scene(flags=gate).still() as scene:
        scene.apply(pool(replicas=2))
        await scene.heard()
        await scene.look("static.provisioning", "default")
        assert (len(scene.claims()), created("provisioned")) == (2, before + 2)
