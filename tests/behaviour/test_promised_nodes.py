"""A node that was bought for pods is theirs until they have landed: no method takes it before."""

from __future__ import annotations

import pytest

from dovetail.api import conditions
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.report import build_report
from support.builders import pod
from support.disruption import SIZES, pool
from support.fleet import Fleet
from support.world import CLAIMS, Scene, virtual


async def bought(fleet: Fleet, *pods: str) -> NodeClaim:
    """A node for these pods, up and initialized; nobody has bound them yet."""
    for name in pods:
        fleet.pod(pod(name, cpu="15"))
    await fleet.scene.heard()
    await fleet.scene.look("provisioner")
    (claim,) = fleet.replacements()
    await fleet.up(claim)
    await fleet.scene.heard()
    return fleet.scene.claim_now(claim.name)


def mark(scene: Scene, claim: NodeClaim, kind: str) -> None:
    """The claim's condition is true, as the controller that keeps it would write it."""
    seen = conditions.set_true(scene.claim_now(claim.name), kind, scene.true_clock.now(), kind, "")
    scene.set_status(CLAIMS, claim.name, _status(seen))


def _status(claim: NodeClaim) -> dict[str, object]:
    listed = [
        {
            "type": each.type,
            "status": each.status,
            "reason": each.reason or each.type,
            "message": each.message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for each in claim.status.conditions
    ]
    return {"conditions": listed}


@pytest.mark.parametrize("kind", [conditions.DRIFTED, conditions.CONSOLIDATABLE])
@virtual
async def test_neither_drift_nor_emptiness_takes_a_node_whose_pods_are_not_bound_yet(kind: str) -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(nodes="100%"), types=SIZES)
        claim = await bought(fleet, "web")
        mark(scene, claim, kind)
        await scene.heard()
        assert {
            each.main.blocked_reason for each in build_report(await fleet.loop.build_input(), 1).blocked_nodes
        } == {BlockedReason.NOMINATED}
        await fleet.turns(2)
        assert (fleet.marked(), fleet.going(), fleet.commands()) == ([], [], 0)


@virtual
async def test_a_node_whose_pods_never_come_may_go_when_the_window_has_passed() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(nodes="100%"), types=SIZES)
        claim = await bought(fleet, "web")
        mark(scene, claim, conditions.DRIFTED)
        scene.api.delete("pods", "web", "default")
        await scene.heard()
        await fleet.turn()
        await fleet.carry_on()
        assert fleet.going() == [claim.name]


@virtual
async def test_after_a_restart_a_node_that_waiting_pods_will_land_on_is_left_alone() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(nodes="100%"), types=SIZES)
        claim = await bought(fleet, "web")
        await scene.stop()
        await scene.restart(acting=False)
        mark(scene, claim, conditions.DRIFTED)
        mark(scene, claim, conditions.CONSOLIDATABLE)
        await scene.heard()
        place = scene.dovetail.cluster.find_by_claim(claim.name)
        assert place is not None
        assert not place.is_nominated(scene.true_clock.now()), "who was promised what is not remembered"
        await fleet.turns(2)
        assert (fleet.marked(), fleet.going(), fleet.commands()) == ([], [], 0)


@virtual
async def test_drift_buys_nothing_for_pods_that_wait_for_another_reason() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(nodes="100%"), types=SIZES)
        fleet.node("a", pod("p", cpu="15", node="a"), drifted=scene.true_clock.now(), consolidatable=False)
        fleet.pod(pod("waiting", cpu="15"))
        await scene.heard()
        await fleet.turn()
        assert fleet.commands() == 1
        assert len(fleet.replacements()) == 1
